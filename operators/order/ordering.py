"""The live CausalOrder: one queue for one `order CausalOrder(...)` (DESIGN 5).

Events go in as they arrive, distinct and under the names of their incarnations
(what is done before is `ketal.operators.membership.members`); out come steps: what is
released, its clock restored, which dots are lost, what is late, what found no
room. Time is an argument: event times and watermarks. `docs/ordering.md` says
what each policy and option means, and what is decided where the design leaves
it open.

The one rule: every event that goes in comes out once, as released, late or
refused, or is held back and listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ketal.model import syntax
from ketal.model.event import Dot, Event
from ketal.model.limits import DEFAULT, Limits
from ketal.operators.membership.clock_restoration import Restorer
from ketal.operators.order.eager import Eager, Within
from ketal.operators.order.frontier import Frontier
from ketal.operators.order.hold_back import Settings
from ketal.operators.order.released import Out, Released, Step, StreamTime
from ketal.operators.order.total import Key, Total
from ketal.operators.topology.domain_order import Territory

__all__ = ["Ordering", "Released", "Step", "nonsense"]

Policy = Literal["eager", "total", "frontier"]
_POLICIES: dict[Policy, type[Eager | Total | Frontier]] = {
    "eager": Eager,
    "total": Total,
    "frontier": Frontier,
}


def nonsense(order: syntax.Order) -> tuple[str, str] | None:
    """Return why the options of an order make no sense together, and a hint; None if they do."""
    options = {
        "total": order.total,
        "nodes": order.nodes is not None,
        "gap": order.gap is not None,
        "idle": order.idle is not None,
        "frontier": order.frontier is not None,
        "overflow": order.overflow is not None,
    }
    given = [name for name, there in options.items() if there]
    if order.kind == "arrival":
        if given:
            return f"`{given[0]}` is an option of CausalOrder", "write `order CausalOrder(...)`"
        return None
    if order.frontier is not None:
        reasons = {
            "total": "releases by time, not when every node was heard",
            "nodes": "waits for time, not for nodes",
            "gap": "waits for no dot, so none can be lost",
            "idle": "waits for no node, so none can be idle",
        }
        for name, reason in reasons.items():
            if options[name]:
                message = f"`frontier` {reason}: `{name}` has no meaning with it"
                return message, f"leave out `{name}`, or `frontier`"
    return None


class Ordering:
    """A hold-back queue for a stream.

    Parameters
    ----------
    policy : {"eager", "total", "frontier"}
        When an event is released.
    nodes : tuple of str or None
        Nodes that are there from the beginning, heard or not.
    frontier_us : int or None
        How far the watermark follows the largest time seen (`frontier` only).
    gap_us : int or None
        After how much time a missing dot is declared lost; None: never.
    idle_us : int or None
        After how much time a silent node has left; None: never.
    overflow : {"reject", "lost"}
        What a full queue does: refuse an event that would have to wait, or
        give up what was waited for longest.
    held_back_max, lost_max : int
        How many events wait, and how many lost dots are remembered, at most.
    territory : Territory or None
        The topology that events wait within (`eager` only); its driver lets it
        `meet` each event before it is pushed.
    """

    def __init__(
        self,
        *,
        policy: Policy = "eager",
        nodes: tuple[str, ...] | None = None,
        frontier_us: int | None = None,
        gap_us: int | None = None,
        idle_us: int | None = None,
        overflow: Literal["reject", "lost"] = "reject",
        held_back_max: int = DEFAULT.held_back_max,
        lost_max: int = DEFAULT.lost_max,
        territory: Territory | None = None,
    ) -> None:
        settings = Settings(
            nodes=nodes or (),
            frontier_us=frontier_us or 0,
            gap_us=gap_us,
            idle_us=idle_us,
            lose=overflow == "lost",
            held_back_max=held_back_max,
            lost_max=lost_max,
        )
        self.policy = policy
        self.territory = territory
        self.high_water = 0
        self._settings = settings
        self._time = StreamTime()
        self._queue = self._made()

    def _made(self) -> Eager | Total | Frontier:
        if self.territory is not None:
            assert self.policy == "eager", "a topology goes with no other policy"
            return Within(self._settings, self._time, self.territory.reach)
        return _POLICIES[self.policy](self._settings, self._time)

    @classmethod
    def of(
        cls,
        order: syntax.Order,
        limits: Limits = DEFAULT,
        *,
        topology: syntax.Topology | None = None,
    ) -> Ordering:
        """Make the queue that an order asks for; its parameters have been put in.

        Raises
        ------
        ValueError
            If the options make no sense together; `nonsense` says why.
        PatternError
            If the domains of the topology pass a limit.
        """
        if (fault := nonsense(order)) is not None:
            raise ValueError(fault[0])
        policy: Policy = "total" if order.total else "frontier" if order.frontier else "eager"
        territory = None if topology is None else Territory(topology, limits)
        return cls(policy=policy, territory=territory, **_options(order, limits))

    @classmethod
    def restoring(
        cls,
        order: syntax.Order,
        limits: Limits = DEFAULT,
        *,
        topology: syntax.Topology | None = None,
    ) -> Ordering:
        """Make the queue in which events of an order wait for whole clocks, in no order.

        They wait as long as the options of the order say, within a closed topology for
        the events of its nodes, which are all that come.
        """
        policy: Policy = "frontier" if order.frontier else "eager"
        territory = None
        if topology is not None and not topology.open:
            territory = Territory(topology, limits, whole=True)
        return cls(policy=policy, territory=territory, **_options(order, limits))

    def restore_by(self, restorer: Restorer) -> None:
        """Give released events their clocks back from now on."""
        self._queue.restorer = restorer

    def clear(self) -> None:
        """Forget what is held."""
        restorer = self._queue.restorer
        self._queue = self._made()
        self._queue.restorer = restorer

    def begin(self, seen: Mapping[str, tuple[int, list[int]]]) -> None:
        """Take as released what was seen before this queue was made.

        Parameters
        ----------
        seen : mapping of str to (int, list of int)
            Of each node the counter up to which all was seen, and those seen beyond.
        """
        self._queue.begin(seen)

    def refit(self) -> None:
        """Go on with a state that was restored from a queue with other options."""
        self._queue.refit()

    @property
    def kind(self) -> list[str]:
        """What a state fits: the policy, and the topology; the options may be others."""
        return [self.policy, "" if self.territory is None else repr(self.territory.topology)]

    @property
    def options(self) -> list[Any]:
        """The options of CausalOrder, as plain data."""
        s = self._settings
        return [list(s.nodes), s.frontier_us, s.gap_us, s.idle_us, s.lose]

    # --- what happens ---

    def meet(self, event: Event) -> str:
        """Take in the nodes that an event shows and an open topology lacks.

        Returns
        -------
        str
            The limit that the search for domains passed; empty where it passed none.
        """
        if self.territory is None:
            return ""
        grown, passed = self.territory.meet(event)
        if grown:
            assert isinstance(self._queue, Within)
            self._queue.widen()
        return passed

    def pass_over(self, event: Event) -> None:
        """Mark an event as late that its driver calls late, and so what comes after it.

        It is pushed all the same, so that nothing waits for it.
        """
        self._queue.marks.add(event.node, event.clock[event.node])

    def forgive(self, event: Event) -> None:
        """Unmark an event that was passed over and came again: it may yet have its place."""
        self._queue.marks.discard(event.node, event.clock[event.node])

    def push(self, event: Event) -> Step:
        """Take in an event; its dot must not have been pushed before."""
        time_us = event.time_us
        if time_us is not None:
            self._time.tick(time_us)
        out = Out()
        self._queue.push(event, out)
        if self._queue.count > self.high_water:
            self.high_water = self._queue.count
        return out.step()

    def advance(self, watermark_us: int) -> Step:
        """Take a watermark: no event with an earlier time will come."""
        self._time.tick(watermark_us)
        if isinstance(self._queue, Frontier):
            self._queue.watermark(watermark_us)
        return self._said(self._queue.advance)

    def join(self, node: str) -> Step:
        """Mark a node as present, whether an event of it came or not."""
        return self._said(lambda out: self._queue.join(node, out))

    def leave(self, node: str) -> Step:
        """Mark a node as gone: nothing waits for it any more."""
        return self._said(lambda out: self._queue.leave(node, out))

    def view(self, members: Iterable[str]) -> Step:
        """Take a membership view: all other nodes are gone."""
        return self._said(lambda out: self._queue.view(members, out))

    def end(self) -> Step:
        """End the stream: what comes after that is late."""
        return self._said(self._queue.end)

    def _said(self, act: Callable[[Out], None]) -> Step:
        out = Out()
        act(out)
        return out.step()

    # --- what can be asked ---

    def __len__(self) -> int:
        return self._queue.count

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the held events in order of arrival, each with what it waits for.

        That is a dot of its past that was not received, or None where there is
        none: it waits for its turn.
        """
        return self._queue.held_back()

    def holds(self, dot: Dot) -> bool:
        """Return whether an event is held."""
        return self._queue.holds(dot)

    def lows(self) -> dict[Dot, Key]:
        """Return, once, places that what the last step declared lost does not come before.

        Where there is one order only, that of `total`: elsewhere a lost event has no place.
        """
        if not isinstance(self._queue, Total):
            return {}
        lows, self._queue.lows = self._queue.lows, {}
        return lows

    def missing(self) -> list[Dot]:
        """Return the dots that were not received and hold events back, up to `lost_max`."""
        return [] if isinstance(self._queue, Frontier) else self._queue.missing()

    @property
    def lost(self) -> frozenset[Dot]:
        """The dots that were given up, declared lost or late, as far as remembered."""
        return self._queue.marks.dots()

    # --- state ---

    def state(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data.

        Parameters
        ----------
        number : callable
            Gives an event's number in a table of the caller.
        """
        time = self._time
        return {
            "policy": self.policy,
            "high_water": self.high_water,
            "time": [time.first, time.now],
            "territory": None if self.territory is None else self.territory.state(),
            "queue": self._queue.state(number),
        }

    def restore(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Take on a state, in a queue just made with the same options.

        Parameters
        ----------
        state : dict
            What `state` gave.
        events : sequence of Event
            The table whose numbers it names.
        """
        assert state["policy"] == self.policy
        self.high_water = state["high_water"]
        self._time.first, self._time.now = state["time"]
        if self.territory is not None:
            self.territory.restore(state["territory"])
        self._queue.restore(state["queue"], events)


def _options(order: syntax.Order, limits: Limits) -> dict[str, Any]:
    return {
        "nodes": order.nodes,
        "frontier_us": _us(order.frontier),
        "gap_us": _us(order.gap),
        "idle_us": _us(order.idle),
        "overflow": order.overflow or "reject",
        "held_back_max": limits.held_back_max,
        "lost_max": limits.lost_max,
    }


def _us(length: syntax.Duration | syntax.ParamRef | None) -> int | None:
    if length is None:
        return None
    assert isinstance(length, syntax.Duration)
    return length.microseconds
