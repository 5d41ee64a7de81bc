"""`ketal lint`: errors and warnings of pattern files, for people and for tools.

The one rule: every form of output has the same findings; one that is about a whole file
has no line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ketal.cli import COULD_NOT_RUN, FINE, FOUND, complain, interruption_named, options
from ketal.cli.commands.logs.stats_command import stats_of
from ketal.cli.output.annotations import Annotation, FilePlace, github_line, sarif
from ketal.cli.output.empty_log import nothing_read, some_rejected
from ketal.cli.output.output_lines import add_output, as_json, opened
from ketal.errors import (
    Diagnostic,
    PatternError,
    PatternText,
    SettingError,
    Span,
    diagnostic_place,
    printable,
    show,
)
from ketal.model.wording import counted

if TYPE_CHECKING:
    from ketal import LogStats, Program
    from ketal.engine.costs.cost_classes import Cost

_EXAMPLE = """\
examples:
  ketal lint patterns/*.ketal
  ketal lint --output sarif --write ketal.sarif forks.ketal
  ketal lint --explain-cost forks.ketal
  ketal lint stack.ketal --log run.jsonl
"""


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
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="LOG",
        help="warn of types, attributes and nodes that no event of this log has; again for each "
        "log of the execution",
    )
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Lint the files; return the exit code."""
    import ketal
    from ketal.runtime.silence.names_in_log import absent_names

    if args.explain_cost and args.output not in _COST_WRITERS:
        raise SettingError(f"--explain-cost has no form for --output {args.output}; json has one")
    options.check_stdin([*args.files, *args.log])
    source, limits = options.source_and_limits(args)
    # What clocks decide a pattern can be asked without a log.
    without = [option for option in options.reading_options(args) if option != "--clock"]
    if not args.log and without:
        raise SettingError(f"{without[0]} says how a log is read, and there is none: --log LOG")
    undecided = source.scheme is not None and not source.scheme.decides
    stats = stats_of(args.log, source, limits) if args.log else None
    findings: list[LintFinding] = []
    compiled: list[tuple[PatternText, Program]] = []
    unread = 0
    for path in args.files:
        try:
            text, name = options.pattern_text(path, limits)
        except SettingError as fault:
            complain(str(fault))
            unread += 1
            continue
        pattern = PatternText(text, name)
        with interruption_named(f"{name} was not compiled"):
            diagnostics = ketal.lint(text, name=name, limits=limits)
        faulty = any(d.severity == "error" for d in diagnostics)
        if not faulty and (args.explain_cost or stats is not None or undecided):
            program = ketal.compile(text, name=name, limits=limits)
            if undecided:
                try:
                    program = program.for_undecided_clocks(source.clock)
                    diagnostics = list(program.warnings)
                except PatternError as error:
                    diagnostics += error.diagnostics
            compiled.append((pattern, program))
            if stats is not None and stats.events:
                diagnostics += absent_names(program.compiled, stats)
                diagnostics.sort(key=diagnostic_place)
        findings += [LintFinding(pattern, d) for d in diagnostics]
    with opened(args.write, inputs=[*args.files, *args.log]) as sink:
        for line in _WRITERS[args.output](findings, len(args.files) - unread):
            sink.line(line)
        if args.explain_cost:
            for line in _COST_WRITERS[args.output](_costs(compiled)):
                sink.line(line)
    if stats is not None:
        unread += not _log_was_read(args.log, stats, [program for _, program in compiled])
    if unread:
        return COULD_NOT_RUN
    return FOUND if any(f.diagnostic.severity == "error" for f in findings) else FINE


def _costs(compiled: list[tuple[PatternText, Program]]) -> list[PatternCost]:
    from ketal.engine.costs.cost_classes import cost_of

    return [PatternCost(source, cost_of(one)) for source, p in compiled for one in p.compiled]


def _log_was_read(logs: list[str], stats: LogStats, programs: list[Program]) -> bool:
    """Return whether the logs have an event; print on standard error what was not looked at."""
    from ketal.runtime.silence.names_in_log import unchecked

    if not stats.events:
        complain(nothing_read(logs, stats.rejected, stats.first_rejected))
        return False
    if stats.rejected:
        complain(f"--log: {some_rejected(stats.rejected, stats.first_rejected)}")
    for sentence in unchecked([one for p in programs for one in p.compiled], stats):
        complain(f"--log: {sentence}")
    return True


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
    yield from map(github_line, map(_annotation, findings))


def _sarif(findings: list[LintFinding], files: int) -> Iterator[str]:
    yield sarif([_annotation(finding) for finding in findings])


def _annotation(finding: LintFinding) -> Annotation:
    source, diagnostic = finding
    hint = f"\nhint: {diagnostic.hint}" if diagnostic.hint else ""
    return Annotation(
        diagnostic.code,
        diagnostic.severity,
        diagnostic.message + hint,
        FilePlace(source.name, span=diagnostic.span),
        diagnostic.pattern,
    )


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
