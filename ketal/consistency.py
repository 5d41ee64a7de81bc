"""What keeps a set of stamped events from being one vector-clocked execution.

In an execution each node counts 1, 2, 3, …, and an event's clock is the join of
the clocks of all that it knows, with its own entry added (Mattern, "Virtual time
and global states of distributed systems", 1989). So a log is one exactly if

1. every dot from 1 to the node's last is there once,
2. every entry (m, v) of a clock names an event that is there, and
3. the clock of that event, and of the predecessor on the own node, is pointwise
   at most the own one. This is what "transitive" and "never backwards" mean, and
   it is enough to ask it of the events that an entry names.

Faults are found by what contradicts what, and blamed on as few entries of clocks
as explain it:

- An event whose own entry is wrong leaves a hole where it belongs; the hole
  that its clock and its line fit tells that it is not a lost event.
- Along a node, an entry for another one never falls. The longest non-falling
  subsequence of a column keeps what most events agree on; the rest is wrong.
- Of what contradicts each other then, the entry that takes part in most
  contradictions is blamed first, until none is left unexplained.

The one rule: one cause, one finding. An entry that is blamed is unknown from
then on: it accuses no other event.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ketal.clocks.vector import COUNTER_MAX
from ketal.event import Dot, Draft, Event, content
from ketal.outliers import RUN, outliers, runs

LOW, HIGH = "low", "high"
_KNOWERS = 4


@dataclass(slots=True, eq=False)
class Entry:
    """One event of the log under audit.

    Attributes
    ----------
    event : Event or Draft
        As it was read; a draft where its clock is no clock.
    file, line, position
        Where it stands; `position` counts the records.
    counter : int
        Its own entry, as it was read and later as it must be; 0 where unknown.
    clock : dict of str to int
        Its clock; entries of nodes that have left are restored in it.
    unknown : set of str
        The nodes whose entries are wrong, and so say nothing.
    """

    event: Event | Draft
    file: str
    line: int
    position: int
    counter: int
    clock: dict[str, int]
    unknown: set[str] = field(default_factory=set)

    @property
    def node(self) -> str:
        """Return the node where it happened."""
        return self.event.node

    @property
    def dot(self) -> Dot:
        """Return its dot, as it must be."""
        return Dot(self.event.node, self.counter)


@dataclass(slots=True)
class Finding:
    """One fault: what is wrong, where, and which entries are to blame.

    Attributes
    ----------
    blamed : dict of str to str
        Node → `low` or `high`: the entries of the event's clock that are wrong.
    certain : bool
        Whether the dot can be no other one.
    """

    code: str
    entry: Entry
    dot: Dot | None
    message: str
    blamed: dict[str, str] = field(default_factory=dict)
    certain: bool = True


class Line:
    """The events of one node, by their counters."""

    def __init__(self) -> None:
        self.at: dict[int, Entry] = {}
        self.counters: list[int] = []

    def settle(self) -> None:
        """Sort the counters, after events were put in or out."""
        self.counters = sorted(self.at)

    def upto(self, counter: int) -> Entry | None:
        """Return the event with this counter, else the last before it."""
        found = self.at.get(counter)
        if found is None and (rank := bisect_right(self.counters, counter)):
            found = self.at[self.counters[rank - 1]]
        return found

    def above(self, counter: int) -> Entry | None:
        """Return the first event with a greater counter."""
        rank = bisect_right(self.counters, counter)
        return self.at[self.counters[rank]] if rank < len(self.counters) else None

    def entries(self) -> list[Entry]:
        """Return the events in the node's order."""
        return [self.at[counter] for counter in self.counters]

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last counter of each run of missing ones."""
        before = 0
        for counter in self.counters:
            if counter > before + 1:
                yield before + 1, counter - 1
            before = counter


class Execution:
    """One execution under audit.

    Parameters
    ----------
    entries : iterable of Entry
        Its events in file order.
    retired : iterable of str
        Nodes that left: an entry that is absent for one is read as the last
        value known (DESIGN 5).
    """

    def __init__(self, entries: Iterable[Entry], retired: Iterable[str] = ()) -> None:
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.duplicates = 0
        self.lines: dict[str, Line] = {}
        self._strays: list[Entry] = []
        self._copies: list[Entry] = []
        self._twins: list[list[Entry]] = []
        self._file_orders: dict[str, _FileOrder] = {}
        self._knowers: dict[tuple[str, int], list[Entry]] | None = None
        self._by_event: dict[tuple[int, str], Finding] = {}
        self._admit(entries)
        self._place_strays()
        self._place_twins()
        self._place_copies()
        self._place_outliers()
        if left := set(retired):
            self._restore(left)
        self._find_holes()
        self._find_unknown_references()
        self._find_falls()
        self._find_contradictions()

    # --- identity: one event a dot, no dot without an event ----------------------

    def _admit(self, entries: Iterable[Entry]) -> None:
        twins: dict[tuple[str, int], list[Entry]] = {}
        for entry in entries:
            if isinstance(entry.event, Draft):
                self._admit_draft(entry)
            line = self.lines.setdefault(entry.node, Line())
            self.entries.append(entry)
            if not entry.counter:
                self._strays.append(entry)
                continue
            first = line.at.setdefault(entry.counter, entry)
            if first is not entry:
                same = twins.setdefault((entry.node, entry.counter), [first])
                if any(_said(entry) == _said(other) for other in same):
                    self._copies.append(self.entries.pop())
                else:
                    same.append(entry)
        self._twins = [same for same in twins.values() if len(same) > 1]
        for line in self.lines.values():
            line.settle()

    def _admit_draft(self, entry: Entry) -> None:
        """Take what can be used of a clock that is none, and say what is wrong with it."""
        raw = entry.event.clock
        entries = raw if isinstance(raw, dict) else {}
        wrong = [str(m) for m, v in entries.items() if not (isinstance(m, str) and _fine(v))]
        entry.clock = {m: v for m, v in entries.items() if isinstance(m, str) and _fine(v) and v}
        entry.counter = entry.clock.get(entry.node, 0)
        entry.unknown = set(wrong) - {entry.node}
        if not entries:
            entry.unknown = _Everything()
            message = f"the event of {entry.node} has no vector clock"
            self.findings.append(Finding("A002", entry, None, message))
        elif entry.node in wrong:
            shown = repr(entries.get(entry.node))[:40]
            message = f"the own entry of {entry.node} is {shown}, which is no counter"
            self.findings.append(Finding("A002", entry, None, message))
        elif not entry.counter:
            what = "is zero" if entry.node in entries else "is missing"
            message = f"the own entry of {entry.node} {what}"
            self.findings.append(Finding("A001", entry, None, message))
        else:
            shown = repr(entries.get(wrong[0]))[:40] if wrong else "?"
            message = f"the entry of {wrong[0] if wrong else '?'} is {shown}, which is no counter"
            blamed = dict.fromkeys(sorted(entry.unknown), HIGH)
            self.findings.append(Finding("A002", entry, entry.dot, message, blamed))

    def knowers(self, node: str, counter: int) -> list[Entry]:
        """Return a few events of other nodes whose clocks name a dot."""
        if self._knowers is None:
            self._knowers = {}
            for entry in self.entries:
                for dot in entry.clock.items():
                    if dot[0] != entry.node:
                        found = self._knowers.setdefault(dot, [])
                        if len(found) < _KNOWERS:
                            found.append(entry)
        return self._knowers.get((node, counter), [])

    def file_order(self, node: str) -> _FileOrder:
        """Return the order in which a node's events stood when they were admitted."""
        if node not in self._file_orders:
            self._file_orders[node] = _FileOrder(self.lines[node])
        return self._file_orders[node]

    def _place_strays(self) -> None:
        """Give each event without an own entry the hole that it fits, if there is one."""
        strays: dict[str, list[Entry]] = {}
        for entry in self._strays:
            strays.setdefault(entry.node, []).append(entry)
        of_entry = {finding.entry.position: finding for finding in self.findings}
        for node, left in strays.items():
            places = _Places(self, node)
            options = {entry.position: places.fitting(entry) for entry in left}
            # Who has the fewest holes to choose from goes first.
            while left:
                entry = min(
                    left,
                    key=lambda e: (not options[e.position], len(options[e.position]), e.position),
                )
                left.remove(entry)
                fit = [p for p in options[entry.position] if p not in self.lines[node].at]
                if not fit:
                    continue
                entry.counter = fit[0]
                certain = len(fit) == 1 and places.single(fit[0])
                self._put(entry)
                finding = of_entry[entry.position]
                finding.dot, finding.certain = entry.dot, certain
                for other in left:
                    if entry.counter in options[other.position]:
                        options[other.position].remove(entry.counter)

    def _place_copies(self) -> None:
        """Tell a line written twice from an event that says what the one before it said.

        Only a hole right where the second one stands in the file is evidence enough.
        """
        for entry in self._copies:
            places = _Places(self, entry.node)
            place = places.best(entry) if places.ordered else None
            if place is None or place != entry.counter + 1:
                self.duplicates += 1
                continue
            self.entries.append(entry)
            self._renumber(entry, place)
        self.entries.sort(key=lambda e: e.position)

    def _place_twins(self) -> None:
        """Tell an event whose own entry did not increase from one that is there twice."""
        for same in self._twins:
            line = self.lines[same[0].node]
            counter = same[0].counter
            while len(same) > 1:
                places = _Places(self, same[0].node)
                options = []
                for entry in same:
                    keeper = next(other for other in same if other is not entry)
                    line.at[counter] = keeper
                    place = places.best(entry)
                    if place is None:
                        continue
                    score = (
                        places.misfit(entry, place) + places.misfit(keeper, counter),
                        places.misorder(entry, place) + places.misorder(keeper, counter),
                        -entry.position if place > counter else entry.position,
                    )
                    options.append((score, place, entry))
                if not options:
                    break
                _, place, entry = min(options, key=lambda option: option[0])
                same.remove(entry)
                line.at[counter] = same[0]
                self._renumber(entry, place)
            self._keep_one(same, line, counter)

    def _renumber(self, entry: Entry, place: int) -> None:
        was = entry.counter
        certain = _Places(self, entry.node).single(place)
        entry.counter = place
        self._put(entry)
        how = "does not increase" if was < place else "is too large"
        message = f"the own entry of {entry.node} {how}: it is {was} where {place} is missing"
        self.findings.append(Finding("A003", entry, entry.dot, message, certain=certain))

    def _keep_one(self, same: list[Entry], line: Line, counter: int) -> None:
        """Keep the event of a dot that fits best, and report the others."""
        places = _Places(self, same[0].node)
        keeper = min(
            same, key=lambda e: (places.misfit(e, counter), places.misorder(e, counter), e.position)
        )
        line.at[counter] = keeper
        for entry in same:
            if entry is keeper:
                continue
            where = f" (the other one is {_place(keeper)})" if keeper.file else ""
            if entry.clock == keeper.clock:
                message = f"two events with other content have the dot {entry.dot}{where}"
                self.findings.append(Finding("A005", entry, entry.dot, message))
            else:
                message = (
                    f"the own entry of {entry.node} does not increase: "
                    f"another event has the dot {entry.dot} and another clock{where}"
                )
                self.findings.append(Finding("A003", entry, entry.dot, message))

    def _place_outliers(self) -> None:
        """Find events behind a hole that belong into an earlier one."""
        for node, line in self.lines.items():
            gaps = list(line.gaps())
            if len(gaps) < 2:
                continue
            for _, last in reversed(gaps):
                entry = line.at.get(last + 1)
                if entry is None:
                    continue
                places = _Places(self, node)
                if not places.misfit(entry, last + 1) + places.misorder(entry, last + 1):
                    continue
                del line.at[entry.counter]
                place = _Places(self, node).best(entry)
                if place is not None and place < entry.counter - 1:
                    self._renumber(entry, place)
                else:
                    self._put(entry)

    def _put(self, entry: Entry) -> None:
        line = self.lines[entry.node]
        line.at[entry.counter] = entry
        line.settle()

    def _find_holes(self) -> None:
        for node, line in self.lines.items():
            for first, last in line.gaps():
                after = line.at[last + 1]
                what = f"{node}@{first}"
                if last > first:
                    what = f"{what} to {node}@{last} ({last - first + 1:,} events) are"
                else:
                    what = f"{what} is"
                message = f"{what} not in the log: a hole before {after.dot}"
                self.findings.append(Finding("A004", after, Dot(node, first), message))

    # --- membership ----------------------------------------------------------------

    def _restore(self, left: set[str]) -> None:
        """Read absent entries of nodes that left as the last value known there."""
        for entry in self.in_causal_order():
            if not any(node not in entry.clock for node in left):
                continue
            restored = dict(entry.clock)
            for known in self.knowns(entry):
                for node in left - entry.clock.keys() - {entry.node}:
                    if known.clock.get(node, 0) > restored.get(node, 0):
                        restored[node] = known.clock[node]
            entry.clock = restored

    def knowns(self, entry: Entry) -> Iterator[Entry]:
        """Yield the events that an event's clock names, its predecessor first."""
        line = self.lines[entry.node]
        before = line.upto(entry.counter - 1)
        if before is not None and before is not entry:
            yield before
        for node, counter in entry.clock.items():
            if node != entry.node and node not in entry.unknown and node in self.lines:
                known = self.lines[node].upto(counter)
                if known is not None:
                    yield known

    def settled(self) -> list[Entry]:
        """Return the events that have a dot of their own, node by node."""
        return [entry for line in self.lines.values() for entry in line.entries()]

    def in_causal_order(
        self, extra: Mapping[int, Sequence[Entry]] | None = None
    ) -> Iterator[Entry]:
        """Yield the events, each after those that its clock names.

        Parameters
        ----------
        extra : mapping of int to sequence of Entry
            By position, events that come before as well. Where clocks contradict
            each other the order is that of the walk.
        """
        more = extra or {}
        done: set[int] = set()
        for root in self.settled():
            if root.position in done:
                continue
            done.add(root.position)
            stack = [(root, self._before(root, more))]
            while stack:
                entry, rest = stack[-1]
                deeper = next((e for e in rest if e.position not in done), None)
                if deeper is None:
                    yield entry
                    stack.pop()
                else:
                    done.add(deeper.position)
                    stack.append((deeper, self._before(deeper, more)))

    def _before(self, entry: Entry, more: Mapping[int, Sequence[Entry]]) -> Iterator[Entry]:
        yield from self.knowns(entry)
        yield from more.get(entry.position, ())

    # --- references ------------------------------------------------------------------

    def _find_unknown_references(self) -> None:
        """Find entries that name an event or a node that the log does not have."""
        carried: dict[str, list[tuple[Entry, int]]] = {}
        for node, line in self.lines.items():
            entries = line.entries()
            for rank, entry in enumerate(entries):
                for name, counter in entry.clock.items():
                    if name == node or name in entry.unknown or not self._beyond(name, counter):
                        continue
                    # Who knows of the event either took the reference over, or refutes it.
                    later = entries[rank + 1 : rank + 3] or self.knowers(node, entry.counter)
                    if later and all(e.clock.get(name, 0) < counter for e in later):
                        self._blame_reference(entry, name, counter)
                    else:
                        carried.setdefault(name, []).append((entry, counter))
        for name in sorted(carried):
            self._report_carried(name, carried[name])

    def _beyond(self, node: str, counter: int) -> bool:
        line = self.lines.get(node)
        return line is None or not line.counters or counter > line.counters[-1]

    def _blame_reference(self, entry: Entry, name: str, counter: int, more: str = "") -> None:
        entry.unknown.add(name)
        if self.lines.get(name) is None or not self.lines[name].counters:
            code, why = "A007", f"no event of {name} is in the log"
        else:
            last = self.lines[name].counters[-1]
            code, why = "A006", f"the last event of {name} in the log is {name}@{last}"
        message = f"{entry.dot} refers to {name}@{counter}, but {why}{more}"
        # What several events say of a lost one is no mistake of theirs.
        self._add(code, entry, message, {} if more else {name: HIGH})

    def _report_carried(self, name: str, references: list[tuple[Entry, int]]) -> None:
        """Report references that later events share at the event that made them first.

        What one node learned from a lost event it hands on, so they have one cause.
        An event that nobody knows of handed nothing on, and is reported by itself.
        """
        shared: list[tuple[Entry, int]] = []
        alone: list[tuple[Entry, int]] = []
        for entry, counter in references:
            (alone if self._unheard(entry) else shared).append((entry, counter))
        dots = {counter for _, counter in shared}
        top = max(dots, default=0)
        singles: dict[int, list[tuple[Entry, int]]] = {}
        for entry, counter in alone:
            if top and counter <= top:
                shared.append((entry, counter))
            else:
                singles.setdefault(counter, []).append((entry, counter))
        for group in ([shared] if shared else []) + list(singles.values()):
            first, counter = min(group, key=lambda r: (_sum_without(r[0], name), r[0].position))
            more = ""
            if len(group) > 1:
                more = f"; {len(group):,} events in all refer to {name} beyond what there is"
            for entry, _ in group:
                entry.unknown.add(name)
            self._blame_reference(first, name, counter, more)

    def _unheard(self, entry: Entry) -> bool:
        last = self.lines[entry.node].counters[-1] == entry.counter
        return last and not self.knowers(entry.node, entry.counter)

    # --- columns: an entry never falls along a node -------------------------------------

    def _find_falls(self) -> None:
        falling: set[tuple[str, str]] = set()
        for node, line in self.lines.items():
            last: dict[str, int] = {}
            for entry in line.entries():
                clock = entry.clock
                for name, counter in last.items():
                    if clock.get(name, 0) < counter and name not in entry.unknown and name != node:
                        falling.add((node, name))
                if entry.unknown:
                    last = {**last, **{m: v for m, v in clock.items() if m not in entry.unknown}}
                else:
                    last = clock
        if not falling:
            return
        blame = self._blame_counts()
        for node, name in sorted(falling):
            self._judge_column(node, name, blame)

    def _blame_counts(self) -> dict[tuple[int, str], int]:
        """Count the contradictions that each entry of each clock takes part in."""
        counts: dict[tuple[int, str], int] = {}
        for known, entry, name in self._contradictions():
            for suspect in _suspects(known, entry, name):
                counts[suspect] = counts.get(suspect, 0) + 1
        return counts

    def _judge_column(self, node: str, name: str, blame: dict[tuple[int, str], int]) -> None:
        column = [e for e in self.lines[node].entries() if name not in e.unknown]
        values = [e.clock.get(name, 0) for e in column]
        weights = [1_000 - 50 * min(9, blame.get((e.position, name), 0)) for e in column]
        wrong = outliers(values, weights)
        kept = sorted(set(range(len(column))) - set(wrong))
        for run in runs(wrong, values):
            rank = bisect_left(kept, run[0])
            before = column[kept[rank - 1]] if rank else None
            after = column[kept[rank]] if rank < len(kept) else None
            low = before is not None and values[run[0]] < before.clock.get(name, 0)
            for at in run:
                column[at].unknown.add(name)
            if len(run) >= RUN and not low and after is not None:
                # That many agree with each other: the one after them has lost what they knew.
                self._report_fall(after, column[run[-1]], name, LOW)
            elif low and before is not None:
                self._report_fall(column[run[0]], before, name, LOW)
            elif after is not None:
                self._report_spike(column[run[0]], after, name)

    def _report_fall(self, entry: Entry, before: Entry, name: str, side: str) -> None:
        message = (
            f"the entry of {name} goes backwards: it is {entry.clock.get(name, 0)} at {entry.dot} "
            f"and was {before.clock.get(name, 0)} at {before.dot}"
        )
        self._add("A010", entry, message, {name: side})

    def _report_spike(self, entry: Entry, after: Entry, name: str) -> None:
        counter = entry.clock.get(name, 0)
        known = self.lines[name].upto(counter) if name in self.lines else None
        lacks = next(iter(self._lacks(known, entry)), None) if known is not None else None
        if known is not None and lacks is not None:
            self._add("A008", entry, _not_transitive(known, entry, lacks), {name: HIGH})
            return
        message = (
            f"the entry of {name} goes backwards: it is {counter} at {entry.dot} "
            f"and {after.clock.get(name, 0)} at {after.dot}, which comes later"
        )
        self._add("A010", entry, message, {name: HIGH})

    # --- transitivity --------------------------------------------------------------------

    def _contradictions(self) -> Iterator[tuple[Entry, Entry, str]]:
        """Yield (f, e, g's node): e knows f, f knows g, and e does not."""
        lines = self.lines
        for node, line in lines.items():
            before: Entry | None = None
            for counter in line.counters:
                entry = line.at[counter]
                old: dict[str, int] = {}
                if before is not None:
                    for name in self._lacks(before, entry):
                        yield before, entry, name
                    # What the predecessor knew of it has checked already.
                    old = {} if before.unknown else before.clock
                for name, value in entry.clock.items():
                    if name == node or old.get(name) == value or name in entry.unknown:
                        continue
                    other = lines.get(name)
                    known = other.upto(value) if other is not None else None
                    if known is not None:
                        for lacked in self._lacks(known, entry):
                            yield known, entry, lacked
                before = entry

    def _lacks(self, known: Entry, entry: Entry) -> list[str]:
        """Return the nodes of which `known` knows more than `entry`, which knows it."""
        clock, node, other = entry.clock, entry.node, known.node
        out = []
        for name, value in known.clock.items():
            if value > clock.get(name, 0) or name == node:
                if name == other or name in known.unknown or name in entry.unknown:
                    continue
                if name != node or value >= entry.counter:
                    out.append(name)
        return out

    def _find_contradictions(self) -> None:
        """Blame the entries that take part in most contradictions, until all are explained."""
        cases = list(self._contradictions())
        if not cases:
            return
        by_suspect: dict[tuple[int, str], list[int]] = {}
        role: dict[tuple[int, str], tuple[int, str, Entry]] = {}
        for number, (known, entry, name) in enumerate(cases):
            for rank, suspect in enumerate(_suspects(known, entry, name)):
                by_suspect.setdefault(suspect, []).append(number)
                side, whose = ((LOW, entry), (HIGH, entry), (HIGH, known))[rank]
                if suspect not in role or rank < role[suspect][0]:
                    role[suspect] = rank, side, whose
        open_cases = set(range(len(cases)))
        heap = [(-len(of), role[s][0], role[s][2].position, s) for s, of in by_suspect.items()]
        heapq.heapify(heap)
        while open_cases:
            weight, rank, position, suspect = heapq.heappop(heap)
            left = [number for number in by_suspect[suspect] if number in open_cases]
            if not left:
                continue
            if len(left) < -weight:
                heapq.heappush(heap, (-len(left), rank, position, suspect))
                continue
            open_cases.difference_update(left)
            _, side, whose = role[suspect]
            known, entry, name = cases[left[0]]
            whose.unknown.add(suspect[1])
            self._add("A008", whose, _not_transitive(known, entry, name), {suspect[1]: side})

    # --- messages ----------------------------------------------------------------------------

    def find_unknown_sends(self, pairs: Iterable[tuple[Entry, Entry]]) -> None:
        """Report receives that do not know their send; `pairs` are (send, receive)."""
        for send, receive in pairs:
            if send.node == receive.node:
                knows = send.counter < receive.counter
            else:
                knows = receive.clock.get(send.node, 0) >= send.counter
            if knows or not send.counter or not receive.counter:
                continue
            # It explains what was found about the same entry.
            for code in ("A008", "A010"):
                found = self._by_event.get((receive.position, code))
                if found is not None and set(found.blamed) == {send.node}:
                    del self._by_event[receive.position, code]
                    self.findings.remove(found)
            receive.unknown.add(send.node)
            has = receive.clock.get(send.node, 0)
            message = f"{receive.dot} receives what {send.dot} sent and does not know it"
            if send.node != receive.node:
                message += f": its entry of {send.node} is {has}"
            self._add("A009", receive, message, {send.node: LOW})

    def _add(self, code: str, entry: Entry, message: str, blamed: dict[str, str]) -> None:
        found = self._by_event.get((entry.position, code))
        if found is not None:
            found.blamed |= blamed
            return
        finding = Finding(code, entry, entry.dot, message, blamed)
        self._by_event[entry.position, code] = finding
        self.findings.append(finding)


