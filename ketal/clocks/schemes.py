"""The timestamping schemes by the names that options and reports use."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from ketal.clocks.causal_history import CausalHistories
from ketal.clocks.dotted import DottedClocks
from ketal.clocks.hybrid import HybridClocks
from ketal.clocks.interval_tree import IntervalTreeClocks
from ketal.clocks.lamport import LamportClocks
from ketal.clocks.plausible import PlausibleClocks
from ketal.clocks.scheme import Scheme
from ketal.clocks.vector import VectorClocks
from ketal.errors import SettingError

SCHEMES: dict[str, Callable[[], Scheme[Any]]] = {
    of.name: of
    for of in (
        CausalHistories,
        VectorClocks,
        DottedClocks,
        IntervalTreeClocks,
        PlausibleClocks,
        LamportClocks,
        HybridClocks,
    )
}


def scheme_named(name: str) -> Scheme[Any]:
    """Return the scheme of a name.

    Raises
    ------
    SettingError
        If there is none.
    """
    if name in SCHEMES:
        return SCHEMES[name]()
    near = difflib.get_close_matches(name, SCHEMES, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCHEMES)}"
    raise SettingError(f"there is no clock scheme {name!r}; {hint}")
