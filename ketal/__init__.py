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
    "audit": "auditing.report", "Audit": "auditing.faults", "Fault": "auditing.faults",
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
    from ketal.analysis.registered_guards import register_guard as register_guard
    from ketal.auditing.contents.contents_counting import stats as stats
    from ketal.auditing.contents.contents_report import LogStats as LogStats
    from ketal.auditing.faults import Audit as Audit
    from ketal.auditing.faults import Fault as Fault
    from ketal.auditing.report import audit as audit
    from ketal.errors import Diagnostic as Diagnostic
    from ketal.errors import EventError as EventError
    from ketal.errors import KetalError as KetalError
    from ketal.errors import NotAvailableError as NotAvailableError
    from ketal.errors import PatternError as PatternError
    from ketal.errors import SettingError as SettingError
    from ketal.errors import StateError as StateError
    from ketal.explanation.cuts.cut_report import LogCuts as LogCuts
    from ketal.explanation.cuts.cut_report import cuts as cuts
    from ketal.explanation.explaining import explain as explain
    from ketal.explanation.reasons import Explanation as Explanation
    from ketal.explanation.views.viewing import View as View
    from ketal.explanation.views.viewing import view as view
    from ketal.logs import Log as Log
    from ketal.logs import read_log as read_log
    from ketal.logs import write_jsonl as write_jsonl
    from ketal.model.events.control import Control as Control
    from ketal.model.events.dot import Dot as Dot
    from ketal.model.events.event import Event as Event
    from ketal.model.limits import Limits as Limits
    from ketal.model.summaries import Summary as Summary
    from ketal.model.verdicts.check_verdicts import Incomplete as Incomplete
    from ketal.model.verdicts.check_verdicts import Violation as Violation
    from ketal.model.verdicts.check_verdicts import ViolationError as ViolationError
    from ketal.model.verdicts.execution_verdicts import Gap as Gap
    from ketal.model.verdicts.execution_verdicts import Late as Late
    from ketal.model.verdicts.execution_verdicts import Rejected as Rejected
    from ketal.model.verdicts.find_verdicts import Match as Match
    from ketal.model.verdicts.find_verdicts import TimedOut as TimedOut
    from ketal.model.verdicts.run_verdicts import Overflow as Overflow
    from ketal.model.verdicts.run_verdicts import Transition as Transition
    from ketal.model.verdicts.verdict_kinds import Verdict as Verdict
    from ketal.programs.compiling import build as build
    from ketal.programs.compiling import compile as compile
    from ketal.programs.compiling import lint as lint
    from ketal.programs.compiling import load as load
    from ketal.programs.program import Program as Program
    from ketal.runtime.batch_run import run as run
    from ketal.runtime.log_verdicts import Verdicts as Verdicts
    from ketal.runtime.modes.possibly_definitely import definitely as definitely
    from ketal.runtime.modes.possibly_definitely import possibly as possibly
    from ketal.runtime.monitor import Monitor as Monitor

__all__ = sorted(_HOMES)


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
