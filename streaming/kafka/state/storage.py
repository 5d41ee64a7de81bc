"""The storage of a job's saved state: a folder, or a topic.

The metadata of committed offsets names the state that belongs to them. A folder holds the state of
one part; a topic holds the state of part n in its partition n.

The one rule: only the state that a commit names is restored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ketal.errors import SettingError, StateError
from ketal.model.wording import counted
from ketal.streaming.job.file import Job
from ketal.streaming.job.locks import locked
from ketal.streaming.kafka.connecting.client_calls import StoppedError
from ketal.streaming.kafka.state.folder_store import Claim, FolderStore
from ketal.streaming.kafka.state.topic_store import Changelog, Loaded, load, part_text

Metadata = Mapping[str, Any]
"""The metadata that a commit stores with the offset."""
GetNumbers = Callable[[str], set[int]]
GetSetting = Callable[[str, str], str]
Store = FolderStore | Changelog
"""Saves and restores the state of one part."""


class Storage(ABC):
    """The saved state of all parts of a job."""

    restart_hint: str
    """What to use to start over, for hints."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def exclusive(self, stopping: Callable[[], bool]) -> AbstractContextManager[None]:
        """Return a context in which no other process can begin with this storage.

        By default it takes no lock: of two processes that begin at once Kafka fences one.
        """
        return nullcontext()

    @abstractmethod
    def check(self, numbers: GetNumbers, setting: GetSetting, parts: int) -> None:
        """Raise a SettingError if this storage cannot hold the state of `parts` parts.

        `numbers` returns the partition numbers of a topic, `setting` the value of a setting of it.
        """

    @abstractmethod
    def state_name(self, metadata: Metadata) -> str | None:
        """Return the name of the state that a commit names; None if its state is elsewhere.

        The name is empty for the start offset of a partition, which is committed without a state.
        """

    def has_state_of(self, metadata: Metadata) -> bool:
        """Return whether the state that a commit names is in this storage, damaged or not."""
        return self.state_name(metadata) is not None

    def includes(self, topic: str, metadata: Metadata) -> bool:
        """Return whether a commit names a state of this storage that the topic is part of."""
        return bool(self.state_name(metadata))

    @abstractmethod
    def metadata(self, name: str) -> dict[str, str]:
        """Return the metadata of a commit that names a state."""

    def load(
        self, numbers: Sequence[int], stopping: Callable[[], bool], *, open_too: bool = True
    ) -> dict[int, Any]:
        """Read the state of some parts before the names in their commits are known.

        Returns for each number the value that `open` takes, by default None. A topic is read up to
        its end; without `open_too` only up to the first open transaction.
        """
        return dict.fromkeys(numbers)

    def belongs_to(self, loaded: Any, names: Sequence[str | None]) -> bool:
        """Return whether loaded state belongs to a commit with one of these names, or is faulty."""
        return True

    @abstractmethod
    def open(
        self, number: int, loaded: Any, names: Sequence[str]
    ) -> tuple[Store, dict[bytes, bytes]]:
        """Return the store of a part, and the records of the state that its commits name.

        Raises a StateError if that state is missing or damaged; or if no commit names a state and
        yet there is one.
        """

    @abstractmethod
    def empty(self, number: int, loaded: Any = None, names: Sequence[str] = ()) -> Store:
        """Return the store of a part that begins anew, whatever was saved before.

        The names of its states come after those that its commits name.
        """


