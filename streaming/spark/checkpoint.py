"""A job's folder on Spark: whose state it is, Spark's checkpoint, and how far the outputs are.

    job.json            the program that the state is of, what else is part of it, and the old
                        program as long as that is drained
    checkpoint-0/       Spark's own; `--on-change fresh` begins checkpoint-1 beside it
    checkpoint-0.json   the last batch whose output is written, and the figures of each key group

A batch is known by its number and by what Spark noted of it before it began: which offsets it
reads. Where a checkpoint has lost its last batches, others come under their numbers.

Another program takes the checkpoint's place (`--on-change fresh`), or goes on with it (`drain`, see
`ketal.streaming.spark.change`). The latter begins between two batches that are committed: one that
Spark had begun is finished by the old program, or what was written of it would be said anew.

The one rule: a checkpoint is read by the program that wrote it, with each key in its group, or by
none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from ketal.errors import SettingError, StateError
from ketal.program import Program
from ketal.streaming.distribution import uses_time
from ketal.streaming.drain import told_as_over, told_as_second, told_of_change
from ketal.streaming.folders import replaced
from ketal.streaming.job import Job
from ketal.streaming.locks import FILE, lock
from ketal.streaming.spark.change import Change, begin_to_drain, blank, changed_program
from ketal.streaming.spark.families import HASHING, families, placement

FORMAT = 3
READ = (2, 3)
"""The formats that are read; a job of format 2 never drained."""
_EARLIEST, _LATEST = -2, -1
"""What Spark calls the ends of a partition."""
HINT = (
    "  hint: --on-change fresh starts anew at the stored offsets, another [state] store at the "
    "beginning of the topics"
)
DRAIN_HINT = f"{HINT}; drain lets the old patterns finish what is under way"


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
        self.told: str = ""
        """What begins with a change; empty where nothing does."""
        self.change = Change(timed=uses_time(program))
        self.finishing: Program | None = None
        """The old program, where it has a batch to finish before its change begins."""
        self.progress = Progress()
        self._generation = 0
        self._job = job
        self._program = program
        self._starting: str = job.start
        self._pending: dict[str, Any] | None = None
        self._groups = sum(family.groups for family in families(program, job.key_groups))
        self._lock = self._locked()
        try:
            self._take_up(program)
            self.lost = self._lost()
            if self.lost:
                # What groups said of draining since is as lost as their states are.
                unknown = {"change": 0, "under_way": True}
                known = {number: {**of, **unknown} for number, of in self.progress.groups.items()}
                self.progress = replace(self.progress, groups=known)
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
            "program": blank(program, job.limits),
        }
        if not path.exists():
            if any(self.folder.glob("checkpoint-*")):
                raise StateError(f"{self.folder} has lost its job.json: bring it back")
            self._write(path, {**said, **self._place(), **self.change.noted()})
            return
        try:
            held = json.loads(path.read_bytes())
            self._generation = int(held["generation"])
            self._starting = str(held["starting"])
            self.progress = self._read_progress()
            settings = _changed(held, said)
            changed = settings or changed_program(held["program"], program, job.limits)
            if "draining" in held and self._is_drained(Change(int(held["change"]))):
                self.told = told_as_over(held["draining"]["patterns"])
                held = _without_old(held)
                self._write(path, held)
            if not changed:
                self.change = Change.of(held, program)
                return
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise StateError(f"{path} is damaged: {fault!r}") from None
        why = f"the checkpoint {self.folder} is of another job: {changed}"
        offsets = self._offsets()
        if offsets and job.on_change != "fresh":
            if "draining" in held:
                raise StateError(told_as_second(held["draining"]["patterns"], changed))
            if settings or job.on_change == "stop":
                raise StateError(f"{why}\n{HINT if settings else DRAIN_HINT}")
            self._drain(held, said, why)
            return
        if offsets:
            self.anew = why
        # What never came to the end of a batch has nothing that could be lost but its beginning.
        if offsets or not self._starting.startswith("{"):
            self._starting = offsets or job.start
        self._generation += 1
        self.progress = self._read_progress()
        self._pending = {**said, **self._place(), **self.change.noted()}

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
            self.change = Change.of(self._pending, self._program)
            self._pending = None
        return starting

    # --- draining ---

    def since(self) -> dict[str, dict[str, int]]:
        """Return from which offsets on the next batch reads, as far as that is known."""
        return json.loads(self._offsets() or "{}")  # type: ignore[no-any-return]

    @property
    def is_drained(self) -> bool:
        """Whether there is an old program, and its last run is over."""
        return self.change.was is not None and self._is_drained(self.change)

    def take_leave(self) -> bool:
        """Let go of an old program whose last run is over; return whether there was one."""
        if not self.is_drained:
            return False
        held = json.loads((self.folder / "job.json").read_bytes())
        self._write(self.folder / "job.json", _without_old(held))
        self.told = told_as_over(self.change.names)
        self.change = replace(self.change, was=None, names=())
        return True

    def _is_drained(self, change: Change) -> bool:
        # What a group said counts when its batch is committed: until then it may be called anew.
        batch = self.progress.batch
        committed = 0 <= batch <= self._last("commits")
        return committed and change.is_over(self.progress.groups, self._groups)

    def _drain(self, held: dict[str, Any], said: dict[str, Any], why: str) -> None:
        """Have the groups keep their state, and the old program beside the new one."""
        try:
            change = begin_to_drain(held, self._program, self._job.key_groups)
        except StateError as fault:
            raise StateError(f"{why}; {fault}\n{HINT}") from None
        self.change = Change(change.number - 1, timed=change.timed)
        if self._last("offsets") > self._last("commits"):
            self.finishing = change.was
        self.told = told_of_change(change.names)
        self._pending = {**said, **self._place(), **change.noted()}

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
            known = {"change": 0, "under_way": False, "draining": {}}  # of an earlier ketal
            groups = {number: {**known, **of} for number, of in held["groups"].items()}
            return Progress(int(held["batch"]), str(held["offsets"]), groups)
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


def _without_old(held: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if name != "draining"}


def _changed(held: dict[str, Any], said: dict[str, Any]) -> str:
    """Return what of a job's settings is not what its checkpoint says."""
    if held["format"] not in READ:
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
