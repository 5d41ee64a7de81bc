"""ketal: complex event detection with causal operators.

A pattern file defines which orders of events a distributed program may have, or which to search
for. ketal decides from vector clocks, so the result does not depend on the order in which messages
happened to arrive.

Names are imported when they are first used, so `import ketal` itself is fast.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "compile": "programs.compiling", "lint": "programs.compiling",
    "load": "programs.compiling", "build": "programs.compiling", "Program": "programs.program",
    "Monitor": "runtime.monitor", "run": "runtime.batch_run", "Verdicts": "runtime.log_verdicts",
    "possibly": "runtime.modes.possibly_definitely",
    "definitely": "runtime.modes.possibly_definitely",
    "read_log": "logs", "Log": "logs", "write_jsonl": "logs",
    "Event": "model.events.event", "Dot": "model.events.dot", "Control": "model.events.control",
    "register_guard": "analysis.registered_guards",
    "audit": "auditing.report", "Audit": "auditing.report", "Fault": "auditing.report",
    "stats": "auditing.contents.contents_counting", "LogStats": "auditing.contents.contents_report",
    "cuts": "explanation.cuts.cut_report", "LogCuts": "explanation.cuts.cut_report",
    "explain": "explanation.explaining", "Explanation": "explanation.reasons",
    "view": "explanation.views.viewing", "View": "explanation.views.viewing",
    "Limits": "model.limits",
    "Match": "model.verdicts.find_verdicts", "TimedOut": "model.verdicts.find_verdicts",
    "Violation": "model.verdicts.check_verdicts", "Incomplete": "model.verdicts.check_verdicts",
    "ViolationError": "model.verdicts.check_verdicts",
    "Overflow": "model.verdicts.run_verdicts", "Transition": "model.verdicts.run_verdicts",
    "Late": "model.verdicts.execution_verdicts", "Gap": "model.verdicts.execution_verdicts",
    "Rejected": "model.verdicts.execution_verdicts", "Verdict": "model.verdicts.verdict_kinds",
    "Summary": "model.summaries",
    "Diagnostic": "errors", "EventError": "errors", "KetalError": "errors",
    "NotAvailableError": "errors", "PatternError": "errors", "SettingError": "errors",
    "StateError": "errors",
}  # fmt: skip

if TYPE_CHECKING:
    from ketal.analysis.registered_guards import register_guard
    from ketal.auditing.contents.contents_counting import stats
    from ketal.auditing.contents.contents_report import LogStats
    from ketal.auditing.report import Audit, Fault, audit
    from ketal.errors import (
        Diagnostic,
        EventError,
        KetalError,
        NotAvailableError,
        PatternError,
        SettingError,
        StateError,
    )
    from ketal.explanation.cuts.cut_report import LogCuts, cuts
    from ketal.explanation.explaining import explain
    from ketal.explanation.reasons import Explanation
    from ketal.explanation.views.viewing import View, view
    from ketal.logs import Log, read_log, write_jsonl
    from ketal.model.events.control import Control
    from ketal.model.events.dot import Dot
    from ketal.model.events.event import Event
    from ketal.model.limits import Limits
    from ketal.model.summaries import Summary
    from ketal.model.verdicts.check_verdicts import Incomplete, Violation, ViolationError
    from ketal.model.verdicts.execution_verdicts import Gap, Late, Rejected
    from ketal.model.verdicts.find_verdicts import Match, TimedOut
    from ketal.model.verdicts.run_verdicts import Overflow, Transition
    from ketal.model.verdicts.verdict_kinds import Verdict
    from ketal.programs.compiling import build, compile, lint, load
    from ketal.programs.program import Program
    from ketal.runtime.batch_run import run
    from ketal.runtime.log_verdicts import Verdicts
    from ketal.runtime.modes.possibly_definitely import definitely, possibly
    from ketal.runtime.monitor import Monitor

__all__ = [
    "Audit",
    "Control",
    "Diagnostic",
    "Dot",
    "Event",
    "EventError",
    "Explanation",
    "Fault",
    "Gap",
    "Incomplete",
    "KetalError",
    "Late",
    "Limits",
    "Log",
    "LogCuts",
    "LogStats",
    "Match",
    "Monitor",
    "NotAvailableError",
    "Overflow",
    "PatternError",
    "Program",
    "Rejected",
    "SettingError",
    "StateError",
    "Summary",
    "TimedOut",
    "Transition",
    "Verdict",
    "Verdicts",
    "View",
    "Violation",
    "ViolationError",
    "audit",
    "build",
    "compile",
    "cuts",
    "definitely",
    "explain",
    "lint",
    "load",
    "possibly",
    "read_log",
    "register_guard",
    "run",
    "stats",
    "view",
    "write_jsonl",
]


def __getattr__(name: str) -> Any:
    if name == "trace":
        return importlib.import_module("ketal.trace")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(_absent(name), name=name, obj=sys.modules[__name__])
    value = globals()[name] = getattr(importlib.import_module(f"ketal.{home}"), name)
    return value


def _absent(name: str) -> str:
    """Return the message for a name that ketal does not have; Python adds the nearest name."""
    if name == "streaming":
        return "ketal.streaming is not imported with ketal: import ketal.streaming"
    return f"module 'ketal' has no attribute {name!r}"


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "trace"})
