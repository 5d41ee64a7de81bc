"""What keeps a set of stamped events from being one vector-clocked execution.

In an execution each node counts 1, 2, 3, …, and an event's clock is the join of
the clocks of all that it knows, with its own entry added (Mattern, "Virtual time
and global states of distributed systems", 1989). So a log is one exactly if

1. every dot from 1 to the node's last is there once (`ketal.dots`),
2. every entry (m, v) of a clock names an event that is there
   (`ketal.references`), and
3. the clock of that event, and of the predecessor on the own node, is pointwise
   at most the own one: this is what "transitive" and "never backwards" mean
   (`ketal.contradictions`).

Each stage takes the reading with the fewest faults, and leaves the next one a
log in which its own question is settled.

The one rule: one cause, one finding. An entry that is blamed is unknown from
then on: it accuses no other event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from ketal.contradictions import find_contradictions
from ketal.dots import give_dots
from ketal.execution import Execution, Stamped
from ketal.readings import Move, Reading, Recount, possible_moves, recounts
from ketal.references import find_unknown_references

_REREAD_MAX = 200_000
"""So many events are examined once more, in all readings together that are tried."""
_MISORDER = 3
"""So many faults a line in the wrong place is worth, where the file tells the order."""
_PAIRS = 12
"""From so many neighbours on, of which one in twenty may be wrong, the file tells the order."""

Pairs = Callable[[Execution], Iterable[tuple[Stamped, Stamped]]]
"""What tells the sends and receives of an execution."""


def examine(
    events: Sequence[Stamped], retired: Iterable[str] = (), pairs: Pairs | None = None
) -> Execution:
    """Return the execution that events are, with what is wrong with it.

    Parameters
    ----------
    events : sequence of Stamped
        In file order.
    retired : iterable of str
        Nodes that left: an entry that is absent or too low for one is read as the
        last value known (DESIGN 5).
    pairs : callable, optional
        The sends and receives; a receive must know its send.
    """
    return _Examination(events, frozenset(retired), pairs).best()


_State = tuple[int, dict[str, int], frozenset[str]]
_Answer = TypeVar("_Answer")


class _Examination:
    """Readings of one log.

    The stages one after another may misread an own entry whose line and clock say
    little: what it contradicts shows in a later stage only. So where there are
    several findings, each node is tried with all stages as it must have counted
    (`ketal.counting`), if that takes fewer faults of its own entries; and, where at
    most one of them can be wrong, in each reading of that one.
    """

    def __init__(
        self, events: Sequence[Stamped], left: frozenset[str], pairs: Pairs | None
    ) -> None:
        self._events = events
        self._left = left
        self._pairs = pairs
        self._tries = _REREAD_MAX // max(1, len(events))
        self._as_read = self._state()
        self._last: tuple[Mapping[str, Reading], Execution] | None = None

    def best(self) -> Execution:
        """Return the reading with the fewest findings, the stages' own before others."""
        execution = self._read({})
        if len(execution.findings) < 2:
            return execution
        wrong, pairs = _misorders(execution)
        ordered = pairs >= _PAIRS and 20 * wrong <= pairs
        best = _score(execution, ordered=ordered)
        lost = all(finding.code == "A004" for finding in execution.findings)
        candidates = self._recounts(execution)
        clocks = _contradictions(execution)
        readings, best = self._recounted(candidates, best, clocks, ordered=ordered)
        # That events are lost is what it looks like, if nothing explains it better.
        sure = {} if lost else self._moved(readings, best, ordered=ordered)
        if self._last is not None and self._last[0] == readings:
            execution = self._last[1]
        else:
            execution = self._read(readings)
        for node, certain in sure.items():
            move = readings[node]
            assert isinstance(move, Move), move
            for code in ("A001", "A002", "A003"):
                event = execution.lines[node].at.get(move.counter)
                finding = None if event is None else execution.found(code, event)
                if finding is not None:
                    finding.certain &= certain
        return execution

    def _recounts(self, execution: Execution) -> dict[str, Recount]:
        """Return the nodes whose own entries fewer faults explain than were found."""
        own: Counter[str] = Counter()
        clocks: set[str] = set()
        lost = set(execution.lines)
        for finding in execution.findings:
            node = finding.event.node
            if finding.code in ("A003", "A004", "A005"):
                own[node] += 1
            elif finding.code in ("A008", "A010"):
                clocks |= {node, *finding.blamed}
            if finding.code != "A004":
                lost.discard(node)
        if not own:
            return {}
        return {
            node: recount
            for node, recount in self._asked(recounts)
            if recount.faults < own[node] + (node in clocks and own[node] > 0)
            # Whether one event is last or fills a hole, the stages ask of clocks and lines.
            and (node not in lost or recount.faults > 1)
        }

    def _recounted(
        self,
        candidates: dict[str, Recount],
        best: tuple[int, int],
        contradictions: int,
        *,
        ordered: bool,
    ) -> tuple[dict[str, Reading], tuple[int, int]]:
        """Return the nodes that are better read as they must have counted, and the score."""
        readings: dict[str, Reading] = dict(candidates)
        if not candidates:
            return {}, best
        execution = self._read(readings)
        score = _score(execution, ordered=ordered)
        if score < best or (score[0] == best[0] and _contradictions(execution) < contradictions):
            return readings, score
        readings = {}
        for node, recount in candidates.items():
            if len(candidates) > 1 and self._tries > 0:
                self._tries -= 1
                score = _score(self._read({**readings, node: recount}), ordered=ordered)
                if score < best:
                    best, readings[node] = score, recount
        return readings, best

    def _moved(
        self, readings: dict[str, Reading], best: tuple[int, int], *, ordered: bool
    ) -> dict[str, bool]:
        """Add the moves that take fewer faults; return those nodes, and if no other does."""
        sure: dict[str, bool] = {}
        if not self._tries:
            return sure
        for node, choices in self._asked(possible_moves):
            if node in readings:
                continue
            if len(choices) > self._tries:
                break
            self._tries -= len(choices)
            found = []
            for move in choices:
                execution = self._read({**readings, node: move})
                # Of two as good, the one that is less out of order; of two alike, the later one.
                rank = _misorders(execution)[0], -move.position
                found.append((_score(execution, ordered=ordered), rank, move))
            score, _, move = min(found, default=(best, (0, 0), Move(-1, 0)))
            if score[0] < best[0] and score[1] <= best[1]:
                best, readings[node] = score, move
                sure[node] = [other for other, _, _ in found].count(score) == 1
        return sure

    def _state(self) -> list[_State]:
        """Return what an examination changes of its events."""
        return [(event.counter, event.clock, event.unknown) for event in self._events]

    def _fresh(self, state: list[_State]) -> Execution:
        for event, was in zip(self._events, state, strict=True):
            event.counter, event.clock, event.unknown = was
        return Execution(self._events)

    def _asked(self, question: Callable[[Execution], Iterable[_Answer]]) -> list[_Answer]:
        """Ask something of the log as it was read; what was found stays as it is."""
        now = self._state()
        answer = list(question(self._fresh(self._as_read)))
        self._fresh(now)
        return answer

    def _read(self, readings: Mapping[str, Reading]) -> Execution:
        """Return what the stages find, where some nodes' own entries are read as given."""
        execution = self._fresh(self._as_read)
        give_dots(execution, readings)
        find_unknown_references(execution)
        if self._left:
            _restore(execution, self._left)
        find_contradictions(execution)
        if self._pairs is not None:
            find_unknown_sends(execution, self._pairs(execution))
        self._last = dict(readings), execution
        return execution


