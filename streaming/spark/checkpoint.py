"""A job's folder on Spark: its program, Spark's checkpoint, and the last batch that was written.

    job.json            the program of the state, and the settings that the state depends on
    checkpoint-0/       Spark's own files; `--on-change fresh` begins checkpoint-1 beside it
    checkpoint-0.json   the last batch whose output is written, and the figures of each key group

A batch is identified by its number and by the offsets that Spark stored for it before it began. The
number alone would not do: if a checkpoint has lost its last batches, Spark reuses their numbers.

The one rule: a checkpoint is read only by the program that wrote it, and only if each key is still
in the same group.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ketal.errors import OtherProgramError, StateError, refused_as_setting
from ketal.model.limits import Limits
from ketal.programs.program import Program
from ketal.runtime.execution import Execution
from ketal.runtime.state.records import FORMAT
from ketal.streaming.job.engine_files import ENGINE_FILES, check_engine
from ketal.streaming.job.file import STARTS, Job
from ketal.streaming.spark.families import HASHING, families, placement
from ketal.streaming.spark.job_folder import HadoopFolder, LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = ENGINE_FILES["spark"]
_EARLIEST, _LATEST = -2, -1
"""Spark's offsets for the beginning and the end of a partition."""
_decode_offsets = msgspec.json.Decoder(dict[str, dict[str, int]]).decode
"""Decodes Spark's `startingOffsets`: topic → number of a partition → offset."""
OTHER_STORE = "another [state] store to start over where [kafka] start says"
_HINT = f"  hint: use --on-change fresh to start over at the stored offsets, or {OTHER_STORE}"
SECOND_JOB = (
    "to finish the runs of the old patterns, run the new ones in a second job with another "
    "group_id and [state] store"
)


class WrittenBatch(msgspec.Struct, frozen=True):
    """The last batch whose output is written."""

    batch: int
    """Its number; -1 for none."""
    offsets: str
    """The digest of its offsets."""
    groups: dict[str, dict[str, Any]]
    """The figures of each key group, by its number."""


_NONE = WrittenBatch(-1, "", {})


