"""The timestamping schemes by the names that options and reports use."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from ketal.clocks.autonomous import AutonomousStamps
from ketal.clocks.causal_history import CausalHistories
from ketal.clocks.dependency_sequences import DependencyClocks
from ketal.clocks.differential import DeltaClocks
from ketal.clocks.dotted import DottedClocks
from ketal.clocks.hierarchical import HierarchicalClocks
from ketal.clocks.hybrid import HybridClocks
from ketal.clocks.interleaving import InterleavingClocks
from ketal.clocks.interval_tree import IntervalTreeClocks
from ketal.clocks.lamport import LamportClocks
from ketal.clocks.matrix import MatrixClocks
from ketal.clocks.plausible import PlausibleClocks
from ketal.clocks.scheme import Scheme
from ketal.clocks.station_vectors import StationClocks
from ketal.clocks.vector import VectorClocks
from ketal.errors import SettingError

SCHEMES: dict[str, Callable[[], Scheme[Any]]] = {
    of.name: of
    for of in (
        CausalHistories,
        VectorClocks,
        DeltaClocks,
        MatrixClocks,
        DottedClocks,
        IntervalTreeClocks,
        AutonomousStamps,
        DependencyClocks,
        HierarchicalClocks,
        InterleavingClocks,
        StationClocks,
        PlausibleClocks,
        LamportClocks,
        HybridClocks,
    )
}


def scheme_named(name: str) -> Scheme[Any]:
    """Return the scheme of a name; `plausible:8` is the one of 8 entries.

    Raises
    ------
    SettingError
        If there is none.
    """
    if name in SCHEMES:
        return SCHEMES[name]()
    base, colon, size = name.partition(":")
    if base == PlausibleClocks.name and colon and size.isascii() and size.isdigit():
        return PlausibleClocks(int(size))
    near = difflib.get_close_matches(name, SCHEMES, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCHEMES)}"
    raise SettingError(f"there is no clock scheme {name!r}; {hint}")
