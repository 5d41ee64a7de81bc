"""Each event a dot of its own, and each dot an event.

Each node counts its events 1, 2, 3, …. Where a log does not, an own entry is
wrong, an event is lost, or one is there twice; often several of these would do.
Of all readings the one with the fewest faults is taken: an event whose own
entry is missing or wrong goes into a hole that it fits (`ketal.places`), which
is then no hole. Events and holes are paired by augmenting paths (Berge, "Two
theorems in graph theory", 1957), so that none is left out that has a place.

The one rule: one cause, one finding. An event that has a place leaves no hole,
and what is missing in a row is one hole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from ketal.event import Dot
from ketal.execution import NONE, Everything, Execution, Stamped
from ketal.own_entries import Trouble, admitted
from ketal.places import FAULT, Places, Run, Survey
from ketal.readings import Move, Reading, Recount

_CHAIN = 100
"""So many events are moved at most to make room for one."""
_HOPELESS = 2 * FAULT
"""Who contradicts its place as much as that is not kept there."""
_ANY_PRICE = 1_000_000
_POOR = 2 * FAULT
"""What an event may cost in a hole, if there is no better place for it."""
_ROUNDS_MAX = 10
"""So often a line is searched for events that stand in the wrong place."""


@dataclass(slots=True, eq=False)
class _Mover:
    """An event that is to get another counter, with the runs that it may go into."""

    event: Stamped
    options: list[Run]
    rivals: bool = False
    """Whether another event with its dot could move in its stead."""


def give_dots(execution: Execution, readings: Mapping[str, Reading] | None = None) -> None:
    """Put each event at a counter of its line; report what is wrong with own entries.

    Parameters
    ----------
    execution : Execution
        Its events, as they were read.
    readings : mapping of str to Move or Recount, optional
        Nodes whose own entries are read so; those of others as costs least.
    """
    trouble = admitted(execution)
    for node, line in execution.lines.items():
        if line.top != len(line.counters):
            trouble.setdefault(node, Trouble())
    if trouble:
        survey = Survey(execution)
        for node in execution.lines:
            if node in trouble:
                of_node = _Node(execution, survey, node, trouble[node])
                reading = None if readings is None else readings.get(node)
                if isinstance(reading, Recount):
                    of_node.recount(reading)
                elif reading is not None:
                    of_node.settle_as(reading)
                else:
                    of_node.settle()
        execution.events.sort(key=lambda event: event.position)
    _report_holes(execution)


class _Node:
    """The events of one node that counts otherwise than 1, 2, 3, …."""

    def __init__(self, execution: Execution, survey: Survey, node: str, trouble: Trouble) -> None:
        self._execution = execution
        self._line = execution.lines[node]
        self._places = Places(execution, survey, node)
        self._trouble = trouble
        self._extras: list[tuple[Stamped, int]] = []
        self._sure = True

    def settle(self) -> None:
        """Give each of its events a counter, or report it."""
        released = self._clear()
        runs = self._places.runs()
        blank, strays = self._strays()
        strays += released
        self._sure = not blank or (len(blank) == 1 and not strays and not self._trouble.twins)
        movers = [_Mover(event, self._runs_for(event, runs)) for event in strays]
        # Who has the fewest runs to choose from goes first.
        movers.sort(key=lambda m: (len(m.options), m.event.position))
        self._put(movers + self._movers_of_twins(runs))
        self._put_last([event for event in strays if not event.counter])
        self._put_poorly([event for event in strays if not event.counter])
        self._put_blank(blank)
        self._put_last([event for event in strays + blank if not event.counter])
        self._put_back([event for event in released if not event.counter])
        for event, counter in self._extras:
            if event.counter == counter:
                self._report_extra(event)
        self._place_copies()

    def settle_as(self, move: Move) -> None:
        """Give its events the counters that they say, but for one; report that one."""
        events = list(self._trouble.strays)
        for same in self._trouble.twins.values():
            for event in same:
                if event.position != move.position:
                    self._line.at[event.counter] = event
            events += [event for event in same if event.position == move.position]
        last = self._line.at[self._line.top]
        if last.position == move.position:
            self._line.take(last)
            events.append(last)
        for event in events:
            if event.counter == move.counter:
                self._report_extra(event)
            else:
                self._renumber(event, move.counter, certain=True)
        self._place_copies()

    def recount(self, reading: Recount) -> None:
        """Give its events the counters of a reading; report those that say another one."""
        line = self._line
        events = {event.position: event for event in line.events()}
        for same in (self._trouble.strays, *self._trouble.twins.values()):
            events.update((event.position, event) for event in same)
        right = [event for at, event in events.items() if at not in reading.counters]
        line.at = {event.counter: event for event in right}
        line.settle()
        for at, (counter, sure) in sorted(reading.counters.items()):
            event = events[at]
            if event.counter == counter:
                self._report_extra(event)
            else:
                self._renumber(event, counter, certain=sure)
        self._place_copies()

    def _strays(self) -> tuple[list[Stamped], list[Stamped]]:
        """Return the events without a dot: those that may be anywhere, and the others."""
        blank: list[Stamped] = []
        others: list[Stamped] = []
        for event in self._trouble.strays:
            # Where the file does not say it, nothing does of an event that knows nothing.
            says_nothing = isinstance(event.unknown, Everything) and not self._places.ordered
            (blank if says_nothing else others).append(event)
        return blank, others

    def _clear(self) -> list[Stamped]:
        """Move or take out what has a dot that cannot be its own; return what was taken out.

        What was wrong may have hidden what is wrong with its neighbour.
        """
        released: list[Stamped] = []
        for _ in range(_ROUNDS_MAX):
            # First what fits elsewhere as if it had always been there.
            if self._move_misplaced(FAULT // 2):
                continue
            taken = self._release()
            released += taken
            if not taken and not self._move_misplaced(_ANY_PRICE):
                break
        for event in released:
            event.counter = 0
        return released

    def _runs_for(self, event: Stamped, runs: list[Run]) -> list[Run]:
        options = self._places.options(event, runs)
        last = Run(self._line.top + 1, self._line.top + 1)
        poor = bool(options) and options[0][0] >= FAULT // 2
        if not event.counter and poor and not self._places.price(event, last):
            # Better last than in a hole that it does not fit.
            return []
        return [run for _, run in options]

    def _release(self) -> list[Stamped]:
        """Take events out that share a dot which is none of theirs."""
        released: list[Stamped] = []
        for counter, same in list(self._trouble.twins.items()):
            prices = []
            for event in same:
                self._line.at[counter] = event
                prices.append(self._places.price_of_staying(event))
            self._line.at[counter] = same[0]
            if len(same) > 1 and (min(prices) >= _HOPELESS or self._all_fit_elsewhere(same)):
                self._line.take(same[0])
                del self._trouble.twins[counter]
                released += same
        return released

    def _all_fit_elsewhere(self, same: list[Stamped]) -> bool:
        """Return whether events stand together behind a hole, and there are others for all."""
        counter = same[0].counter
        if counter != self._line.top or counter - 1 in self._line.at:
            return False
        single = [run for run in self._places.runs() if run.room == 1]
        found: set[Run] = set()
        for event in same:
            options = self._places.options(event, single, FAULT // 2)
            found.update(run for _, run in options[: len(same)])
        return len(found) >= len(same)

    def _put_back(self, released: list[Stamped]) -> None:
        """Let events that found no other place share their dot after all."""
        for event in released:
            event.counter = event.clock[event.node]
            if event.counter in self._line.at:
                self._extras.append((event, event.counter))
            else:
                self._line.put(event)

    # --- own entries that name a free counter, but the wrong one ---------------------------

    def _move_misplaced(self, price_max: int) -> bool:
        """Move events that contradict their place, or stand alone behind a hole, to a hole."""
        runs = self._places.runs()
        if not any(run.room == 1 for run in runs):
            return False
        gains = []
        for event in self._suspects():
            gain, run = self._gain(event, runs, price_max)
            if run is not None and gain > 0:
                gains.append((-gain, event.position, event))
        for _, _, event in sorted(gains, key=lambda g: g[:2]):
            # What was moved before may have taken the place.
            gain, run = self._gain(event, runs, price_max)
            if gain > 0 and run is not None:
                rivals = len(self._elsewhere(event, runs, price_max)) > 1
                runs.remove(run)
                self._line.take(event)
                self._renumber(event, run.first, certain=not rivals)
        return bool(gains)

    def _suspects(self) -> list[Stamped]:
        """Return the events that a neighbour contradicts, or that stand alone.

        Those that share their counter with others are not among them.
        """
        found: dict[int, Stamped] = {}
        before: Stamped | None = None
        for event in self._line.events():
            if before is not None and self._places.disagree(before, event):
                found[before.position] = before
                found[event.position] = event
            before = event
        alone = self._stands_alone()
        if alone is not None:
            found[alone.position] = alone
        return [event for event in found.values() if event.counter not in self._trouble.twins]

    def _stands_alone(self) -> Stamped | None:
        """Return the last event, if it leaves a hole before it and would close the only other.

        Nobody may know of what is missing before it, for that would be lost. And its
        line must fit the other hole at least as well: events in their order with two
        holes are events of which some were lost.
        """
        gaps = list(islice(self._line.gaps(), 3))
        event = self._line.at.get(self._line.top)
        if event is None or len(gaps) != 2 or gaps[1][1] != event.counter - 1:
            return None
        here, there = Run(event.counter, event.counter), Run(*gaps[0])
        if self._places.misorder(event, there) > self._places.misorder(event, here):
            return None
        first = gaps[1][0]
        named = (k.clock[event.node] for k in self._execution.knowers(event.node, first))
        return None if any(first <= entry <= event.counter for entry in named) else event

    def _elsewhere(self, event: Stamped, runs: list[Run], price_max: int) -> list[tuple[int, Run]]:
        near = event.counter - 1, event.counter + 1
        # What has nothing behind it any more is no hole.
        top = self._line.top if self._line.top != event.counter else near[0]
        single = [r for r in runs if r.room == 1 and r.first not in near and r.first < top]
        return self._places.options(event, single, price_max)

    def _gain(self, event: Stamped, runs: list[Run], price_max: int) -> tuple[int, Run | None]:
        """Return what is saved by moving an event, and where to."""
        options = self._elsewhere(event, runs, price_max)
        if not options:
            return 0, None
        line, counter = self._line, event.counter
        price, run = options[0]
        below, above = counter == 1 or counter - 1 in line.at, counter + 1 in line.at
        # It leaves a hole, or takes the one before it with it, and fills another.
        holes = 1 + (counter == line.top and not below) - (below and above)
        staying = self._places.price_of_staying(event)
        return staying + holes * FAULT - FAULT - price, run

    # --- two events with one dot -------------------------------------------------------------

    def _movers_of_twins(self, runs: list[Run]) -> list[_Mover]:
        """Return of each dot the events that better had another; the rest is there twice."""
        movers = []
        for counter, same in sorted(self._trouble.twins.items()):
            if len(same) == 1:
                continue
            prices, options = [], {}
            for event in same:
                keeper = self._line.at[counter] = same[1] if event is same[0] else same[0]
                found = options[event.position] = self._options_of(event, keeper, runs)
                if found:
                    price = self._places.price_of_moving(event, found[0], keeper)
                else:
                    price = FAULT + self._places.price_of_staying(keeper)
                prices.append((-price, event.position, event))
            # Who goes at the highest price stays; of two alike, the first in the file.
            prices.sort(key=lambda price: price[:2])
            keeper = self._line.at[counter] = prices[0][2]
            rivals = bool(options[keeper.position]) and prices[1][0] - prices[0][0] < FAULT // 2
            for event in same:
                if event is keeper:
                    continue
                self._extras.append((event, counter))
                if found := options[event.position]:
                    movers.append(_Mover(event, found, rivals))
        return movers

    def _options_of(self, event: Stamped, keeper: Stamped, runs: list[Run]) -> list[Run]:
        """Return the runs that one of two events with a dot may go into instead."""
        return [
            run
            for _, run in self._places.options(event, runs)
            # A hole of several events stays a hole, so the move must explain more.
            if run.room == 1 or run.first == event.counter + 1 or event.clock != keeper.clock
        ]

    def _report_extra(self, event: Stamped) -> None:
        keeper = self._line.at[event.counter]
        where = f" (the other one is {keeper.place})" if keeper.file else ""
        if event.clock == keeper.clock:
            code = "A005"
            message = f"two events with other content have the dot {event.dot}{where}"
        else:
            code = "A003"
            message = (
                f"the own entry of {event.node} does not increase: "
                f"another event has the dot {event.dot} and another clock{where}"
            )
        self._execution.report(code, event, message, dot=event.dot)

    # --- into the holes ------------------------------------------------------------------------

    def _put(self, movers: list[_Mover]) -> None:
        """Put as many events into runs as have a place there."""
        held: dict[Run, list[_Mover]] = {}
        for mover in movers:
            _augment(mover, held, set())
        for run, members in held.items():
            of_event = {mover.event.position: mover for mover in members}
            events = self._places.in_order([mover.event for mover in members])
            forced = len(events) == run.room and self._places.forced(events)
            for counter, event in enumerate(events, run.first):
                mover = of_event[event.position]
                certain = forced and len(mover.options) == 1 and not mover.rivals
                self._renumber(event, counter, certain=certain)

    def _put_poorly(self, strays: list[Stamped]) -> None:
        """Put events where least contradicts them, if that is in a hole."""
        for event in strays:
            options = self._places.options(event, self._places.runs(), _POOR)
            if options:
                self._renumber(event, options[0][1].first, certain=False)

    def _put_blank(self, strays: list[Stamped]) -> None:
        """Put events whose clocks say nothing into what is left of the holes."""
        free = (c for first, last in list(self._line.gaps()) for c in range(first, last + 1))
        for event, counter in zip(strays, list(islice(free, len(strays))), strict=False):
            self._renumber(event, counter, certain=len(strays) == 1 and self._only(counter))

    def _only(self, counter: int) -> bool:
        """Return whether nothing else is missing."""
        return list(self._line.gaps()) == [(counter, counter)]

    def _put_last(self, strays: list[Stamped]) -> None:
        """Put events that fit no hole behind the last event.

        If something is missing before it, nothing may speak against it.
        """
        whole = self._line.top == len(self._line.counters)
        for event in self._places.in_order(strays):
            counter = self._line.top + 1
            run = Run(counter, counter)
            fits = self._places.fits(event, run)
            if fits and (whole or not self._places.price(event, run)):
                self._renumber(event, counter, certain=whole and len(strays) == 1)

    def _renumber(self, event: Stamped, counter: int, *, certain: bool) -> None:
        was = event.clock.get(event.node, 0)
        event.counter = counter
        self._line.put(event)
        certain &= self._sure
        if was == counter:
            return
        if not was:
            before = self._execution.before(event)
            if event.read.clock == {} and (before is None or not before.others()):
                # Where nothing is known yet, a clock that says nothing is right.
                event.unknown = NONE
            for code in ("A001", "A002"):
                finding = self._execution.found(code, event)
                if finding is not None:
                    finding.dot, finding.certain = event.dot, certain
            return
        how = "does not increase" if was < counter else "is too large"
        message = f"the own entry of {event.node} {how}: it is {was} where {counter} is missing"
        if found := self._execution.found("A003", event):
            # It was moved before, to where it stood wrong again.
            self._execution.withdraw(found)
            certain = False
        self._execution.report("A003", event, message, dot=event.dot, certain=certain)

    def _place_copies(self) -> None:
        """Tell a line written twice from an event that says what the one before it said.

        Only a hole right where the second one stands in the file is evidence enough.
        """
        for event in self._trouble.copies:
            place = event.counter + 1
            run = Run(place, place)
            fits = (
                self._places.ordered
                and place not in self._line.at
                and place < self._line.top
                and not self._places.misorder(event, run)
                and self._places.fits(event, run)
            )
            if fits:
                self._execution.events.append(event)
                self._renumber(event, place, certain=place + 1 in self._line.at)
            else:
                self._execution.duplicates += 1


def _augment(mover: _Mover, held: dict[Run, list[_Mover]], tried: set[Run], depth: int = 0) -> bool:
    """Find a run for an event, moving others that have another one."""
    for run in mover.options:
        if len(held.get(run, ())) < run.room:
            held.setdefault(run, []).append(mover)
            return True
    for run in mover.options if depth < _CHAIN else ():
        if run in tried:
            continue
        tried.add(run)
        for other in held[run]:
            if _augment(other, held, tried, depth + 1):
                held[run].remove(other)
                held[run].append(mover)
                return True
    return False


def _report_holes(execution: Execution) -> None:
    for node, line in execution.lines.items():
        for first, last in line.gaps():
            after = line.at[last + 1]
            what = f"{node}@{first} is"
            if last > first:
                what = f"{node}@{first} to {node}@{last} ({last - first + 1:,} events) are"
            message = f"{what} not in the log: a hole before {after.dot}"
            execution.report("A004", after, message, dot=Dot(node, first))
