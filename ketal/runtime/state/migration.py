"""Migration: the state of an execution is restored under another program.

The dots that were seen, the membership and the events that are held back belong to the execution
and not to a pattern. Another program takes them over (`Execution.restored`), and with them the
runs of the patterns that did not change; a pattern that changed begins with no run.

A queue of the new program that has the policy and the topology of a saved one goes on from that,
with its own options (`gap`, `idle`, `nodes`, `overflow`, a length): what is held is released to the
new patterns. Any other queue begins with all dots that were seen as released, and a pattern
without a queue with the next event.

A pattern that changed may retire (`ketal.runtime.retirement`): its runs and its queue go on beside
those of the new program. For that the old program is compiled again, from its text and its
parameters, which are in the state. It must have the fingerprints of the state: a registered
guard of another version, or another ketal, may give others.

The one rule: what was seen stays seen, and what is held is released, whatever the program.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from ketal.analysis.parameters import text_of
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import KetalError, StateError
from ketal.model.limits import Limits
from ketal.programs.compiling import compile
from ketal.programs.program import Program
from ketal.runtime.admission.identification import Admission
from ketal.runtime.queues.pattern_queues import PatternQueue
from ketal.runtime.state.recorder import Recorder
from ketal.runtime.state.records import Records, damage_refused
from ketal.runtime.state.release_recorder import ReleaseRecorder

# --- what changed ---


def mark(compiled: CompiledPattern) -> dict[str, str]:
    """Return the fingerprint of a pattern and its parts, by which a later one is compared."""
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
    """Return, as a text, what changed between the marks (name → description) of two programs."""
    differences = []
    for name in saved:
        if name not in now:
            differences.append(f"pattern {name} is gone")
        elif saved[name]["fingerprint"] != now[name]["fingerprint"]:
            parts = [
                part
                for part in saved[name]
                if part != "fingerprint" and saved[name][part] != now[name].get(part)
            ]
            differences.append(f"pattern {name} changed: {', '.join(parts) or 'its compiled form'}")
    differences += [f"pattern {name} is new" for name in now if name not in saved]
    return "; ".join(differences)


# --- what the new program takes over ---


class SavedQueue(NamedTuple):
    """What `PatternQueue.fits` returned of a queue that was saved."""

    kind: list[Any]
    options: list[Any]
    names: list[str]


def begin_anew(recorder: Recorder, read: Records, unchanged: Collection[str]) -> None:
    """Load the state of an execution into the parts of one with another program.

    Parameters
    ----------
    recorder : Recorder
        That of the parts, which are fresh.
    read : Records
        The state.
    unchanged : collection of str
        The patterns that go on with their runs.
    """
    recorder.load_admission(read)
    recorder.admission.look_back()
    recorder.release.restore_clocks()
    _begin_queues(recorder.release, recorder.admission, read)
    recorder.release.load_patterns(read, unchanged)
    if recorder.retiring is not None:
        _begin_queues(recorder.retiring, recorder.admission, read)
        recorder.retiring.load_patterns(read)


def _begin_queues(recorder: ReleaseRecorder, admission: Admission, read: Records) -> None:
    """Load each queue that fits a saved one, and begin the others."""
    saved = [SavedQueue(*state[2]) for state in read.all("queue")]
    goes_on: dict[str, str] = {}
    for queue in recorder.queues.queues:
        fitting = _fitting(queue, saved)
        if fitting is None:
            _begin(queue, admission, read.one("core")["watermark_us"])
        else:
            goes_on[queue.name] = min(fitting.names)
    recorder.load_queues(read, goes_on)


def _fitting(queue: PatternQueue, saved: Sequence[SavedQueue]) -> SavedQueue | None:
    """Return the saved queue that this one goes on from, if one fits."""
    kind, options, names = queue.fits()
    fitting = [other for other in saved if other.kind == kind]
    same = [other for other in fitting if other.options == options]
    own = [other for other in same or fitting if set(other.names) & set(names)]
    return next(iter(own or same or fitting), None)


def _begin(queue: PatternQueue, admission: Admission, watermark_us: int | None) -> None:
    """Begin a queue in the middle of an execution: what was seen counts as released."""
    hold_back = queue.hold_back
    if watermark_us is not None:
        hold_back.advance(watermark_us)
    seen = admission.intake.seen()
    hold_back.begin(seen)
    if admission.membership is not None:
        for node in seen:
            if node not in admission.membership.live:
                hold_back.leave(node)


# --- the program of a state ---


def about(program: Program) -> dict[str, Any]:
    """Return a program as plain data: its marks by pattern, and its source."""
    marks = {compiled.name: mark(compiled) for compiled in program.compiled}
    return {"marks": marks, "source": _source_text(program)}


def saved_program(read: Records) -> Program:
    """Return the program of a state, compiled again.

    Raises
    ------
    StateError
        If it cannot be compiled any more, or has other fingerprints then.
    """
    saved = read.one("program")
    source = saved.get("source", "")
    if not source:
        raise StateError(
            "the saved state does not hold the text of its patterns: they were compiled from none"
        )
    with damage_refused():
        row = json.loads(source)
        try:
            limits = Limits.named(row["limits"])
            whole = compile(row["text"], name=row["name"], limits=limits, **row["params"])
        except KetalError as fault:
            raise StateError(
                f"the saved state's patterns do not compile any more: {fault}"
            ) from None
    for name, mark in saved["marks"].items():
        if whole[name].fingerprint != mark["fingerprint"]:
            guards = ", ".join(g.name for g in whole[name].one.registered)
            why = f"a registered guard of it ({guards})" if guards else "ketal itself"
            raise StateError(f"pattern {name} is not what the saved state has: {why} changed")
    return whole.only(row["patterns"])


def _source_text(program: Program) -> str:
    """Return the text and parameters of a program as JSON; empty for one that had no source."""
    if program.source is None:
        return ""
    limits = program.compiled[0].limits
    return json.dumps(
        {
            "text": program.source.text,
            "name": program.source.name,
            "params": {name: text_of(value) for name, value in program.params.items()},
            "limits": asdict(limits),
            "patterns": list(program.names),
        },
        sort_keys=True,
    )
