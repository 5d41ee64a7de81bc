"""Searches the partial matches of a `find any`, whose engine keeps events only.

The one rule: a partial match is one that the offered event could have continued.
"""

from __future__ import annotations

from collections.abc import Iterator

from ketal.engine.configurations import Configuration, Seen
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.findings import Taken
from ketal.engine.find.windows import MatchWindow
from ketal.engine.machine import Machine, step
from ketal.explanation.observed_run import LiveRun, ObservedRun, Offer
from ketal.model.events.happened_before import happened_before


def partial_matches(run: ObservedRun, offer: Offer) -> Iterator[LiveRun]:
    """Yield the partial matches of a `find any` before an event, those of later events first."""
    machine, offered = run.machine, run.observed.offered(offer.scope).values()
    breakers, window = Breakers(machine), MatchWindow(machine)
    if machine.automaton.nots:
        for seen in offered:
            breakers.add(seen)
    todo: list[tuple[Configuration, Taken]] = [(machine.start(), ())]
    while todo:
        configuration, taken = todo.pop()
        yield run.observed.live_run(configuration, taken)
        earlier = [seen for _, seen in taken]
        for seen in offered:
            if not may_follow(machine, seen, offer.seen) or not all(
                may_follow(machine, one, seen) for one in earlier
            ):
                continue
            places = [window.position(one) for one in (*earlier, seen, offer.seen)]
            if max(places) - min(places) >= window.length:
                continue
            at = configuration
            if earlier:
                at = breakers.flagged(configuration, earlier[-1], seen)
            todo += [
                (after, (*taken, (group, seen)))
                for group, after in step(machine, at, seen)
                if machine.can_continue[after.state]
            ]


def may_follow(machine: Machine, before: Seen, after: Seen) -> bool:
    """Return whether one event may follow another in a match."""
    if machine.arrival:
        return before.place < after.place
    return before.dot != after.dot and not happened_before(after.event, before.event)
