"""Findings in the formats of other tools: annotations of GitHub Actions, and SARIF.

Findings of lint about a pattern, and of a run about a log, are written in the same way.

The one rule: a finding has a place in a file, or no place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ketal.cli.output.output_lines import as_json
from ketal.errors import Span, printable

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


class FilePlace(NamedTuple):
    """A place in a file."""

    file: str
    """The file; empty for no place."""
    line: int = 0
    """The line, from 1; 0 for the whole file."""
    span: Span | None = None
    """The lines and columns, if they are known."""


class Annotation(NamedTuple):
    """A finding."""

    rule: str
    """The kind of the finding: a diagnostic code of lint, or a kind of verdict."""
    level: str
    """`error` or `warning`."""
    message: str
    """The text of the finding; it may have several lines."""
    place: FilePlace
    pattern: str = ""
    """The pattern that the finding is about, or that reported it; empty for none."""
    related: tuple[tuple[FilePlace, str], ...] = ()
    """Other places, each with a description."""
    id: str = ""
    """An id that is the same in every run with this finding; empty for none."""


def github_line(annotation: Annotation) -> str:
    """Return a finding as a workflow command of GitHub Actions."""
    file, line, span = annotation.place
    properties = {"file": file} if file else {}
    if span is not None:
        properties |= {"line": str(span.line), "endLine": str(span.end_line)}
        if span.line == span.end_line:
            # GitHub takes columns only within a line; its last column is inclusive.
            last = max(span.column, span.end_column - 1)
            properties |= {"col": str(span.column), "endColumn": str(last)}
    elif line:
        properties["line"] = str(line)
    properties["title"] = f"ketal {annotation.rule}"
    properties_text = ",".join(
        f"{name}={_escaped_property(value)}" for name, value in properties.items()
    )
    message = "\n".join(map(printable, annotation.message.split("\n")))
    return f"::{annotation.level} {properties_text}::{_escaped_data(message)}"


def _escaped_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped_data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(annotations: Sequence[Annotation], **properties: Any) -> str:
    """Return a SARIF log of one run, as one line; `properties` are those of the run."""
    from ketal import __version__

    rules = sorted({one.rule for one in annotations})
    driver = {
        "name": "ketal",
        "semanticVersion": __version__,
        "rules": [{"id": rule} for rule in rules],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, rules) for one in annotations],
    }
    if properties:
        run["properties"] = properties
    return as_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(annotation: Annotation, rules: list[str]) -> dict[str, Any]:
    location = _location(annotation.place) if annotation.place.file else {}
    if annotation.pattern:
        location["logicalLocations"] = [{"name": annotation.pattern, "kind": "type"}]
    out: dict[str, Any] = {
        "ruleId": annotation.rule,
        "ruleIndex": rules.index(annotation.rule),
        "level": annotation.level,
        "message": {"text": annotation.message},
    }
    if location:
        out["locations"] = [location]
    if annotation.related:
        out["relatedLocations"] = [
            {**_location(place), "message": {"text": text}} for place, text in annotation.related
        ]
    if annotation.id:
        out["partialFingerprints"] = {"ketal/v1": annotation.id}
    return out


def _location(place: FilePlace) -> dict[str, Any]:
    file, line, span = place
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if span is not None:
        physical["region"] = {
            "startLine": span.line,
            "startColumn": span.column,
            "endLine": span.end_line,
            "endColumn": span.end_column,
        }
    elif line:
        physical["region"] = {"startLine": line}
    return {"physicalLocation": physical}


def _uri(path: str) -> str:
    from urllib.parse import quote

    return ("file://" if path.startswith("/") else "") + quote(path, errors="replace")
