"""ketal: complex event detection whose operators speak of causality.

A pattern file says which orders of events a distributed program may have, or
which ones to look for; ketal answers from vector clocks, so that the answer
does not depend on the order in which messages happened to arrive.

Names load when they are first used: `import ketal` itself is quick.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "compile": "program", "load": "program", "lint": "program", "build": "program",
    "Program": "program",
    "Monitor": "monitor", "run": "finite", "Verdicts": "finite",
    "possibly": "modal", "definitely": "modal",
    "read_log": "logs", "Log": "logs", "write_jsonl": "logs",
    "Event": "event", "Dot": "event", "Control": "event",
    "register_guard": "guards",
    "audit": "auditing", "Audit": "auditing", "Fault": "auditing",
    "Limits": "limits",
    "Match": "verdicts", "Violation": "verdicts", "Incomplete": "verdicts",
    "TimedOut": "verdicts", "Late": "verdicts", "Gap": "verdicts", "Rejected": "verdicts",
    "Overflow": "verdicts", "Transition": "verdicts", "Verdict": "verdicts",
    "Diagnostic": "errors", "EventError": "errors", "KetalError": "errors",
    "NotAvailableError": "errors", "PatternError": "errors", "SettingError": "errors",
    "StateError": "errors",
}  # fmt: skip

_NOT_YET = frozenset({"explain", "view"})
"""Names of the interface that this version does not have: `hasattr` is False, the error says it."""

if TYPE_CHECKING:
    from ketal.auditing import Audit, Fault, audit
    from ketal.errors import (
        Diagnostic,
        EventError,
        KetalError,
        NotAvailableError,
        PatternError,
        SettingError,
        StateError,
    )
    from ketal.event import Control, Dot, Event
    from ketal.finite import Verdicts, run
    from ketal.guards import register_guard
    from ketal.limits import Limits
    from ketal.logs import Log, read_log, write_jsonl
    from ketal.modal import definitely, possibly
    from ketal.monitor import Monitor
    from ketal.program import Program, build, compile, lint, load
    from ketal.verdicts import (
        Gap,
        Incomplete,
        Late,
        Match,
        Overflow,
        Rejected,
        TimedOut,
        Transition,
        Verdict,
        Violation,
    )

__all__ = [
    "Audit",
    "Control",
    "Diagnostic",
    "Dot",
    "Event",
    "EventError",
    "Fault",
    "Gap",
    "Incomplete",
    "KetalError",
    "Late",
    "Limits",
    "Log",
    "Match",
    "Monitor",
    "NotAvailableError",
    "Overflow",
    "PatternError",
    "Program",
    "Rejected",
    "SettingError",
    "StateError",
    "TimedOut",
    "Transition",
    "Verdict",
    "Verdicts",
    "Violation",
    "audit",
    "build",
    "compile",
    "definitely",
    "lint",
    "load",
    "possibly",
    "read_log",
    "register_guard",
    "run",
    "write_jsonl",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(_absent(name), name=name, obj=sys.modules[__name__])
    value = globals()[name] = getattr(importlib.import_module(f"ketal.{home}"), name)
    return value


def _absent(name: str) -> str:
    """Say why there is no such name; Python itself adds the nearest one, of `__dir__`."""
    if name in _NOT_YET:
        return f"ketal.{name} is not available yet"
    if name == "streaming":
        return "ketal.streaming is not imported with ketal: import ketal.streaming"
    return f"module 'ketal' has no attribute {name!r}"


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
