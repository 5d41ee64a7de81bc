"""The options of `order CausalOrder(...)`, and which of them exclude each other.

`docs/ordering.md` says what each policy and option means.

The one rule: what an option cannot mean with a policy is an error, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from ketal.model import syntax
from ketal.model.limits import DEFAULT, Limits

Policy: TypeAlias = Literal["eager", "total", "frontier"]
"""When an event is released."""


WITHOUT_FRONTIER: Final = {
    "total": "releases by time, not when every node was heard",
    "nodes": "waits for time, not for nodes",
    "gap": "waits for no dot, so none can be lost",
    "idle": "waits for no node, so none can be idle",
}
"""The options that have no meaning with `frontier`, each with the reason."""


def option_conflict(order: syntax.Order) -> tuple[str, str] | None:
    """Return why an option has no meaning with `frontier`, and a hint; None if all have one."""
    if order.frontier is not None:
        for name, reason in WITHOUT_FRONTIER.items():
            if name in order.given:
                message = f"`frontier` {reason}: `{name}` has no meaning with it"
                return message, f"leave out `{name}`, or `frontier`"
    return None


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """What an order asks of a hold-back queue.

    Attributes
    ----------
    policy : {"eager", "total", "frontier"}
        When an event is released.
    nodes : tuple of str
        Nodes that are live from the beginning, whether an event of them came or not.
    frontier_us : int
        How far the watermark follows the largest time seen (`frontier` only).
    gap_us : int or None
        After how much time a missing dot is declared lost; None: never.
    idle_us : int or None
        After how much time a silent node has left; None: never.
    overflow : {"reject", "lost"}
        What a full queue does: refuse an event that would have to wait, or
        give up what was waited for longest.
    held_back_max, lost_max : int
        How many events wait, and how many dots of a hole are named, at most.
    """

    policy: Policy = "eager"
    nodes: tuple[str, ...] = ()
    frontier_us: int = 0
    gap_us: int | None = None
    idle_us: int | None = None
    overflow: Literal["reject", "lost"] = "reject"
    held_back_max: int = DEFAULT.held_back_max
    lost_max: int = DEFAULT.lost_max

    @classmethod
    def of(
        cls, order: syntax.Order, limits: Limits = DEFAULT, *, ordered: bool = True
    ) -> ReleaseOptions:
        """Return the options of an order; its parameters have been put in.

        Parameters
        ----------
        order : syntax.Order
        limits : Limits
        ordered : bool
            Whether events come out in an order; if not, they wait for whole clocks only,
            as long as the options say.
        """
        total = order.total and ordered
        return cls(
            policy="total" if total else "frontier" if order.frontier else "eager",
            nodes=order.nodes or (),
            frontier_us=_us(order.frontier) or 0,
            gap_us=_us(order.gap),
            idle_us=_us(order.idle),
            overflow=order.overflow or "reject",
            held_back_max=limits.held_back_max,
            lost_max=limits.lost_max,
        )

    @property
    def gives_up(self) -> bool:
        """Whether a full queue gives up what it waits for, and refuses nothing."""
        return self.overflow == "lost"

    @property
    def dates_missing(self) -> bool:
        """Whether a missing dot is given up by how long it is missing."""
        return self.gap_us is not None or self.gives_up

    def written(self) -> list[Any]:
        """Return the options of CausalOrder, limits and policy apart, as plain data."""
        return [list(self.nodes), self.frontier_us, self.gap_us, self.idle_us, self.gives_up]


def _us(length: syntax.Duration | syntax.ParamRef | None) -> int | None:
    if length is None:
        return None
    assert isinstance(length, syntax.Duration), "parameters have been put in"
    return length.microseconds