class _Places:
    """Where an event of a node could stand among the others."""

    def __init__(self, execution: Execution, node: str) -> None:
        self._execution = execution
        self._node = node
        self._line = execution.lines[node]
        self._line.settle()
        self._order = execution.file_order(node)

    def single(self, place: int) -> bool:
        """Return whether the hole at a place has room for one event only."""
        top = self._line.counters[-1] if self._line.counters else 0
        return place > top or (
            place + 1 in self._line.at and (place == 1 or place - 1 in self._line.at)
        )

    @property
    def ordered(self) -> bool:
        """Whether the node's events stand in the file in their order."""
        return self._order.reliable

    def best(self, entry: Entry) -> int | None:
        """Return the missing counter that an event fits; None if there is none."""
        return next(iter(self.fitting(entry)), None)

    def fitting(self, entry: Entry) -> list[int]:
        """Return the missing counters that an event fits, the nearest first."""
        options = [
            place
            for place in self._candidates(entry)
            if not self.misfit(entry, place) and not self.misorder(entry, place)
        ]
        return sorted(options, key=lambda place: (abs(place - entry.counter), place))

    def _candidates(self, entry: Entry) -> set[int]:
        line = self._line
        top = line.counters[-1] if line.counters else 0
        found: set[int] = set()
        by_line = self._order.places(entry)
        for place in by_line:
            if 0 < place <= top + 1 and place not in line.at:
                found.add(place)
        gaps = [first for first, _ in line.gaps()]
        handed_on = bool(self._execution.knowers(self._node, top + 1))
        if handed_on or not top:
            gaps.append(top + 1)
        total = _sum_without(entry, self._node)
        # Along a node the sums grow, so that one search leads to where the clock fits.
        rank = bisect_right(gaps, total, key=self._sum_before)
        found.update(gaps[max(0, rank - 6) : rank + 1])
        if entry.counter and top + 1 in found and not handed_on:
            # Nobody knows of an event after the last one; only more knowledge can tell.
            last = line.at[top] if top else None
            if last is not None and (last.clock.items() - {(self._node, top)}) >= (
                entry.clock.items() - {(self._node, entry.counter)}
            ):
                found.discard(top + 1)
        return found

    def _sum_before(self, place: int) -> int:
        before = self._line.upto(place - 1)
        return _sum_without(before, self._node) if before is not None else 0

    def misfit(self, entry: Entry, place: int) -> int:
        """Count the entries of its neighbours that contradict an event's at a place."""
        before, after = self._line.upto(place - 1), self._line.above(place)
        count = 0
        if before is not None and before is not entry:
            count += sum(
                value > entry.clock.get(name, 0)
                for name, value in before.clock.items()
                if name != self._node and name not in entry.unknown
            )
        if after is not None and after is not entry:
            count += sum(
                value > after.clock.get(name, 0)
                for name, value in entry.clock.items()
                if name != self._node
            )
        for knower in self._execution.knowers(self._node, place):
            if knower is not entry:
                count += sum(
                    value > knower.clock.get(name, 0)
                    for name, value in entry.clock.items()
                    if name not in (self._node, knower.node)
                )
        return count

    def misorder(self, entry: Entry, place: int) -> int:
        """Count the neighbours that stand on the wrong side in the file."""
        if not self._order.reliable:
            return 0
        before, after = self._line.upto(place - 1), self._line.above(place)
        return (before is not None and before.position > entry.position) + (
            after is not None and after.position < entry.position
        )


