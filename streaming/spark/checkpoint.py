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
from typing import TYPE_CHECKING, Any

from ketal.errors import SettingError, StateError
from ketal.model.limits import Limits
from ketal.program import Program
from ketal.runtime.execution import Execution
from ketal.runtime.state.records import FORMAT
from ketal.streaming.job.file import Job
from ketal.streaming.spark.families import HASHING, families, placement
from ketal.streaming.spark.job_folder import HadoopFolder, JobFolder, LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = "job.json"
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
class WrittenBatch:
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
    session : SparkSession, optional
        What reaches the folder where it is not on this machine.

    Raises
    ------
    SettingError
        If the folder cannot be written, or another process has it.
    StateError
        If it is of another program and `--on-change` is stop.
    """

    def __init__(self, job: Job, program: Program, session: SparkSession | None = None) -> None:
        self.folder: JobFolder
        if session is None:
            self.folder = LocalFolder(job.state)
        else:
            self.folder = HadoopFolder(session, job.state_address)
        self.anew: str = ""
        """Why the state is left behind; empty where it is not."""
        self.lost: str = ""
        """What the checkpoint no longer has of what its note knows; empty where it has all."""
        self.written = WrittenBatch()
        self._generation = 0
        self._job = job
        self._starting: str = job.start
        self._pending: dict[str, Any] | None = None
        try:
            self._take_up(program)
            self.lost = self._lost()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have the folder."""
        self.folder.close()

    def _take_up(self, program: Program) -> None:
        """Find out what the folder holds, and what is to become of it."""
        job, path = self._job, f"{self.folder}/{_JOB}"
        said = {
            "format": FORMAT,
            "key_groups": job.key_groups,
            "hashing": HASHING,
            "groups_by": placement(families(program, job.key_groups), job.source),
            "topics": sorted(job.topics),
            "program": _blank(program, job.limits),
        }
        names = self.folder.names()
        if _JOB not in names:
            if any(name.startswith("checkpoint-") for name in names):
                raise StateError(f"{self.folder} has lost its {_JOB}: bring it back")
            self._write(_JOB, {**said, **self._place()})
            return
        try:
            held = json.loads(self.folder.read(_JOB))
            self._generation = int(held["generation"])
            self._starting = str(held["starting"])
            self.written = self._read_written()
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
        self.written = self._read_written()
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
            self._write(_JOB, self._pending)
            self._pending = None
        return starting

    def _place(self) -> dict[str, Any]:
        return {"generation": self._generation, "starting": self._starting}

    def _write(self, name: str, content: dict[str, Any], indent: int | None = 1) -> None:
        try:
            self.folder.write(name, json.dumps(content, indent=indent).encode())
        except OSError as fault:
            cause = fault.strerror or fault
            raise SettingError(f"cannot write {self.folder}/{name}: {cause}") from None

    @property
    def _name(self) -> str:
        return f"checkpoint-{self._generation}"

    @property
    def path(self) -> str:
        """Spark's checkpoint, for who reads of it."""
        return f"{self.folder}/{self._name}"

    @property
    def address(self) -> str:
        """Spark's checkpoint as a URI."""
        return f"{self.folder.address}/{self._name}"

    def _last(self, what: str) -> int:
        """Return the last batch that Spark noted among its `offsets` or its `commits`."""
        held = self.folder.names(f"{self._name}/{what}")
        return max((int(name) for name in held if name.isdigit()), default=-1)

    def _offsets(self) -> str:
        """Return the offsets up to which the checkpoint is committed, as `startingOffsets`."""
        done = self._last("commits")
        if done < 0:
            return ""
        path = f"offsets/{done}"
        try:
            # Spark's version, the batch's own, and the offsets of the one source.
            _, _, offsets = self.folder.read(f"{self._name}/{path}").decode().splitlines()
            json.loads(offsets)
        except (OSError, ValueError) as fault:
            raise StateError(f"{self.path}/{path} is damaged: {fault!r}") from None
        return offsets

    # --- progress ---

    def _lost(self) -> str:
        if self.written.batch <= self._last("offsets"):
            return ""
        return (
            f"{self.path} has lost batches up to {self.written.batch}, whose verdicts were "
            "written: those that come again have the same ids"
        )

    def _digest(self, batch: int) -> str:
        """Return what tells batches of one number apart; empty if it is not there."""
        try:
            noted = self.folder.read(f"{self._name}/offsets/{batch}")
        except OSError:
            return ""
        return hashlib.blake2b(noted, digest_size=16).hexdigest()

    def has_written(self, batch: int) -> bool:
        """Return whether the output of this very batch is written."""
        noted = self.written
        return batch == noted.batch and noted.offsets != "" and noted.offsets == self._digest(batch)

    def _read_written(self) -> WrittenBatch:
        path = f"{self.path}.json"
        try:
            held = json.loads(self.folder.read(f"{self._name}.json"))
            return WrittenBatch(int(held["batch"]), str(held["offsets"]), dict(held["groups"]))
        except FileNotFoundError:
            return WrittenBatch()
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise StateError(f"{path} is damaged: {fault!r}") from None

    def wrote(self, batch: int, groups: dict[str, dict[str, Any]]) -> None:
        """Take note that the output of a batch is written, with the figures that came with it."""
        # Before the first batch there was nothing, whatever a note says of a lost checkpoint.
        before = self.written.groups if batch else {}
        self.written = WrittenBatch(batch, self._digest(batch), {**before, **groups})
        said = {
            "batch": batch,
            "offsets": self.written.offsets,
            "groups": self.written.groups,
        }
        self._write(f"{self._name}.json", said, indent=None)


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
