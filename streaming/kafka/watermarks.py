"""Watermarks over partitions (Akidau et al., "The Dataflow Model", VLDB 2015, section 2.3).

Each partition has a mark: the largest time seen there less the lateness, or the time of a
`ketal.watermark` in it, if that is more. The watermark of the job is the least mark of the
partitions that are not idle; where all are idle, the largest of all marks. It never goes back.

A partition is idle after some time without a message in which the process polled. A busy process
does not poll: of a longer time between two polls only `LOOKED_MS_MAX` counts. After a standstill
nothing is known even of partitions that were idle before, so each has some time again. What a
client has fetched does not show what a partition has, so before the watermark passes an idle one
Kafka is asked where it ends (`idle`, `newly_idle`).

The one rule: time is an argument, the events' and the clock's, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

Partition = tuple[str, int]
"""(topic, number)."""
LOOK_MS = 1_000
"""How often a job checks which partitions are idle."""
LOOKED_MS_MAX = 2 * LOOK_MS
"""So much of the time between two checks counts at most."""
STOOD_MS = 5 * LOOK_MS
"""A longer time between two checks is a standstill; each partition has so long again then."""


class Watermarks:
    """The watermark of a job, whose partitions are all active at `now_ms`."""

    def __init__(
        self, partitions: Iterable[Partition], *, lateness_ms: int, idle_ms: int, now_ms: float
    ) -> None:
        self._lateness_s = lateness_ms / 1e3
        self._idle_ms = idle_ms
        self._marks_s: dict[Partition, float | None] = dict.fromkeys(partitions)
        self._active_ms = dict.fromkeys(self._marks_s, now_ms)
        self._looked_ms = now_ms
        self._idle: set[Partition] = set()
        self.ended: set[Partition] = set()
        """The partitions in which nothing more is to come."""
        self.watermark_s: float | None = None

    def observe(self, partition: Partition, time_s: float) -> bool:
        """Raise the mark of a partition to the time of an event; return whether that raised it."""
        return self.raise_mark(partition, time_s - self._lateness_s)

    def raise_mark(self, partition: Partition, mark_s: float) -> bool:
        """Raise the mark of a partition; return whether it was lower before."""
        before = self._marks_s[partition]
        if before is not None and mark_s <= before:
            return False
        self._marks_s[partition] = mark_s
        return True

    def mark_active(self, partitions: Iterable[Partition], now_ms: float) -> None:
        """Mark partitions active that have messages."""
        self._skip_unwatched(now_ms)
        for partition in partitions:
            self._active_ms[partition] = now_ms
            self._idle.discard(partition)

    def mark_idle(self, behind: Collection[Partition], now_ms: float) -> None:
        """Mark partitions idle or active; those `behind` have messages that were not read yet."""
        self._idle |= self._quiet(behind, now_ms)
        self.mark_active(self._active_ms.keys() & behind, now_ms)

    @property
    def idle(self) -> set[Partition]:
        """The partitions that are idle and have not ended."""
        return self._idle - self.ended

    def newly_idle(self, behind: Collection[Partition], now_ms: float) -> set[Partition]:
        """Return the idle partitions and those that would become idle; none if none would.

        Only then does a check advance the watermark, past the idle ones as well.
        """
        quiet = self._quiet(behind, now_ms)
        return (quiet | self._idle) - self.ended if quiet - self._idle else set()

    def _quiet(self, behind: Collection[Partition], now_ms: float) -> set[Partition]:
        """Return the partitions that had no message for so long that they are idle."""
        self._skip_unwatched(now_ms)
        return {
            partition
            for partition, active_ms in self._active_ms.items()
            if partition not in behind and now_ms - active_ms >= self._idle_ms
        }

    def _skip_unwatched(self, now_ms: float) -> None:
        """Shift the times of activity by the time in which the process did not poll."""
        between_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if between_ms <= LOOKED_MS_MAX:
            return
        unseen_ms, least_ms = between_ms - LOOKED_MS_MAX, 0.0
        if between_ms > STOOD_MS:
            self._idle.clear()
            least_ms = now_ms - max(0, self._idle_ms - STOOD_MS)
        for partition, active_ms in self._active_ms.items():
            self._active_ms[partition] = min(now_ms, max(active_ms + unseen_ms, least_ms))

    def restart(self, now_ms: float) -> None:
        """Mark every partition active, with the full time until it is idle."""
        self._looked_ms = now_ms
        self._active_ms = dict.fromkeys(self._marks_s, now_ms)
        self._idle.clear()

    @property
    def all_ended(self) -> bool:
        """Whether every partition has ended."""
        return len(self.ended) == len(self._marks_s)

    def advanced(self) -> float | None:
        """Return the new watermark, in seconds; None if it is the old one."""
        quiet = self._idle | self.ended
        active = [mark for one, mark in self._marks_s.items() if one not in quiet]
        if None in active:
            return None
        known = [mark for mark in (active or self._marks_s.values()) if mark is not None]
        if not known:
            return None
        mark_s = min(known) if active else max(known)
        if self.watermark_s is not None and mark_s <= self.watermark_s:
            return None
        self.watermark_s = mark_s
        return mark_s

    def state(self) -> dict[str, Any]:
        """Return the marks, the ended partitions and the watermark as plain data."""
        return {
            "marks": [[*one, mark] for one, mark in sorted(self._marks_s.items())],
            "ended": [list(one) for one in sorted(self.ended)],
            "watermark": self.watermark_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load what `state` returned, of the partitions that are still read."""
        for topic, number, mark_s in state["marks"]:
            if (topic, number) in self._marks_s:
                self._marks_s[topic, number] = mark_s
        self.ended = {(t, n) for t, n in state["ended"] if (t, n) in self._marks_s}
        self.watermark_s = state["watermark"]
