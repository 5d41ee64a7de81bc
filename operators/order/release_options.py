"""The options of `order CausalOrder(...)`, and which of them make sense together.

`docs/ordering.md` says what each policy and option means.

The one rule: what an option cannot mean with a policy is an error, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ketal.model import syntax
from ketal.model.limits import DEFAULT, Limits

Policy: TypeAlias = Literal["eager", "total", "frontier"]
"""When an event is released."""


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

        Raises
        ------
        ValueError
            If the options make no sense together; `nonsense` says why.
        """
        if (fault := nonsense(order)) is not None:
            raise ValueError(fault[0])
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

    def state(self) -> list[Any]:
        """Return the options of CausalOrder, limits and policy apart, as plain data."""
        return [list(self.nodes), self.frontier_us, self.gap_us, self.idle_us, self.gives_up]


def _us(length: syntax.Duration | syntax.ParamRef | None) -> int | None:
    if length is None:
        return None
    assert isinstance(length, syntax.Duration), "parameters have been put in"
    return length.microseconds
