"""Every limit of ketal, with its name, default, unit and meaning.

`ketal limits` prints this table; `--limit NAME=VALUE`, `[limits]` of a configuration or job file
and `ketal.Limits(NAME=VALUE)` set limits.

The one rule: when a limit is reached, a verdict, a counter or an error names it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from typing import Any

from ketal.errors import SettingError, near, value_text, wrong_type


def _limit(default: int, unit: str, meaning: str) -> Any:
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a program and its runs; all are positive integers.

    Raises
    ------
    SettingError
        If a value is not a positive integer, or larger than `sys.maxsize`.

    Examples
    --------
    >>> import ketal
    >>> limits = ketal.Limits(runs_max=10_000)
    >>> limits.runs_max, limits.events_max
    (10000, 10000000)
    >>> limits
    Limits(runs_max=10000)
    >>> program = ketal.compile('pattern P { event A = type == "a"; find any A A; }')
    >>> ketal.run(program, [], limits=limits).summary["events"]["read"]
    0
    """

    pattern_bytes_max: int = _limit(1_000_000, "bytes", "size of a pattern file")
    nesting_max: int = _limit(60, "levels", "nesting depth of an expression or a body")
    repetitions_max: int = _limit(1_000, "repetitions", "repetition count in {n,m}")
    together_max: int = _limit(5, "blocks", "blocks of one {A & B}")
    atoms_max: int = _limit(64, "atoms", "distinct predicates of one pattern")
    minterms_max: int = _limit(1_024, "minterms", "classes of events that one state distinguishes")
    states_max: int = _limit(10_000, "states", "states of one automaton")
    regex_bytes_max: int = _limit(10_000, "bytes", "length of one regular expression")
    regex_memory_max: int = _limit(8_388_608, "bytes", "memory of one regular expression")
    topology_nodes_max: int = _limit(
        64, "nodes", "nodes of a topology whose domains are computed exactly"
    )
    topology_steps_max: int = _limit(
        20_000, "steps", "steps of the search for the domains of a topology"
    )
    line_bytes_max: int = _limit(1_048_576, "bytes", "length of one line or record of a log")
    log_bytes_max: int = _limit(
        268_435_456,
        "bytes",
        "decompressed size of one ShiViz log or trace file, which is read whole",
    )
    executions_max: int = _limit(100_000, "executions", "executions of one ShiViz log")
    clock_entries_max: int = _limit(10_000, "entries", "entries of one clock")
    incarnations_max: int = _limit(10_000, "incarnations", "incarnations of nodes that restarted")
    nodes_max: int = _limit(
        1_000_000, "nodes", "nodes of one stream, which are remembered as long as it runs"
    )
    dots_max: int = _limit(
        65_536,
        "events",
        "events whose content is kept to distinguish duplicates from contradictions",
    )
    restored_entries_max: int = _limit(
        10_000_000,
        "entries",
        "entries of restored clocks that are kept to restore those of later events",
    )
    counters_max: int = _limit(
        1_000_000, "counters", "counters that arrived out of order, kept to detect duplicates"
    )
    events_max: int = _limit(10_000_000, "events", "events of one execution held in memory at once")
    held_back_max: int = _limit(100_000, "events", "events held back until they are ready")
    lost_max: int = _limit(
        10_000, "dots", "missed events kept to determine which verdicts are uncertain"
    )
    unlearned_max: int = _limit(
        1_000_000, "events", "events kept for nodes that have not learned of them yet"
    )
    scopes_max: int = _limit(1_000_000, "scopes", "live scopes of one pattern")
    runs_max: int = _limit(
        1_000_000, "runs", "live runs of one pattern, or events that its `find any` keeps"
    )
    candidates_max: int = _limit(
        1_000_000,
        "events",
        "events, and groups of runs, kept by one scope of a `find` to combine with later events",
    )
    configurations_max: int = _limit(
        10_000, "configurations", "configurations of one run of a `check`"
    )
    matches_per_event_max: int = _limit(1_000_000, "matches", "matches that one event can complete")
    match_events_max: int = _limit(500, "events", "events of one match of a `find any`")
    visits_max: int = _limit(
        10_000_000, "events", "kept events visited by the search for the matches of one event"
    )
    message_bytes_max: int = _limit(
        900_000,
        "bytes",
        "size of a verdict or a piece of saved state in a Kafka topic; a broker accepts 1 MB",
    )
    placed_max: int = _limit(
        100_000,
        "values",
        "values of `keyed_by` whose partition is kept, to detect a value in two partitions",
    )
    cuts_max: int = _limit(
        1_000_000, "cuts", "pairs of a consistent cut and a state that possibly/definitely visit"
    )
    counted_cuts_max: int = _limit(
        2_000_000, "cuts", "consistent cuts of prime parts that `ketal cuts` visits one by one"
    )
    drawn_cuts_max: int = _limit(200, "cuts", "consistent cuts of a lattice that can be drawn")
    stamp_pairs_max: int = _limit(
        100_000, "pairs", "pairs of events on which timestamping schemes are compared"
    )
    stamped_entries_max: int = _limit(
        10_000_000, "entries", "entries of all stamps of one execution under one scheme"
    )
    stamped_events_max: int = _limit(
        500, "events", "events in one diagram with the stamps of a scheme"
    )
    explained_runs_max: int = _limit(
        100, "runs", "runs of a scope for which `ketal explain` gives reasons about one event"
    )
    near_misses_max: int = _limit(
        10_000, "events", "events that `ketal explain` judges to find near misses"
    )
    path_links_max: int = _limit(
        1_000,
        "links",
        "links of a shortest path between two events that an explanation searches for",
    )
    viewed_events_max: int = _limit(
        200_000, "events", "events of one execution that `ketal view` shows"
    )
    viewed_moves_max: int = _limit(
        100_000, "moves", "moves of the runs of one `check` that `ketal view` can replay"
    )
    viewed_verdicts_max: int = _limit(
        1_000, "verdicts", "verdicts of one execution that `ketal view` explains"
    )
    verdicts_max: int = _limit(
        100_000,
        "verdicts",
        "verdicts of a finite log that are kept for another iteration in Python",
    )
    shown_max: int = _limit(50, "verdicts", "rows of the table of verdicts shown in a notebook")
    stats_types_max: int = _limit(1_000, "types", "distinct types that `ketal stats` counts")
    stats_nodes_max: int = _limit(1_000, "nodes", "distinct nodes that `ketal stats` counts")
    stats_attributes_max: int = _limit(
        10_000, "attributes", "distinct attributes of types that `ketal stats` counts"
    )
    stats_values_max: int = _limit(
        100, "values", "distinct values that `ketal stats` counts for one attribute of a type"
    )
    stats_pairs_max: int = _limit(
        1_000, "pairs", "pairs of types, and of nodes, between which `ketal stats` counts messages"
    )
    stats_entries_max: int = _limit(
        500_000,
        "entries",
        "clock entries that `ketal stats` keeps to compare events, and as many again for messages",
    )

    def __repr__(self) -> str:
        values = ((one.name, getattr(self, one.name), one.default) for one in fields(self))
        changed = (f"{name}={value}" for name, value, default in values if value != default)
        return f"Limits({', '.join(changed)})"

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                shown = value_text(value)
                raise SettingError(f"limit {item.name} must be a positive integer, not {shown}")
            if value > sys.maxsize:
                raise SettingError(f"limit {item.name} must be at most {sys.maxsize}")

    @classmethod
    def given(cls, limits: object, otherwise: Limits | None = None) -> Limits:
        """Return the limits that a caller passed; if they are None, `otherwise` or the defaults.

        Parameters
        ----------
        limits : object
            The argument of the caller.
        otherwise : Limits, optional
            The limits in place of None; by default the defaults.

        Raises
        ------
        TypeError
            If `limits` is neither a Limits nor None.

        Examples
        --------
        >>> import ketal
        >>> ketal.Limits.given(None) == ketal.Limits()
        True
        >>> ketal.Limits.given(None, ketal.Limits(runs_max=5)).runs_max
        5
        """
        if limits is None:
            return otherwise or DEFAULT
        if not isinstance(limits, Limits):
            raise wrong_type("limits", "a ketal.Limits", limits)
        return limits

    @classmethod
    def named(cls, values: dict[str, int]) -> Limits:
        """Return the default limits with some replaced by `values`.

        Raises
        ------
        SettingError
            If a name is not the name of a limit; the message proposes the nearest name.

        Examples
        --------
        >>> import ketal
        >>> ketal.Limits.named({"runs_max": 5}).runs_max
        5
        >>> ketal.Limits.named({"run_max": 5})
        Traceback (most recent call last):
        ...
        ketal.errors.SettingError: unknown limit 'run_max'; did you mean runs_max?
        """
        known = [item.name for item in fields(cls)]
        for name in values:
            if name not in known:
                hint = near(name, known, "`ketal limits` lists them")
                raise SettingError(f"unknown limit {name!r}{hint}")
        return cls(**values)


DEFAULT = Limits()