class _FileOrder:
    """The order of a node's events in the file, and whether it is the node's own."""

    def __init__(self, line: Line) -> None:
        self._entries = sorted(line.at.values(), key=lambda e: e.position)
        self._positions = [e.position for e in self._entries]
        falls = sum(a.counter > b.counter for a, b in pairwise(self._entries))
        # A few wrong own entries look like falls; lines that were shuffled have half of them.
        self.reliable = 10 * falls <= 3 * len(self._entries) or falls == 1 < len(self._entries) - 1

    def places(self, entry: Entry) -> list[int]:
        """Return the counters that the neighbours in the file leave to an event."""
        if not self.reliable:
            return []
        rank = bisect_left(self._positions, entry.position)
        before = [e for e in self._entries[max(0, rank - 2) : rank] if e is not entry]
        after = [e for e in self._entries[rank : rank + 3] if e is not entry]
        return [e.counter + 1 for e in before] + [e.counter - 1 for e in after]


# --- small things ----------------------------------------------------------------------------


class _Everything(set[str]):
    """The set of all names: of an event without a clock every entry is unknown."""

    def __contains__(self, name: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


def _fine(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNTER_MAX


def _said(entry: Entry) -> bytes:
    event = entry.event
    return content(event) if isinstance(event, Event) else repr(event).encode()


def _place(entry: Entry) -> str:
    return f"{entry.file}:{entry.line}"


def _sum_without(entry: Entry, node: str) -> int:
    return sum(entry.clock.values()) - entry.clock.get(node, 0)


def _suspects(known: Entry, entry: Entry, name: str) -> list[tuple[int, str]]:
    """Return the entries of which one is wrong: too low, or claiming too much."""
    out = []
    if name != entry.node:
        out.append((entry.position, name))
    else:
        # It cannot be the own entry: that one has been settled.
        out.append((entry.position, known.node))
    out.append((entry.position, known.node) if known.node != entry.node else out[0])
    out.append((known.position, name))
    return out


def _not_transitive(known: Entry, entry: Entry, name: str) -> str:
    value = known.clock[name]
    if name == entry.node:
        return f"{entry.dot} knows {known.dot}, which knows {name}@{value}: each before the other"
    return (
        f"{entry.dot} knows {known.dot}, which knows {name}@{value}, and {entry.dot} does not: "
        f"its entry of {name} is {entry.clock.get(name, 0)}"
    )