class Checkpoint:
    """The folder of a job, opened; `session` is needed if it is not on this machine.

    Raises
    ------
    SettingError
        If the folder cannot be written or is another engine's, or another process runs the job.
    StateError
        If the state is damaged, or is of another program and `--on-change` is stop.
    """

    def __init__(
        self,
        job: Job,
        program: Program,
        session: SparkSession | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder = (
            LocalFolder(job.state) if session is None else HadoopFolder(session, job.store.name)
        )
        self.written = _NONE
        self._notify = notify
        self._discard_reason = ""
        """Why the state will be discarded by `begin`; empty if it will not."""
        self._generation = 0
        self._job = job
        self._starting: str = job.start
        self._pending: bytes | None = None
        try:
            self._open(program)
            if self.written.batch > self._last_batch("offsets"):
                notify(
                    f"{self.path} is missing batches up to {self.written.batch}, whose verdicts "
                    "were written: they are written again, with the same ids"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder."""
        self.folder.close()

    def _open(self, program: Program) -> None:
        """Read the folder, and compare its program and settings with the job's."""
        job, path = self._job, f"{self.folder}/{_JOB}"
        current = {
            "format": FORMAT,
            "key_groups": job.key_groups,
            "hashing": HASHING,
            "groups_by": placement(families(program, job.key_groups), job.source),
            "topics": sorted(job.topics),
            "program": _empty_state(program, job.limits),
        }
        names = self.folder.names()
        check_engine(self.folder, names, "spark")
        if _JOB not in names:
            if any(name.startswith("checkpoint-") for name in names):
                raise StateError(f"{self.folder} is missing its {_JOB}: restore it")
            self._write(_JOB, self._job_content(current))
            return
        try:
            held = json.loads(self.folder.read(_JOB))
            self._generation = int(held["generation"])
            self._starting = str(held["starting"])
            if self._starting not in STARTS:
                _decode_offsets(self._starting)
            self.written = self._read_written()
            settings = _settings_changes(held, current)
            changed = settings or _program_changes(held["program"], program, job.limits)
            if not changed:
                return
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as fault:
            raise StateError(f"{path} is damaged: {fault!r}") from None
        why = f"the checkpoint {self.folder} belongs to another job: {changed}"
        offsets = self._committed_offsets()
        if offsets and job.on_change != "fresh":
            raise StateError(f"{why}\n{_HINT if settings else f'{_HINT}; {SECOND_JOB}'}")
        if offsets:
            self._discard_reason = why
        # A checkpoint without a completed batch has no state, but may have start offsets.
        if offsets or self._starting in STARTS:
            self._starting = offsets or job.start
        self._generation += 1
        self.written = self._read_written()
        self._pending = self._job_content(current)

    def begin(self, counts: Mapping[str, int]) -> str:
        """Return the `startingOffsets` of Spark for a query with an empty checkpoint.

        `counts` has the number of partitions of each topic. The state of another program is
        discarded here and not earlier, since it is now known that the topics exist, and where each
        partition begins.
        """
        starting = _fill_partitions(self._starting, self._job, counts)
        if self._pending is not None:
            self._write(_JOB, self._pending)
            self._pending = None
        if self._discard_reason:
            self._notify(f"{self._discard_reason}; starting over at the stored offsets")
            self._discard_reason = ""
        return starting

    def _job_content(self, current: Mapping[str, Any]) -> bytes:
        """Return the content of job.json."""
        content = {**current, "generation": self._generation, "starting": self._starting}
        return json.dumps(content, indent=1).encode()

    def _write(self, name: str, content: bytes) -> None:
        with refused_as_setting(f"cannot write {self.folder}/{name}"):
            self.folder.write(name, content)

    @property
    def _name(self) -> str:
        return f"checkpoint-{self._generation}"

    @property
    def path(self) -> str:
        """The place of Spark's checkpoint, for messages."""
        return f"{self.folder}/{self._name}"

    @property
    def address(self) -> str:
        """The place of Spark's checkpoint as a URI."""
        return f"{self.folder.address}/{self._name}"

    def _last_batch(self, what: str) -> int:
        """Return the number of the last batch in Spark's `offsets` or `commits`; -1 if none."""
        held = self.folder.names(f"{self._name}/{what}")
        return max((int(name) for name in held if name.isdigit()), default=-1)

    def _committed_offsets(self) -> str:
        """Return the committed offsets as Spark's `startingOffsets`; empty if there are none."""
        done = self._last_batch("commits")
        if done < 0:
            return ""
        path = f"offsets/{done}"
        try:
            # Spark's version, the batch's own, and the offsets of the one source.
            _, _, offsets = self.folder.read(f"{self._name}/{path}").decode().splitlines()
            _decode_offsets(offsets)
        except (OSError, ValueError, RecursionError) as fault:
            raise StateError(f"{self.path}/{path} is damaged: {fault!r}") from None
        return offsets

    # --- the batch that was written last ---

    def _digest(self, batch: int) -> str:
        """Return the digest of a batch's offsets; empty if the checkpoint does not have them."""
        try:
            offsets = self.folder.read(f"{self._name}/offsets/{batch}")
        except OSError:
            return ""
        return hashlib.blake2b(offsets, digest_size=16).hexdigest()

    def has_written(self, batch: int) -> bool:
        """Return whether the output of a batch is written, by its number and its stored offsets."""
        written = self.written
        return (
            batch == written.batch
            and written.offsets != ""
            and written.offsets == self._digest(batch)
        )

    def _read_written(self) -> WrittenBatch:
        path = f"{self.path}.json"
        try:
            return msgspec.json.decode(self.folder.read(f"{self._name}.json"), type=WrittenBatch)
        except FileNotFoundError:
            return _NONE
        except (OSError, ValueError, RecursionError) as fault:
            raise StateError(f"{path} is damaged: {fault!r}") from None

    def record_written(self, batch: int, groups: dict[str, dict[str, Any]]) -> None:
        """Record that the output of a batch is written, with the figures of its groups."""
        # The first batch of a checkpoint starts without figures, even if a checkpoint of the same
        # name was lost that had some.
        before = self.written.groups if batch else {}
        self.written = WrittenBatch(batch, self._digest(batch), {**before, **groups})
        self._write(f"{self._name}.json", msgspec.json.encode(self.written))


def _fill_partitions(starting: str, job: Job, counts: Mapping[str, int]) -> str:
    """Return `startingOffsets` for exactly the partitions that exist, as Spark requires.

    A partition that was added to a topic is read from its first message, a new topic from where
    the job's `start` says.
    """
    if starting in STARTS:
        return starting
    held = _decode_offsets(starting)
    out = {}
    for topic in sorted(job.topics):
        first = _EARLIEST if topic in held or job.start == "earliest" else _LATEST
        known = held.get(topic, {})
        out[topic] = {str(n): known.get(str(n), first) for n in range(counts[topic])}
    return json.dumps(out)


def _empty_state(program: Program, limits: Limits) -> str:
    """Return the saved state of an empty execution, as text, by which programs are compared."""
    return base64.b64encode(Execution(program, limits=limits).state.snapshot()).decode()


def _program_changes(held: str, program: Program, limits: Limits) -> str:
    """Describe how a program differs from the one in `job.json`; empty if it does not."""
    try:
        Execution.restored(program, base64.b64decode(held, validate=True), limits=limits)
    except OtherProgramError as fault:
        return fault.changes
    except StateError as fault:
        return str(fault)
    return ""


def _settings_changes(held: dict[str, Any], now: dict[str, Any]) -> str:
    """Describe how a job's settings differ from those in `job.json`; empty if they do not."""
    if held["format"] != FORMAT:
        return f"it has format {held['format']}; this version reads format {FORMAT}"
    out = [
        f"{name} was {held[name]}, and is now {now[name]}"
        for name in ("key_groups", "hashing")
        if held[name] != now[name]
    ]
    topics = [", ".join(settings["topics"]) for settings in (held, now)]
    if topics[0] != topics[1]:
        out.append(f"the topics were {topics[0]}, and are now {topics[1]}")
    before, after = held["groups_by"], now["groups_by"]
    out += [
        f"`partition by {name}` was hashed from {before[name]}, and is now from {after[name]}"
        for name in after
        if name in before and before[name] != after[name]
    ]
    return "; ".join(out)
