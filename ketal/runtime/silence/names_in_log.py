"""Names of a pattern that no event of a log has: the warnings of `ketal lint --log`.

A run reports the names that explain a vacuous answer (`ketal.runtime.silence.vacuity`); this module
lists every type, attribute, key of `partition by` and node of a pattern that a log does not have,
before anything is run. Such a name may be right: perhaps the events of a `find` did not happen.

The one rule: if a limit cut a table of the log's names, none is claimed to be absent from it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ketal.auditing.contents.attribute_counts import KEYS_MAX
from ketal.auditing.contents.contents_report import LogStats
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.counted.named_values import NamedValue
from ketal.errors import Diagnostic
from ketal.grammar.printer import render_value
from ketal.model import syntax
from ketal.model.values import base_node
from ketal.model.wording import counted
from ketal.runtime.silence.near_names import SHOWN_MAX, nearest, own_field_note

_KINDS = {
    "type": ("K301", "types", "has the type `{}`"),
    "attribute": ("K302", "attributes", "has the attribute `{}`"),
    "partition": (
        "K303",
        "attributes",
        "has the attribute `{}`, by which the events are partitioned",
    ),
    "node": ("K304", "nodes", "is of the node `{}`"),
}
"""By kind of name: the code, the table of the log with such names, the wording of the warning."""


def absent_names(compiled: Iterable[CompiledPattern], stats: LogStats) -> list[Diagnostic]:
    """Return a warning for each name of a program's patterns that no event of a log has.

    A name at one place that several patterns share gives one warning.
    """
    diagnostics: dict[object, Diagnostic] = {}
    cut_tables = {table.what for table in stats.left_out}
    for pattern in compiled:
        for name in pattern.counted.named_values:
            code, table, wording = _KINDS[name.what]
            if table in cut_tables or _may_be_in_log(name, stats):
                continue
            diagnostic = Diagnostic(
                code=code,
                severity="warning",
                message=f"no event of the log {wording.format(name.name)}",
                span=name.span,
                hint=_hint(name, stats, pattern.counted.named_values),
                pattern=pattern.name,
            )
            diagnostics.setdefault((diagnostic.span, diagnostic.message), diagnostic)
    return list(diagnostics.values())


def unchecked(compiled: Iterable[CompiledPattern], stats: LogStats) -> list[str]:
    """Return a sentence for each cut table, which may have names that were not found in it."""
    names = (name for one in compiled for name in one.counted.named_values)
    tables = {_KINDS[name.what][1] for name in names if not _may_be_in_log(name, stats)}
    return [
        f"the log has more {one.what} than are counted (limit {one.limit} = {one.most:,}), so "
        f"absent {one.what} are not reported"
        for one in stats.left_out
        if one.what in tables
    ]


def _log_names(name: NamedValue, stats: LogStats) -> dict[str, int]:
    """Return the log's names of the same kind as `name`, and how many events have each."""
    if name.path:
        return {one.name: one.events for one in stats.attributes}
    if name.what == "type":
        return {one.type: one.events for one in stats.types}
    nodes: dict[str, int] = {}
    for node, number in stats.nodes.items():
        # A pattern may name one incarnation, or all incarnations of a node.
        for one in {node, base_node(node)}:
            nodes[one] = nodes.get(one, 0) + number
    return nodes


def _may_be_in_log(name: NamedValue, stats: LogStats) -> bool:
    """Return whether some event of the log has a name, or may have it."""
    if name.path:
        deep = len(name.path) > KEYS_MAX
        return deep or any(one.path == name.path for one in stats.attributes)
    known = _log_names(name, stats)
    if name.what == "node" and base_node(name.name) in known:
        # Incarnations are known only when the log is run.
        return True
    return any(map(name.matcher(), known))


def _hint(name: NamedValue, stats: LogStats, pattern: Iterable[NamedValue]) -> str:
    if note := own_field_note(name):
        return note
    known = _log_names(name, stats)
    if name.path and name.name in known:
        meant = _quoted(name, name.name, stats)
        return f"did you mean {meant}? In the log the dot is part of the name"
    if (near := nearest(name, known, pattern)) is not None:
        return f"did you mean {_quoted(name, near, stats)}?"
    if not known:
        return f"the log has no {_KINDS[name.what][1]}"
    most = sorted(known, key=lambda one: (-known[one], one))[:SHOWN_MAX]
    listed = ", ".join(_quoted(name, one, stats) for one in most)
    return (
        f"the log has {listed}{' and others' if len(known) > SHOWN_MAX else ''}; see `ketal stats`"
    )


def _quoted(name: NamedValue, known: str, stats: LogStats) -> str:
    """Return `known`, a name in the log of the kind of `name`, with its number of events."""
    number = _log_names(name, stats)[known]
    if name.path:
        path = next(one.path for one in stats.attributes if one.name == known)
        known = render_value(syntax.Attribute(path))
    return f"`{known}` ({counted(number, 'event')})"