def _score(execution: Execution, *, ordered: bool) -> tuple[int, int]:
    """Return how many faults a reading has, and how many that are no holes.

    Each entry that is blamed is one. A line in the wrong place of a file that has
    each node's order weighs more.
    """
    faults = sum(max(1, len(finding.blamed)) for finding in execution.findings)
    if ordered:
        faults += _MISORDER * _misorders(execution)[0]
    return faults, faults - sum(finding.code == "A004" for finding in execution.findings)


def _contradictions(execution: Execution) -> int:
    """Return how many findings are about clocks that contradict each other."""
    return sum(finding.code in ("A008", "A010") for finding in execution.findings)


def _misorders(execution: Execution) -> tuple[int, int]:
    """Return how many neighbours on a line stand in the wrong order in the file; of how many."""
    pairs = [pair for line in execution.lines.values() for pair in pairwise(line.events())]
    return sum(before.position > after.position for before, after in pairs), len(pairs)


def _restore(execution: Execution, left: frozenset[str]) -> None:
    """Read the entries of nodes that left as the last value known there.

    A node that dropped an entry may get an older one back with any message, so an
    entry that is too low is raised as well.
    """
    for event in execution.in_causal_order():
        restored = dict(event.clock)
        for known in execution.knowns(event):
            for name in left & known.clock.keys():
                if known.clock[name] > restored.get(name, 0) and name != event.node:
                    restored[name] = known.clock[name]
        if restored != event.clock:
            event.clock = restored


def _is_placed(execution: Execution, event: Stamped) -> bool:
    """Return whether an event's dot is known for certain."""
    findings = (execution.found(code, event) for code in ("A001", "A002", "A003"))
    return event.counter > 0 and all(f is None or f.certain for f in findings)


def find_unknown_sends(execution: Execution, pairs: Iterable[tuple[Stamped, Stamped]]) -> None:
    """Report receives that do not know their send; `pairs` are (send, receive)."""
    for send, receive in pairs:
        if send.node == receive.node:
            knows = send.counter < receive.counter
        else:
            knows = receive.clock.get(send.node, 0) >= send.counter
        if knows or not (_is_placed(execution, send) and _is_placed(execution, receive)):
            continue
        found = [execution.found(code, receive) for code in ("A008", "A010")]
        about = [finding for finding in found if finding and send.node in finding.blamed]
        if send.node in receive.unknown and not about:
            # The entry is wrong in another way.
            continue
        # It explains what was found about the same entry.
        for finding in about:
            if finding.blamed == {send.node}:
                execution.withdraw(finding)
        receive.unknown |= {send.node}
        message = f"{receive.dot} receives what {send.dot} sent and does not know it"
        if send.node != receive.node:
            message += f": its entry of {send.node} is {receive.clock.get(send.node, 0)}"
        execution.report("A009", receive, message, dot=receive.dot, blamed={send.node})
