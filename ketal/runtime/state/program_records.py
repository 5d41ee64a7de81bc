"""The program in a saved state: its text and parameters, and a mark of each pattern.

The marks are compared with those of another program, part by part. A pattern that changed may
retire (`ketal.runtime.retirement`): its runs and its queue continue beside those of the new
program. For that, the old program is compiled again from the saved text. The result must have the
saved fingerprints: with another version of a registered guard, or of ketal, they may differ.

The one rule: patterns are the same if their fingerprints are.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ketal.analysis.parameters import plain_value
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import KetalError, StateError
from ketal.model.limits import Limits
from ketal.programs.compiling import compile
from ketal.programs.program import Program
from ketal.runtime.state.records import Records, damage_refused

# --- what changed ---


def mark(compiled: CompiledPattern) -> dict[str, str]:
    """Return the mark of a pattern: its fingerprint, and a text for each part to be compared."""
    p = compiled.pattern
    return {
        "fingerprint": compiled.fingerprint,
        "kind and strategy": f"{p.kind} {compiled.strategy} {p.violation_policy}",
        "order": repr(p.order),
        "partition": repr(p.partition),
        "deployment": repr(p.deployment),
        "topology": repr(p.topology),
        "window": repr((compiled.window_us, compiled.window_events)),
        "events": repr([(e.name, e.guard) for e in p.events]),
        "steps": repr([(s.name, s.guard) for s in p.steps]),
        "body": repr(p.body),
        "return and limit": repr((p.returns, p.limit)),
        "registered guards": repr([(g.name, g.version) for g in compiled.registered]),
    }


def changes(saved: dict[str, Any], now: dict[str, Any]) -> str:
    """Return, in words, the differences between the marks (by pattern) of two programs."""
    differences = []
    for name in saved:
        if name not in now:
            differences.append(f"pattern {name} was removed")
        elif saved[name]["fingerprint"] != now[name]["fingerprint"]:
            parts = [
                part
                for part in saved[name]
                if part != "fingerprint" and saved[name][part] != now[name].get(part)
            ]
            differences.append(f"pattern {name} changed: {', '.join(parts) or 'its compiled form'}")
    differences += [f"pattern {name} was added" for name in now if name not in saved]
    return "; ".join(differences)


# --- the program of a state ---


def program_data(program: Program) -> dict[str, Any]:
    """Return a program as plain data: its marks by pattern, and its source text."""
    marks = {compiled.name: mark(compiled) for compiled in program.compiled}
    return {"marks": marks, "source": _source_text(program)}


def saved_program(read: Records) -> Program:
    """Compile the program of a saved state again, and return it.

    A StateError if it no longer compiles, or its fingerprints differ from the saved ones.
    """
    saved = read.body("program")
    source = saved["source"]
    if not source:
        raise StateError(
            "the saved state does not contain the text of its patterns: they were built in code"
        )
    with damage_refused():
        row = json.loads(source)
        try:
            limits = Limits.named(row["limits"])
            compiled = compile(row["text"], name=row["name"], limits=limits, **row["params"])
        except KetalError as fault:
            raise StateError(
                f"the patterns of the saved state no longer compile: {fault}"
            ) from None
    for name, mark in saved["marks"].items():
        if compiled[name].fingerprint != mark["fingerprint"]:
            guards = ", ".join(g.name for g in compiled[name].one.registered)
            cause = f"a registered guard ({guards})" if guards else "ketal itself"
            raise StateError(f"pattern {name} differs from the saved state: {cause} changed")
    return compiled.only(row["patterns"])


def _source_text(program: Program) -> str:
    """Return the text and parameters of a program as JSON; empty if it has no source text."""
    if program.source is None:
        return ""
    limits = program.compiled[0].limits
    return json.dumps(
        {
            "text": program.source.text,
            "name": program.source.name,
            "params": {name: plain_value(value) for name, value in program.params.items()},
            "limits": asdict(limits),
            "patterns": list(program.names),
        },
        sort_keys=True,
    )
