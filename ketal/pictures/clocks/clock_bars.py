"""What nodes know, drawn as columns of events over the line of their identities.

Each identity has a column, each event that is known a square in it: a vector clock fills its
columns from the ground up, a causal history may leave holes, and the dot of a dotted clock hangs
above what its column has. One knows more than the other iff its area includes the other's. A bar
beneath the columns is the identity of the node: the columns above it are those that it may raise.

Baquero, "Causality is Graphically Simple", sections "Vector Clocks" to "Interval Tree Clocks".

The one rule: a square is an event, so two areas in one row have the same scale, and what both have
is at the same place in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ketal.errors import SettingError

LEVELS_MAX = 40
"""How many squares a column has in a picture."""
COLUMNS_MAX = 256
"""How many columns a picture of what a node knows has."""
COLUMN_PX = 26.0


@dataclass(frozen=True, slots=True)
class EventSquare:
    """An event in a picture, or events in one square.

    Attributes
    ----------
    left, span : int
        The first of its columns, and how many it has.
    level : int
        Which one it is from the ground up, from 1 on.
    form : str
        `known`; `dotted`, the dot of a clock, apart from what the clock has; or `hole`, an event
        that is not known, below one that is.
    tip : str
        What a pointer on it shows.
    marked : bool
        Whether another area lacks it.
    text : str
        What is written in it; of a square for many events, their numbers.
    """

    left: int
    span: int
    level: int
    form: str
    tip: str
    marked: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class ClockBars:
    """The picture of what one node, stamp or version knows.

    Attributes
    ----------
    labels : tuple of str
        What is written beneath each column.
    squares : tuple of EventSquare
        The events.
    caption : str
        What is written below.
    identity : tuple of (int, int, bool)
        The line of identities in parts: the first column of each, how many it has, and whether it
        belongs to the node; empty if no identity is drawn.
    column_px : float
        How wide a column is at least.
    """

    labels: tuple[str, ...]
    squares: tuple[EventSquare, ...]
    caption: str = ""
    identity: tuple[tuple[int, int, bool], ...] = ()
    column_px: float = COLUMN_PX


BarsRow: TypeAlias = "tuple[str, Sequence[ClockBars | str]]"
"""What is written above a row, and what it has from left to right: bars, and operators as text."""


def checked_size(levels: int, wide: int) -> None:
    """Refuse a picture of columns that are too high or too many.

    Raises
    ------
    SettingError
        If there are more than `LEVELS_MAX` levels or `COLUMNS_MAX` columns.
    """
    for what, count, name, limit in (
        ("squares in a column", levels, "LEVELS_MAX", LEVELS_MAX),
        ("columns", wide, "COLUMNS_MAX", COLUMNS_MAX),
    ):
        if count > limit:
            raise SettingError(
                f"a picture of a clock would have {count:,} {what}, and {limit} are drawn at most "
                f"({name})"
            )
