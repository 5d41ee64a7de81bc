"""The options of `order CausalOrder(...)`, as a hold-back queue needs them.

`docs/ordering.md` explains each policy and option; `ketal.analysis.statements` reports options that
exclude each other.

The one rule: the options follow from an order, the limits, and what the time goes by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ketal.model import syntax
from ketal.model.limits import DEFAULT, Limits

Policy: TypeAlias = Literal["eager", "total", "frontier"]
"""When an event is released."""


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """The options of an order, as a hold-back queue needs them.

    Attributes
    ----------
    policy : {"eager", "total", "frontier"}
        When an event is released.
    nodes : tuple of str
        Nodes that are live from the beginning, even without an event.
    frontier_us : int
        How far the watermark follows the time that is reached (`frontier` only).
    gap_us : int or None
        After how much time a missing dot is declared lost; None: never.
    idle_us : int or None
        After how much time a silent node has left; None: never.
    overflow : {"reject", "lost"}
        Whether a full queue refuses an event that would have to wait, or gives up
        the dots that are missing longest.
    held_back_max, lost_max : int
        How many events wait, and how many dots of a hole are named, at most.
    by_watermark : bool
        Whether time goes by watermarks alone, and not by the times of events.
    """

    policy: Policy = "eager"
    nodes: tuple[str, ...] = ()
    frontier_us: int = 0
    gap_us: int | None = None
    idle_us: int | None = None
    overflow: Literal["reject", "lost"] = "reject"
    held_back_max: int = DEFAULT.held_back_max
    lost_max: int = DEFAULT.lost_max
    by_watermark: bool = False

    @classmethod
    def of(
        cls,
        order: syntax.Order,
        limits: Limits = DEFAULT,
        *,
        ordered: bool = True,
        by_watermark: bool = False,
    ) -> ReleaseOptions:
        """Return the options of an order whose parameters have been replaced by values.

        Parameters
        ----------
        order : syntax.Order
        limits : Limits
        ordered : bool
            Whether the patterns need an order; if not, events wait only until their clocks are
            whole, within the limits of the options.
        by_watermark : bool
            Whether time goes by watermarks alone.
        """
        total = order.total and ordered
        return cls(
            policy="total" if total else "frontier" if order.frontier else "eager",
            nodes=order.nodes or (),
            frontier_us=_microseconds(order.frontier) or 0,
            gap_us=_microseconds(order.gap),
            idle_us=_microseconds(order.idle),
            overflow=order.overflow or "reject",
            held_back_max=limits.held_back_max,
            lost_max=limits.lost_max,
            by_watermark=by_watermark,
        )

    @property
    def gives_up(self) -> bool:
        """Whether a full queue gives up missing dots, and refuses no events."""
        return self.overflow == "lost"

    @property
    def dates_missing(self) -> bool:
        """Whether missing dots are given up by how long they are missing."""
        return self.gap_us is not None or self.gives_up

    def written(self) -> list[Any]:
        """Return the options of CausalOrder, limits and policy apart, as plain data."""
        return [list(self.nodes), self.frontier_us, self.gap_us, self.idle_us, self.gives_up]


def _microseconds(length: syntax.Duration | syntax.ParamRef | None) -> int | None:
    if length is None:
        return None
    assert isinstance(length, syntax.Duration), "parameters are replaced by their values"
    return length.microseconds
