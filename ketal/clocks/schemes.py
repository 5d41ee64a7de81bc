"""The timestamping schemes by the names that options and reports use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ketal.clocks.autonomous import AutonomousStamps
from ketal.clocks.causal_history import CausalHistories
from ketal.clocks.differential import DeltaClocks
from ketal.clocks.dotted import DottedClocks
from ketal.clocks.inexact.hybrid import HybridClocks
from ketal.clocks.inexact.lamport import LamportClocks
from ketal.clocks.inexact.plausible import PlausibleClocks
from ketal.clocks.interval_tree import IntervalTreeClocks
from ketal.clocks.matrices.matrix import MatrixClocks
from ketal.clocks.mobile_hosts.dependency_sequences import DependencyClocks
from ketal.clocks.mobile_hosts.hierarchical import HierarchicalClocks
from ketal.clocks.mobile_hosts.interleaving import InterleavingClocks
from ketal.clocks.mobile_hosts.station_vectors import StationClocks
from ketal.clocks.scheme import Scheme
from ketal.clocks.vector import VectorClocks
from ketal.errors import SettingError, near

SCHEMES: dict[str, Callable[[], Scheme[Any]]] = {
    scheme.name: scheme
    for scheme in (
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


def scheme_named(name: str, *others: str) -> Scheme[Any]:
    """Return the scheme with a name; `plausible:8` is plausible clocks of 8 entries.

    Raises a SettingError if there is no such scheme. It proposes a name of a scheme or of `others`,
    the names that the caller accepts too.
    """
    if name in SCHEMES:
        return SCHEMES[name]()
    if sized := re.fullmatch(PlausibleClocks.name + ":([0-9]{1,9})", name):
        return PlausibleClocks(int(sized[1]))
    raise SettingError(f"unknown clock scheme {name!r}{near(name, [*SCHEMES, *others])}")
