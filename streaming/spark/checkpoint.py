"""A job's folder on Spark: whose state it is, Spark's checkpoint, and how far the outputs are.

    job.json            the program that the state is of, and what else is part of it
    checkpoint-0/       Spark's own; `--on-change fresh` begins checkpoint-1 beside it
    checkpoint-0.json   the last batch whose output is written, and the figures of each key group

A batch is known by its number and by what Spark noted of it before it began: which offsets it
reads. Where a checkpoint has lost its last batches, others come under their numbers.

The one rule: a checkpoint is read by the program that wrote it, with each key in its group, or by
none.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ketal.errors import SettingError, StateError
from ketal.model.limits import Limits
from ketal.program import Program
from ketal.runtime.execution import Execution
from ketal.runtime.state_records import FORMAT
from ketal.streaming.folders import replaced
from ketal.streaming.job.file import Job
from ketal.streaming.job.locks import FILE, lock
from ketal.streaming.spark.families import HASHING, families, placement

_EARLIEST, _LATEST = -2, -1
"""What Spark calls the ends of a partition."""
HINT = (
    "  hint: --on-change fresh starts anew at the stored offsets, another [state] store at the "
    "beginning of the topics"
)
SECOND_JOB = (
    "a second job with another group_id and [state] store runs the new patterns beside the old "
    "ones until those have finished what is under way"
)


@dataclass
class Progress:
    """What was written out.

    Parameters
    ----------
    batch : int
        The last batch whose output is written; -1 for none.
    offsets : str
        A digest of what that batch was to read.
    groups : dict
        The figures of each key group, by its number.
    """

    batch: int = -1
    offsets: str = ""
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)


class Checkpoint:
    """The folder of a job.

    Parameters
    ----------
    job : Job
        Whose it is.
    program : Program
        What runs.

    Raises
    ------
    SettingError
        If the folder cannot be written, or another process has it.
    StateError
        If it is of another program and `--on-change` is stop.
    """

    def __init__(self, job: Job, program: Program) -> None:
        self.folder = job.state
        self.anew: str = ""
        """Why the state is left behind; empty where it is not."""
        self.lost: str = ""
        """What the checkpoint no longer has of what its note knows; empty where it has all."""
        self.progress = Progress()
        self._generation = 0
        self._job = job
        self._starting: str = job.start
        self._pending: dict[str, Any] | None = None
        self._lock = self._locked()
        try:
            self._take_up(program)
            self.lost = self._lost()
        except BaseException:
            self.close()
            raise

    def _locked(self) -> IO[bytes]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = open(self.folder / FILE, "ab")  # noqa: SIM115
        except OSError as fault:
            raise SettingError(f"cannot write {self.folder}: {fault.strerror or fault}") from None
        try:
            if not lock(file.fileno(), self.folder):
                raise SettingError(f"another process runs the job of {self.folder}")
        except BaseException:
            file.close()
            raise
        return file

    def close(self) -> None:
        """Let another process have the folder."""
        self._lock.close()

    def _take_up(self, program: Program) -> None:
        """Find out what the folder holds, and what is to become of it."""
        job, path = self._job, self.folder / "job.json"
        said = {
            "format": FORMAT,
            "key_groups": job.key_groups,
            "hashing": HASHING,
            "groups_by": placement(families(program, job.key_groups), job.source),
            "topics": sorted(job.topics),
            "program": _blank(program, job.limits),
        }
        if not path.exists():
            if any(self.folder.glob("checkpoint-*")):
                raise StateError(f"{self.folder} has lost its job.json: bring it back")
            self._write(path, {**said, **self._place()})
            return
        try:
            held = json.loads(path.read_bytes())
            self._generation = int(held["generation"])
            self._starting = str(held["starting"])
            self.progress = self._read_progress()
            settings = _changed(held, said)
            changed = settings or _changed_program(held["program"], program, job.limits)
            if not changed:
                return
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise StateError(f"{path} is damaged: {fault!r}") from None
        why = f"the checkpoint {self.folder} is of another job: {changed}"
        offsets = self._offsets()
        if offsets and job.on_change != "fresh":
            raise StateError(f"{why}\n{HINT if settings else f'{HINT}; {SECOND_JOB}'}")
        if offsets:
            self.anew = why
        # What never came to the end of a batch has nothing that could be lost but its beginning.
        if offsets or not self._starting.startswith("{"):
            self._starting = offsets or job.start
        self._generation += 1
        self.progress = self._read_progress()
        self._pending = {**said, **self._place()}

    def begin(self, counts: Mapping[str, int]) -> str:
        """Return where a query begins whose checkpoint holds nothing: Spark's `startingOffsets`.

        The state of another job is left behind here and not before: the topics are there, and
        where each partition begins is known.

        Parameters
        ----------
        counts : mapping
            How many partitions each topic has.
        """
        starting = _filled(self._starting, self._job, counts)
        if self._pending is not None:
            self._write(self.folder / "job.json", self._pending)
            self._pending = None
        return starting

    def _place(self) -> dict[str, Any]:
        return {"generation": self._generation, "starting": self._starting}

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        try:
            replaced(path, json.dumps(content, indent=1).encode(), durable=True)
        except OSError as fault:
            raise SettingError(f"cannot write {path}: {fault.strerror or fault}") from None

    @property
    def path(self) -> Path:
        """Spark's checkpoint."""
        return self.folder / f"checkpoint-{self._generation}"

    def _last(self, what: str) -> int:
        """Return the last batch that Spark noted among its `offsets` or its `commits`."""
        held = (one.name for one in (self.path / what).glob("[0-9]*"))
        return max((int(name) for name in held if name.isdigit()), default=-1)

    def _offsets(self) -> str:
        """Return the offsets up to which the checkpoint is committed, as `startingOffsets`."""
        done = self._last("commits")
        if done < 0:
            return ""
        path = self.path / "offsets" / str(done)
        try:
            # Spark's version, the batch's own, and the offsets of the one source.
            _, _, offsets = path.read_text().splitlines()
            json.loads(offsets)
        except (OSError, ValueError) as fault:
            raise StateError(f"{path} is damaged: {fault!r}") from None
        return offsets

    # --- progress ---

    def _lost(self) -> str:
        if self.progress.batch <= self._last("offsets"):
            return ""
        return (
            f"{self.path} has lost batches up to {self.progress.batch}, whose verdicts were "
            "written: those that come again have the same ids"
        )

    def _digest(self, batch: int) -> str:
        """Return what tells batches of one number apart; empty if it is not there."""
        try:
            noted = (self.path / "offsets" / str(batch)).read_bytes()
        except OSError:
            return ""
        return hashlib.blake2b(noted, digest_size=16).hexdigest()

    def has_written(self, batch: int) -> bool:
        """Return whether the output of this very batch is written."""
        noted = self.progress
        return batch == noted.batch and noted.offsets != "" and noted.offsets == self._digest(batch)

    @property
    def _progress_path(self) -> Path:
        return self.folder / f"checkpoint-{self._generation}.json"

    def _read_progress(self) -> Progress:
        path = self._progress_path
        try:
            held = json.loads(path.read_bytes())
            return Progress(int(held["batch"]), str(held["offsets"]), dict(held["groups"]))
        except FileNotFoundError:
            return Progress()
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise StateError(f"{path} is damaged: {fault!r}") from None

    def wrote(self, batch: int, groups: dict[str, dict[str, Any]]) -> None:
        """Take note that the output of a batch is written, with the figures that came with it."""
        # Before the first batch there was nothing, whatever a note says of a lost checkpoint.
        before = self.progress.groups if batch else {}
        self.progress = Progress(batch, self._digest(batch), {**before, **groups})
        said = {
            "batch": batch,
            "offsets": self.progress.offsets,
            "groups": self.progress.groups,
        }
        try:
            replaced(self._progress_path, json.dumps(said).encode(), durable=True)
        except OSError as fault:
            raise SettingError(
                f"cannot write {self._progress_path}: {fault.strerror or fault}"
            ) from None


