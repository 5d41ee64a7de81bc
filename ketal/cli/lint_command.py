"""`ketal lint`: errors and warnings of pattern files, for people and for tools.

The one rule: every form of output has the same findings; one that is about a whole file
has no line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ketal.cli import COULD_NOT_RUN, FINE, FOUND, complain, options
from ketal.cli.output_lines import add_output, as_json, counted, opened
from ketal.errors import Diagnostic, PatternText, SettingError, Span, printable, show

if TYPE_CHECKING:
    from ketal.engine.costs import Cost

_EXAMPLE = """\
examples:
  ketal lint patterns/*.ketal
  ketal lint --output sarif --write ketal.sarif forks.ketal
  ketal lint --explain-cost forks.ketal
"""
_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


class LintFinding(NamedTuple):
    """A diagnostic and the text that it is about."""

    source: PatternText
    diagnostic: Diagnostic


class PatternCost(NamedTuple):
    """What a pattern costs, and the text that it is in."""

    source: PatternText
    cost: Cost


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EXAMPLE
    parser.add_argument(
        "files", metavar="PATTERN", nargs="+", help="pattern files, - is standard input"
    )
    add_output(parser, "human", "json", "github", "sarif")
    parser.add_argument("--write", metavar="FILE", help="write the findings to a file")
    parser.add_argument(
        "--explain-cost",
        action="store_true",
        help="what an event and a match of each pattern cost, and the guard that decides it",
    )
    options.add_limits(parser)


def execute(args: argparse.Namespace) -> int:
    """Lint the files; return the exit code."""
    import ketal
    from ketal.engine.costs import cost_of

    if args.explain_cost and args.output not in _COST_WRITERS:
        raise SettingError(f"--explain-cost has no form for --output {args.output}; json has one")
    options.check_stdin(args.files)
    limits = options.limits_of(args.limit)
    findings: list[LintFinding] = []
    costs: list[PatternCost] = []
    unread = 0
    for path in args.files:
        try:
            text, name = options.pattern_text(path, limits)
        except SettingError as fault:
            complain(str(fault))
            unread += 1
            continue
        source = PatternText(text, name)
        diagnostics = ketal.lint(text, name=name, limits=limits)
        findings += [LintFinding(source, d) for d in diagnostics]
        if args.explain_cost and not any(d.severity == "error" for d in diagnostics):
            program = ketal.compile(text, name=name, limits=limits)
            costs += [PatternCost(source, cost_of(one)) for one in program.compiled]
    with opened(args.write, inputs=args.files) as sink:
        for line in _WRITERS[args.output](findings, len(args.files) - unread):
            sink.line(line)
        if args.explain_cost:
            for line in _COST_WRITERS[args.output](costs):
                sink.line(line)
    if unread:
        return COULD_NOT_RUN
    return FOUND if any(f.diagnostic.severity == "error" for f in findings) else FINE


def as_dict(finding: LintFinding) -> dict[str, Any]:
    """Return a finding as its JSON object."""
    source, diagnostic = finding
    return {
        **_where(source, diagnostic.span),
        "severity": diagnostic.severity,
        "code": diagnostic.code,
        "pattern": diagnostic.pattern,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    }


def cost_as_dict(of: PatternCost) -> dict[str, Any]:
    """Return the cost of a pattern as its JSON object."""
    source, cost = of
    return {
        **_where(source, cost.place.span),
        "pattern": cost.pattern,
        "cost": cost.name,
        "event": cost.event,
        "match": cost.match,
        "guard": cost.place.text,
        "reason": cost.reason,
        "flat_with": cost.flat_with,
        "counts": cost.counts,
        "counts_because": cost.counts_because,
    }


def _where(source: PatternText, span: Span | None) -> dict[str, Any]:
    return {
        "file": source.name,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "end_line": span.end_line if span else None,
        "end_column": span.end_column if span else None,
    }


# --- forms of output --------------------------------------------------------------


def _human(findings: list[LintFinding], files: int) -> Iterator[str]:
    for source, diagnostic in findings:
        yield from map(printable, show(diagnostic, source).split("\n"))
    errors = sum(f.diagnostic.severity == "error" for f in findings)
    warnings = len(findings) - errors
    where = f"in {counted(files, 'file')}"
    if findings:
        yield f"{counted(errors, 'error')}, {counted(warnings, 'warning')} {where}"
    elif files:
        yield f"no errors and no warnings {where}"


def _json(findings: list[LintFinding], files: int) -> Iterator[str]:
    yield from (as_json(as_dict(finding)) for finding in findings)


def _github(findings: list[LintFinding], files: int) -> Iterator[str]:
    for source, diagnostic in findings:
        properties = {"file": source.name}
        if span := diagnostic.span:
            properties |= {"line": str(span.line), "endLine": str(span.end_line)}
            if span.line == span.end_line:
                # GitHub knows columns within one line only; its last one is inside.
                last = max(span.column, span.end_column - 1)
                properties |= {"col": str(span.column), "endColumn": str(last)}
        properties["title"] = f"ketal {diagnostic.code}"
        written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        yield f"::{diagnostic.severity} {written}::{_data(_sentence(diagnostic))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _sentence(diagnostic: Diagnostic) -> str:
    hint = f"\nhint: {diagnostic.hint}" if diagnostic.hint else ""
    return diagnostic.message + hint


def _sarif(findings: list[LintFinding], files: int) -> Iterator[str]:
    from ketal import __version__

    codes = sorted({f.diagnostic.code for f in findings})
    driver = {
        "name": "ketal",
        "semanticVersion": __version__,
        "rules": [{"id": code} for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes) for finding in findings],
    }
    yield as_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(finding: LintFinding, codes: list[str]) -> dict[str, Any]:
    source, diagnostic = finding
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(source.name)}}
    if span := diagnostic.span:
        place["region"] = {
            "startLine": span.line,
            "startColumn": span.column,
            "endLine": span.end_line,
            "endColumn": span.end_column,
        }
    location: dict[str, Any] = {"physicalLocation": place}
    if diagnostic.pattern:
        location["logicalLocations"] = [{"name": diagnostic.pattern, "kind": "type"}]
    return {
        "ruleId": diagnostic.code,
        "ruleIndex": codes.index(diagnostic.code),
        "level": diagnostic.severity,
        "message": {"text": _sentence(diagnostic)},
        "locations": [location],
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return ("file://" if path.startswith("/") else "") + quote(path, errors="replace")


_WRITERS = {"human": _human, "json": _json, "github": _github, "sarif": _sarif}


def _human_costs(costs: list[PatternCost]) -> Iterator[str]:
    for source, cost in costs:
        span = cost.place.span
        at = f"{source.name}:{span.line}:{span.column}" if span else source.name
        yield printable(f"{at}: {cost.pattern}: {cost.name}")
        rows = {
            "an event": cost.event,
            "a match": cost.match,
            "decided by": f"`{cost.place.text}`: {cost.reason}",
            "flat with": cost.flat_with,
            "--count": _counting(cost),
        }
        yield from (printable(f"  {name:10}  {text}") for name, text in rows.items() if text)
    if costs:
        yield "n: events kept in a scope, P: nodes, k: events of a match"


def _counting(cost: Cost) -> str:
    if cost.counts is None:
        return ""
    if cost.counts:
        return " ".join(["counts without listing", cost.counts_because]).rstrip()
    return f"lists matches to count them: {cost.counts_because}"


def _json_costs(costs: list[PatternCost]) -> Iterator[str]:
    yield from (as_json(cost_as_dict(cost)) for cost in costs)


_COST_WRITERS = {"human": _human_costs, "json": _json_costs}
