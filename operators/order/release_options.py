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
    """The options of an order, as a hold-back queue needs them."""

    policy: Policy = "eager"  # when an event is released
    nodes: tuple[str, ...] = ()  # nodes that are live from the beginning, even without an event
    frontier_us: int = 0  # how far the watermark follows the time that is reached (`frontier` only)
    gap_us: int | None = None  # after how much time a missing dot is declared lost; None: never
    idle_us: int | None = None  # after how much time a silent node has left; None: never
    gives_up: bool = False
    """Whether a full queue gives up the dots that are missing longest, and refuses no event
    (`overflow = lost`)."""
    held_back_max: int = DEFAULT.held_back_max  # how many events wait at most
    lost_max: int = DEFAULT.lost_max  # how many dots of a hole are named at most
    waits_max: int = DEFAULT.counters_max
    """How many waits for missing dots are recorded at most where no events are held back."""
    by_watermark: bool = False
    """Whether time goes by watermarks alone, and not by the times of events."""

    @classmethod
    def of(
        cls, order: syntax.Order, limits: Limits = DEFAULT, *, by_watermark: bool = False
    ) -> ReleaseOptions:
        """Return the options of an order whose parameters have been replaced by values."""
        return cls(
            policy="total" if order.total else "frontier" if order.frontier else "eager",
            nodes=order.nodes or (),
            frontier_us=_microseconds(order.frontier) or 0,
            gap_us=_microseconds(order.gap),
            idle_us=_microseconds(order.idle),
            gives_up=order.overflow == "lost",
            held_back_max=limits.held_back_max,
            lost_max=limits.lost_max,
            waits_max=limits.counters_max,
            by_watermark=by_watermark,
        )

    @property
    def declares_lost(self) -> bool:
        """Whether a dot that is missing for too long, or at the end, is declared lost (`gap`)."""
        return self.gap_us is not None

    @property
    def dates_missing(self) -> bool:
        """Whether missing dots are given up by how long they are missing."""
        return self.declares_lost or self.gives_up

    @property
    def expires(self) -> bool:
        """Whether time alone may release events."""
        return self.gap_us is not None or self.idle_us is not None or self.policy == "frontier"

    def written(self) -> list[Any]:
        """Return the options of CausalOrder, limits and policy apart, as plain data."""
        return [list(self.nodes), self.frontier_us, self.gap_us, self.idle_us, self.gives_up]


def _microseconds(length: syntax.Duration | syntax.ParamRef | None) -> int | None:
    if length is None:
        return None
    assert isinstance(length, syntax.Duration), "parameters are replaced by their values"
    return length.microseconds
