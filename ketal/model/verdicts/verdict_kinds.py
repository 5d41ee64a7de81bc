"""The kinds of verdicts.

The one rule: every command, sink and handler supports each kind that is listed here.
"""

from __future__ import annotations

from typing import get_args

from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.execution_verdicts import Gap, Late, Rejected
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.run_verdicts import Overflow, Transition

RunVerdict = Match | Violation | Incomplete | TimedOut | Overflow | Transition
"""The verdicts about one pattern."""

Verdict = RunVerdict | Late | Gap | Rejected
Numbered = tuple[int, list[Verdict]]
"""(index of an item of a batch, the verdicts on it)."""

KINDS = tuple(verdict.kind for verdict in get_args(Verdict))
"""The kinds of verdicts, in the order in which messages list them."""
COUNTED = {
    "matches": ("match", "matches"),
    "violations": ("violation", "violations"),
    "incomplete": ("incomplete run", "incomplete runs"),
    "timed_out": ("timed out", "timed out"),
}
"""The counts of verdicts in a pattern's counts → their nouns in the summary: singular, plural."""