def _filled(starting: str, job: Job, counts: Mapping[str, int]) -> str:
    """Return offsets for just the partitions that there are, as Spark wants them.

    A partition that was added to a topic begins with its first message, a new topic where the job
    says that one begins.
    """
    if not starting.startswith("{"):
        return starting
    held: dict[str, dict[str, int]] = json.loads(starting)
    out = {}
    for topic in sorted(job.topics):
        first = _EARLIEST if topic in held or job.start == "earliest" else _LATEST
        known = held.get(topic, {})
        out[topic] = {str(n): known.get(str(n), first) for n in range(counts[topic])}
    return json.dumps(out)


def _blank(program: Program, limits: Limits) -> str:
    """Return what names a program: the state of an execution that has seen nothing, as text."""
    return base64.b64encode(Execution(program, limits=limits).state.snapshot()).decode()


def _changed_program(held: str, program: Program, limits: Limits) -> str:
    """Return how a program differs from the one that a job noted; empty where it does not."""
    try:
        Execution.restored(program, base64.b64decode(held, validate=True), limits=limits)
    except StateError as fault:
        return str(fault).partition("of another program: ")[2] or str(fault)
    return ""


def _changed(held: dict[str, Any], said: dict[str, Any]) -> str:
    """Return what of a job's settings is not what its checkpoint says."""
    if held["format"] != FORMAT:
        return f"it has format {held['format']}, and this version reads format {FORMAT}"
    out = [
        f"{name} was {held[name]}, and is {said[name]}"
        for name in ("key_groups", "hashing", "topics")
        if held[name] != said[name]
    ]
    before, now = held["groups_by"], said["groups_by"]
    out += [
        f"the groups of `partition by {name}` went by {before[name]}, and go by {now[name]}"
        for name in now
        if name in before and before[name] != now[name]
    ]
    return "; ".join(out)
