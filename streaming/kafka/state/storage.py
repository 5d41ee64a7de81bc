"""The storage of a job's saved state: a folder, or a topic.

The metadata of committed offsets names the state that belongs to them. A folder holds the state of
one part; a topic holds that of part n in its partition n.

The one rule: only the state that a commit names is restored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ketal.errors import SettingError, StateError
from ketal.streaming.job.file import Job
from ketal.streaming.job.locks import locked
from ketal.streaming.kafka.connecting.client_calls import StoppedError
from ketal.streaming.kafka.connecting.clients import topic_setting
from ketal.streaming.kafka.state.folder_store import Claim, Saved
from ketal.streaming.kafka.state.topic_store import Changelog, Loaded, load

Metadata = Mapping[str, Any]
"""The metadata of a commit, beside the offset."""
Store = Saved | Changelog
"""Saves the state of a part."""


class Storage(ABC):
    """The saved state of a job's parts."""

    anew: str
    """How to begin at the beginning of the topics, for a hint."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def exclusive(self, stopping: Callable[[], bool]) -> AbstractContextManager[None]:
        """Return a context in which no other process begins here.

        By default without a lock: Kafka fences one of two processes that begin at once.
        """
        return nullcontext()

    @abstractmethod
    def check(self, numbers: Callable[[str], set[int]], parts: int) -> None:
        """Raise a SettingError if it cannot hold so many parts; `numbers` are a topic's."""

    @abstractmethod
    def name_in(self, metadata: Metadata) -> str | None:
        """Return the name of the state that a commit names; None if its state is elsewhere.

        It is empty for the beginning of a partition, which is committed without a state.
        """

    def is_own(self, metadata: Metadata) -> bool:
        """Return whether the state that a commit names is here, damaged or not."""
        return self.name_in(metadata) is not None

    @abstractmethod
    def metadata(self, name: str) -> dict[str, str]:
        """Return the metadata of a commit with the state of a name."""

    def load(
        self, numbers: Sequence[int], stopping: Callable[[], bool], *, open_too: bool = True
    ) -> dict[int, Any]:
        """Return what is read of some parts before a name is known, by default nothing.

        Without `open_too`, up to an open transaction.
        """
        return dict.fromkeys(numbers)

    def is_of(self, loaded: Any, names: Sequence[str | None]) -> bool:
        """Return whether what was loaded has one of these names, and is of no other commit."""
        return True

    @abstractmethod
    def open(
        self, number: int, loaded: Any, names: Sequence[str]
    ) -> tuple[Store, dict[bytes, bytes]]:
        """Return the store of a part, and the records of the state that its commits name.

        A StateError if they are not there, or if there are some and no commit names a state.
        """

    @abstractmethod
    def empty(self, number: int, loaded: Any = None) -> Store:
        """Return the store of a part that begins anew, whatever there was."""


class _FolderStorage(Storage):
    """State in a folder, of one part.

    While a process begins, it locks the folder, until the folder names its job: of two jobs that
    are started in one folder at the same moment, the second one finds the first there. Then it
    releases the lock, since a second process of the group may take over.

    The folder is of one group, and names it, and the topics that its state is of: two jobs of one
    name would remove each other's state. It also records that a commit exists; if Kafka has no
    offsets then, these have expired, and beginning anew would repeat all verdicts.
    """

    anew = "another group_id starts at the beginning of the topics"
    _claim: Claim | None = None

    @contextmanager
    def exclusive(self, stopping: Callable[[], bool]) -> Iterator[None]:
        with locked(self._job.state, self._job.call_timeout_ms / 1e3, stopping) as is_locked:
            if not is_locked:
                raise StoppedError("locking the state")
            self._claim = Claim(self._job.state, self._job.group_id, self._job.topics)
            yield

    def check(self, numbers: Callable[[str], set[int]], parts: int) -> None:
        pass  # A folder holds the one part that there is.

    def name_in(self, metadata: Metadata) -> str | None:
        return str(metadata.get("snapshot") or "") or None

    def is_own(self, metadata: Metadata) -> bool:
        name = self.name_in(metadata)
        if name is None:
            return False
        return self._has_begun or (self._job.state / name.partition("@")[0]).exists()

    @property
    def _has_begun(self) -> bool:
        return self._claim is not None and self._claim.begun

    def metadata(self, name: str) -> dict[str, str]:
        return {"snapshot": name}

    def open(
        self, number: int, loaded: Any, names: Sequence[str]
    ) -> tuple[Store, dict[bytes, bytes]]:
        if self._has_begun and not names:
            raise StateError(
                f"group {self._job.group_id} has no offsets at {self._job.bootstrap_servers}, and "
                f"{self._job.state} holds the state of what it had committed: they have expired or "
                "were deleted, or this is another Kafka"
            )
        store = self.empty(number)
        # A topic that was not read for a while names an older one.
        return store, store.read(max(names)) if names else {}

    def empty(self, number: int, loaded: Any = None) -> Saved:
        return Saved(self._job.state, self._claim)


class _TopicStorage(Storage):
    """State in a topic, of one part in each partition."""

    anew = "another group_id and state topic start at the beginning of the topics"
    _parts = 1

    def check(self, numbers: Callable[[str], set[int]], parts: int) -> None:
        self._parts = parts
        topic = self._topic
        present = len(numbers(topic))
        if present != parts:
            shared = self._job.is_shared
            wants = "the topics that are read have" if shared else "one consumer's state takes"
            raise SettingError(
                f"the state topic {topic} has {present} partitions, and {wants} {parts}: create "
                f"it with {parts}"
            )
        policy = topic_setting(self._job, topic, "cleanup.policy")
        if policy != "compact":
            raise SettingError(
                f"the state topic {topic} has cleanup.policy={policy}, and would lose state: "
                "set it to compact"
            )

    @property
    def _topic(self) -> str:
        return self._job.store.name

    def name_in(self, metadata: Metadata) -> str | None:
        is_here = metadata.get("changelog") == self._topic
        return str(metadata.get("commit", "")) if is_here else None

    def metadata(self, name: str) -> dict[str, str]:
        return {"changelog": self._topic} | ({"commit": name} if name else {})

    def load(
        self, numbers: Sequence[int], stopping: Callable[[], bool], *, open_too: bool = True
    ) -> dict[int, Loaded]:
        return load(self._job, numbers, stopping, open_too=open_too)

    def is_of(self, loaded: Loaded, names: Sequence[str | None]) -> bool:
        return loaded.fault is not None or loaded.commit in names

    def open(
        self, number: int, loaded: Loaded, names: Sequence[str]
    ) -> tuple[Store, dict[bytes, bytes]]:
        if loaded.keys and not names:
            raise StateError(
                f"the changelog {self._topic}/{number} holds state, and group "
                f"{self._job.group_id} has committed nothing: it is of another group, or the "
                "offsets of this one have expired or were deleted, as a topic's are with it"
            )
        store = self.empty(number)
        return store, store.restore(loaded, names) if names else {}

    def empty(self, number: int, loaded: Loaded | None = None) -> Changelog:
        store = Changelog(self._job, number, self._parts)
        if loaded is not None:
            store.discard(loaded)
        return store


def storage_of(job: Job) -> Storage:
    """Return the storage of a job."""
    return _TopicStorage(job) if job.store.kind == "kafka" else _FolderStorage(job)
