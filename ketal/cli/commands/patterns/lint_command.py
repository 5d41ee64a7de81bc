"""`ketal lint`: errors and warnings of pattern files, for people and for tools.

The one rule: every form of output has the same findings; a finding about a whole file has no line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ketal.cli import COULD_NOT_RUN, FINE, FOUND, complain, interruption_named, options
from ketal.cli.output.annotations import Annotation, FilePlace, github_line, sarif
from ketal.cli.output.output_lines import add_output, as_json, open_output
from ketal.cli.whole_logs import read_with_progress, report_rejected, require_events
from ketal.errors import (
    Diagnostic,
    PatternError,
    PatternText,
    SettingError,
    Span,
    diagnostic_place,
    diagnostic_text,
    printable,
)
from ketal.model.wording import counted

if TYPE_CHECKING:
    from ketal import LogStats, Program
    from ketal.compiler.compiled_pattern import CompiledPattern
    from ketal.engine.costs.cost_classes import Cost
    from ketal.model.limits import Limits

EXAMPLE = """\
examples:
  ketal lint patterns/*.ketal
  ketal lint --output sarif --write ketal.sarif forks.ketal
  ketal lint --explain-cost forks.ketal
  ketal lint stack.ketal --log run.jsonl
"""


Finding = tuple[PatternText, Diagnostic]
"""A diagnostic, and the text that it is about."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "files", metavar="PATTERN", nargs="+", help="pattern files; - is standard input"
    )
    add_output(parser, "human", "json", "github", "sarif")
    parser.add_argument("--write", metavar="FILE", help="write the findings to FILE")
    parser.add_argument(
        "--explain-cost",
        action="store_true",
        help="print the cost of an event and of a match for each pattern, and the guard that "
        "decides it",
    )
    about_log = (
        "warn about types, attributes and nodes that no event of this log has (repeatable: the "
        "logs of one execution)"
    )
    options.add_repeatable(parser, "--log", "LOG", about_log)
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Lint the files; return the exit code."""
    if args.explain_cost and args.output not in ("human", "json"):
        raise SettingError(
            f"--explain-cost cannot be combined with --output {args.output}; use --output json"
        )
    options.check_stdin([*args.files, *args.log])
    source, limits = options.source_and_limits(args)
    # --clock also applies without a log: not all clocks decide happened-before.
    reading_flags = [option for option in options.reading_options(args) if option != "--clock"]
    if not args.log and reading_flags:
        raise SettingError(f"{reading_flags[0]} applies to a log, but none is given; add --log LOG")
    stats = None
    if args.log:
        from ketal.auditing.contents.contents_counting import contents_of

        stats = read_with_progress(
            args.log, source, limits, lambda log: contents_of(log, limits=limits)
        )
    findings: list[Finding] = []
    compiled: list[tuple[PatternText, CompiledPattern]] = []
    unread_files = 0
    for path in args.files:
        try:
            text, name = options.pattern_text(path, limits)
        except SettingError as fault:
            complain(str(fault))
            unread_files += 1
            continue
        pattern = PatternText(text, name)
        diagnostics, program = _lint(pattern, limits, source.undecided, stats)
        if program is not None:
            compiled += [(pattern, one) for one in program.compiled]
        findings += [(pattern, d) for d in diagnostics]
    with open_output(args.write, inputs=options.input_files(args, *args.files, *args.log)) as sink:
        for line in _lines(args.output, findings, len(args.files) - unread_files):
            sink.line(line)
        if args.explain_cost:
            for line in _cost_lines(args.output, compiled):
                sink.line(line)
    if stats is not None:
        _report_log(args.log, stats, [one for _, one in compiled])
    if unread_files:
        return COULD_NOT_RUN
    return FOUND if any(d.severity == "error" for _, d in findings) else FINE


def _lint(
    pattern: PatternText, limits: Limits, undecided_scheme: str, stats: LogStats | None
) -> tuple[list[Diagnostic], Program | None]:
    """Return the findings about a text, and its program unless it does not compile.

    `undecided_scheme` is a timestamping scheme that does not decide happened-before, or empty;
    `stats` are of the log in which the pattern's names are looked up.
    """
    import ketal
    from ketal.runtime.silence.names_in_log import absent_names

    with interruption_named(f"{pattern.name} was not compiled"):
        try:
            program = ketal.compile(pattern.text, name=pattern.name, limits=limits)
        except PatternError:
            return ketal.lint(pattern.text, name=pattern.name, limits=limits), None
    diagnostics = list(program.warnings)
    if undecided_scheme:
        try:
            program = program.for_undecided_clocks(undecided_scheme)
            diagnostics = list(program.warnings)
        except PatternError as error:
            diagnostics += error.diagnostics
    if stats is not None and stats.events:
        diagnostics += absent_names(program.compiled, stats)
        diagnostics.sort(key=diagnostic_place)
    return diagnostics, program


def _report_log(logs: list[str], stats: LogStats, compiled: list[CompiledPattern]) -> None:
    """Print on standard error which records and names the check against the logs left out.

    A SettingError if the logs have no event.
    """
    from ketal.runtime.silence.names_in_log import unchecked

    require_events(logs, stats.events, stats.rejected, stats.first_rejected)
    report_rejected(stats.rejected, stats.first_rejected, "--log: ")
    for sentence in unchecked(compiled, stats):
        complain(f"--log: {sentence}")


# --- forms of output --------------------------------------------------------------


def _lines(output: str, findings: list[Finding], files: int) -> Iterator[str]:
    match output:
        case "human":
            yield from _human_lines(findings, files)
        case "json":
            for source, diagnostic in findings:
                names = ("severity", "code", "pattern", "message", "hint")
                fields = {name: getattr(diagnostic, name) for name in names}
                yield as_json({**_place_fields(source, diagnostic.span), **fields})
        case "github":
            yield from (github_line(_annotation(*finding)) for finding in findings)
        case "sarif":
            yield sarif([_annotation(*finding) for finding in findings])


def _place_fields(source: PatternText, span: Span | None) -> dict[str, Any]:
    places = ("line", "column", "end_line", "end_column")
    return {"file": source.name, **{name: getattr(span, name, None) for name in places}}


def _human_lines(findings: list[Finding], files: int) -> Iterator[str]:
    for source, diagnostic in findings:
        yield from map(printable, diagnostic_text(diagnostic, source).split("\n"))
    errors = sum(diagnostic.severity == "error" for _, diagnostic in findings)
    warnings = len(findings) - errors
    where = f"in {counted(files, 'file')}"
    if findings:
        yield f"{counted(errors, 'error')}, {counted(warnings, 'warning')} {where}"
    elif files:
        yield f"no errors and no warnings {where}"


def _annotation(source: PatternText, diagnostic: Diagnostic) -> Annotation:
    hint = f"\nhint: {diagnostic.hint}" if diagnostic.hint else ""
    return Annotation(
        diagnostic.code,
        diagnostic.severity,
        diagnostic.message + hint,
        FilePlace(source.name, span=diagnostic.span),
        diagnostic.pattern,
    )


def _cost_lines(output: str, patterns: list[tuple[PatternText, CompiledPattern]]) -> Iterator[str]:
    from ketal.engine.costs.cost_classes import cost_of

    for source, compiled in patterns:
        cost = cost_of(compiled)
        if output == "json":
            yield as_json(_cost_as_dict(source, compiled.name, cost))
            continue
        span = cost.place.span
        at = f"{source.name}:{span.line}:{span.column}" if span else source.name
        yield printable(f"{at}: {compiled.name}: {cost.name}")
        rows = {
            "an event": cost.event,
            "a match": cost.match,
            "decided by": f"`{cost.place.text}`: {cost.reason}",
            "flat with": cost.flat_with,
            "--count": _counting_text(cost),
        }
        yield from (printable(f"  {name:10}  {text}") for name, text in rows.items() if text)
    if patterns and output == "human":
        yield "n: events kept in a scope, P: nodes, k: events of a match"


def _cost_as_dict(source: PatternText, pattern: str, cost: Cost) -> dict[str, Any]:
    return {
        **_place_fields(source, cost.place.span),
        "pattern": pattern,
        "cost": cost.name,
        "event": cost.event,
        "match": cost.match,
        "guard": cost.place.text,
        "reason": cost.reason,
        "flat_with": cost.flat_with,
        "counts": cost.counts,
        "counts_because": cost.counts_because,
    }


def _counting_text(cost: Cost) -> str:
    if cost.counts is None:
        return ""
    if cost.counts:
        return " ".join(["counts without listing", cost.counts_because]).rstrip()
    return f"lists matches to count them: {cost.counts_because}"