class _FolderStorage(Storage):
    """State in a folder, of a single part.

    A process that begins locks the folder until the folder names its job: of two jobs that are
    started in one folder at the same moment, the second then finds the name of the first. After
    that the process releases the lock, so that another process of the group can take over.

    Two jobs of the same name would remove each other's state, so the folder names its group and
    the topics of its state (`Claim`). It also records that a commit exists: if Kafka has no
    offsets then, they have expired, and beginning anew would repeat all verdicts.
    """

    restart_hint = (
        "another group_id, and another [state] store if one is set, to start over where [kafka] "
        "start says"
    )
    _claim: Claim
    """Made under the lock, before anything else is asked of the storage."""

    @contextmanager
    def exclusive(self, stopping: Callable[[], bool]) -> Iterator[None]:
        with locked(self._job.state, self._job.call_timeout_ms / 1e3, stopping) as is_locked:
            if not is_locked:
                raise StoppedError("locking the state")
            self._claim = Claim(self._job.state, self._job.group_id, self._job.topics)
            yield

    def check(self, numbers: GetNumbers, setting: GetSetting, parts: int) -> None:
        pass  # A job with its state in a folder has one part.

    def state_name(self, metadata: Metadata) -> str | None:
        return str(metadata.get("snapshot") or "") or None

    def has_state_of(self, metadata: Metadata) -> bool:
        name = self.state_name(metadata)
        if name is None:
            return False
        return self._claim.has_commits or (self._job.state / name.partition("@")[0]).exists()

    def includes(self, topic: str, metadata: Metadata) -> bool:
        return self._claim.includes(topic) and super().includes(topic, metadata)

    def metadata(self, name: str) -> dict[str, str]:
        return {"snapshot": name}

    def open(
        self, number: int, loaded: Any, names: Sequence[str]
    ) -> tuple[Store, dict[bytes, bytes]]:
        if self._claim.has_commits and not names:
            raise StateError(
                f"group {self._job.group_id} has no offsets at {self._job.bootstrap_servers}, but "
                f"{self._job.state} contains the state of its last commit: the offsets have "
                "expired or were deleted, or this is another Kafka"
            )
        store = self.empty(number)
        # The commits of a topic that was, or is, not read for a while name an older state.
        return store, store.read(max(names)) if names else {}

    def empty(self, number: int, loaded: Any = None, names: Sequence[str] = ()) -> FolderStore:
        return FolderStore(self._job.state, self._claim, names)


_ADDED = (
    "\n  hint: if partitions were added to the input topics, use another group_id too, since keys, "
    "and with them scopes, are in other partitions than before"
)


class _TopicStorage(Storage):
    """State in a topic: one part in each partition."""

    restart_hint = "another group_id and state topic to start over where [kafka] start says"
    _parts = 1

    def check(self, numbers: GetNumbers, setting: GetSetting, parts: int) -> None:
        self._parts = parts
        topic = self._topic
        present = len(numbers(topic))
        if present != parts:
            shared = self._job.is_shared
            wanted = "the input topics have" if shared else "the state of one consumer requires"
            raise SettingError(
                f"the state topic {topic} has {counted(present, 'partition')}, but {wanted} "
                f"{parts}: use a topic with {parts}{_ADDED if shared else ''}"
            )
        policy = setting(topic, "cleanup.policy")
        if policy != "compact":
            raise SettingError(
                f"the state topic {topic} has cleanup.policy={policy}, which would lose state: "
                "set it to compact"
            )

    @property
    def _topic(self) -> str:
        return self._job.store.name

    def state_name(self, metadata: Metadata) -> str | None:
        is_here = metadata.get("changelog") == self._topic
        return str(metadata.get("commit", "")) if is_here else None

    def metadata(self, name: str) -> dict[str, str]:
        return {"changelog": self._topic} | ({"commit": name} if name else {})

    def load(
        self, numbers: Sequence[int], stopping: Callable[[], bool], *, open_too: bool = True
    ) -> dict[int, Loaded]:
        return load(self._job, numbers, stopping, open_too=open_too)

    def belongs_to(self, loaded: Loaded, names: Sequence[str | None]) -> bool:
        return loaded.fault is not None or loaded.commit in names

    def open(
        self, number: int, loaded: Loaded, names: Sequence[str]
    ) -> tuple[Store, dict[bytes, bytes]]:
        if loaded.keys and not names:
            raise StateError(
                f"{part_text(self._topic, number)} contains state, but group "
                f"{self._job.group_id} has no offsets: the state belongs to another group, or the "
                "offsets have expired or were deleted, for example with their topic"
            )
        store = self.empty(number)
        return store, store.restore(loaded, names) if names else {}

    def empty(
        self, number: int, loaded: Loaded | None = None, names: Sequence[str] = ()
    ) -> Changelog:
        store = Changelog(self._job, number, self._parts)
        if loaded is not None:
            store.discard(loaded)
        return store


def make_storage(job: Job) -> Storage:
    """Return the storage of a job."""
    return _TopicStorage(job) if job.store.is_topic else _FolderStorage(job)
