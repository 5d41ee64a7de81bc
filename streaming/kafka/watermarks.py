"""Watermarks over partitions (Akidau et al., "The Dataflow Model", VLDB 2015, section 2.3).

Each partition has a mark: the largest event time seen in it minus the lateness, or the time of a
`ketal.watermark` in it if that is larger. The watermark of the job is the least mark of the
partitions that are not idle; if all are idle, the largest mark. The watermark never goes back.

A partition becomes idle after `idle_ms` without a message, in which only time counts that the
process spent polling. A busy process does not poll, so of the time between two checks at most
`CHECK_GAP_MS_MAX` counts. After a standstill of the process nothing is known about any partition:
those that were idle are active again, and each gets some time until it is idle. The messages that a
client has fetched do not show where a partition ends, so before the watermark passes an idle
partition the caller asks Kafka for the end (`idle`, `newly_idle`).

The one rule: time is an argument, the events' and the clock's, in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ketal.model.events.event_time import TIME_MIN_US

Partition = tuple[str, int]
"""(topic, number)."""
CHECK_MS = 1_000
"""How often a job checks which partitions are idle."""
CHECK_GAP_MS_MAX = 2 * CHECK_MS
"""How much of the time between two checks counts at most."""
STANDSTILL_MS = 5 * CHECK_MS
"""A longer time between two checks is a standstill; each partition is then active for this long."""
_UNKNOWN_S = -math.inf
"""The mark of a partition without an event time."""


class Watermarks:
    """The watermark over some partitions, which are all active at `now_ms`."""

    def __init__(
        self, partitions: Iterable[Partition], *, lateness_ms: int, idle_ms: int, now_ms: float
    ) -> None:
        self._lateness_s = lateness_ms / 1e3
        self._idle_ms = idle_ms
        self._marks_s = dict.fromkeys(partitions, _UNKNOWN_S)
        self._least: Partition | None = None
        """The active partition with the least mark at the last `advance`; None if there is none.

        While it is active and its mark does not rise, the watermark cannot advance.
        """
        self._active_ms = dict.fromkeys(self._marks_s, now_ms)
        self._checked_ms = now_ms
        self._idle: set[Partition] = set()
        self.ended: set[Partition] = set()
        """The partitions that have ended (`ketal.end`)."""
        self.watermark_s: float | None = None

    def observe(self, partition: Partition, time_s: float) -> bool:
        """Raise a partition's mark to an event time less the lateness, as `raise_mark` does."""
        return self.raise_mark(partition, time_s - self._lateness_s)

    def raise_mark(self, partition: Partition, mark_s: float) -> bool:
        """Raise the mark of a partition if it is lower; return whether `advance` has to be called.

        It has to be called too when partitions became idle or have ended.
        """
        if mark_s <= self._marks_s[partition]:
            return False
        self._marks_s[partition] = mark_s
        return self._least is None or partition == self._least

    def mark_s(self, partition: Partition) -> float:
        """Return the mark of a partition."""
        return self._marks_s[partition]

    def mark_active(self, partitions: Iterable[Partition], now_ms: float) -> None:
        """Mark partitions active, since they have messages."""
        self._skip_unpolled_time(now_ms)
        for partition in partitions:
            self._active_ms[partition] = now_ms
            self._idle.discard(partition)

    def mark_idle(self, behind: Collection[Partition], now_ms: float) -> None:
        """Mark partitions that had no message for `idle_ms` idle, and those in `behind` active.

        `behind` are the partitions that have messages which were not read yet.
        """
        self._idle |= self._quiet_partitions(behind, now_ms)
        self.mark_active(self._active_ms.keys() & behind, now_ms)

    @property
    def idle(self) -> set[Partition]:
        """The partitions that are idle and have not ended."""
        return self._idle - self.ended

    def newly_idle(self, behind: Collection[Partition], now_ms: float) -> set[Partition]:
        """Return the idle partitions and those that would become idle; empty if none would.

        Only a partition that becomes idle can let a check advance the watermark, which may then
        pass the idle partitions too.
        """
        quiet = self._quiet_partitions(behind, now_ms)
        return (quiet | self._idle) - self.ended if quiet - self._idle else set()

    def _quiet_partitions(self, behind: Collection[Partition], now_ms: float) -> set[Partition]:
        """Return the partitions that had no message for `idle_ms` and have none to be read."""
        self._skip_unpolled_time(now_ms)
        return {
            partition
            for partition, active_ms in self._active_ms.items()
            if partition not in behind and now_ms - active_ms >= self._idle_ms
        }

    def _skip_unpolled_time(self, now_ms: float) -> None:
        """Shift the times of last activity by the time in which the process did not poll."""
        between_ms, self._checked_ms = now_ms - self._checked_ms, now_ms
        if between_ms <= CHECK_GAP_MS_MAX:
            return
        unseen_ms, least_ms = between_ms - CHECK_GAP_MS_MAX, 0.0
        if between_ms > STANDSTILL_MS:
            self._idle.clear()
            least_ms = now_ms - max(0, self._idle_ms - STANDSTILL_MS)
        for partition, active_ms in self._active_ms.items():
            self._active_ms[partition] = min(now_ms, max(active_ms + unseen_ms, least_ms))

    def restart(self, now_ms: float) -> None:
        """Mark every partition active, with the full `idle_ms` until it is idle."""
        self._checked_ms = now_ms
        self._active_ms = dict.fromkeys(self._marks_s, now_ms)
        self._idle.clear()

    @property
    def all_ended(self) -> bool:
        """Whether every partition has ended."""
        return len(self.ended) == len(self._marks_s)

    def advance(self) -> float | None:
        """Advance the watermark; return it, in seconds, or None if it did not advance."""
        marks_s = self._marks_s
        if quiet := self._idle | self.ended:
            marks_s = {one: mark_s for one, mark_s in marks_s.items() if one not in quiet}
        self._least = min(marks_s, key=marks_s.__getitem__, default=None)
        if self._least is None:
            mark_s = max(self._marks_s.values(), default=_UNKNOWN_S)
        else:
            mark_s = marks_s[self._least]
        if mark_s <= (_UNKNOWN_S if self.watermark_s is None else self.watermark_s):
            return None
        # The lateness may reach back beyond the earliest time, such as from Go's zero time.
        self.watermark_s = max(mark_s, TIME_MIN_US / 1e6)
        return self.watermark_s

    def state(self) -> dict[str, Any]:
        """Return the marks, the ended partitions and the watermark as plain data."""
        return {
            "marks": [
                [*one, None if mark_s == _UNKNOWN_S else mark_s]
                for one, mark_s in sorted(self._marks_s.items())
            ],
            "ended": [list(one) for one in sorted(self.ended)],
            "watermark": self.watermark_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load saved state, for those partitions that are still read."""
        for topic, number, mark_s in state["marks"]:
            if (topic, number) in self._marks_s:
                self._marks_s[topic, number] = _UNKNOWN_S if mark_s is None else mark_s
        self.ended = {(t, n) for t, n in state["ended"] if (t, n) in self._marks_s}
        self.watermark_s = state["watermark"]
