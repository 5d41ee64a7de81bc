"""The lines of a run's verdicts and of its summary, in the form that `--output` names.

In human output only the first verdicts of each cause have their own lines, and the others are
counted. The cause of a violation is the type of its event and the expected types; the cause of an
overflow is the limit and what was given up; the cause of a rejection is its reason, whatever the
values in it.

The one rule: every form has the same verdicts; SARIF, which is one document, has them at the end.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketal.cli import complain
from ketal.cli.output import summary_text
from ketal.cli.output.annotations import Annotation, FilePlace, github_line, sarif
from ketal.cli.output.output_lines import as_json
from ketal.errors import printable
from ketal.explanation.verdict_places import VerdictPlaces
from ketal.model.verdicts.check_verdicts import Violation, expected_text
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.find_verdicts import FindVerdict
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.wording import counted, file_and_line

if TYPE_CHECKING:
    from ketal.explanation.judged_log import JudgedLog
    from ketal.explanation.reasons import Explanation
    from ketal.model.events.dot import Dot
    from ketal.model.events.event import Event
    from ketal.model.limits import Limits
    from ketal.model.verdicts.verdict_kinds import Verdict
    from ketal.programs.program import Program

_VERDICT_FIELDS = ("pattern", "verdict", "scope")
"""The fields of an explanation in JSON that repeat fields of its verdict."""
_VALUES = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*")|\S+@\d+|\d+""")
"""What differs in the reasons of records that are rejected for one cause: texts, dots, numbers."""
OWN_LINES_MAX = 3
"""How many verdicts of each cause have their own lines."""
CAUSES_MAX = 1_000
"""How many causes are counted; beyond them every verdict has its own line."""


@dataclass(slots=True)
class _CauseGroup:
    """The verdicts of one cause: the text, event and place of the first, and how many there are."""

    text: str
    first: str
    count: int = 0
    values_differ: bool = False


class VerdictGroups:
    """Counts the verdicts of each cause; `place_of` returns the place of a verdict's event."""

    def __init__(self, place_of: Callable[[Verdict], str]) -> None:
        self._place_of = place_of
        self._groups: dict[str, _CauseGroup] = {}

    def has_own_lines(self, verdict: Verdict) -> bool:
        """Count a verdict; return whether it has its own line."""
        text = _cause(verdict)
        cause = _VALUES.sub("…", text) if isinstance(verdict, Rejected) else text
        group = self._groups.get(cause)
        if group is None:
            if not cause or len(self._groups) >= CAUSES_MAX:
                return True
            parts = (str(getattr(verdict, "event", None) or ""), self._place_of(verdict))
            group = self._groups[cause] = _CauseGroup(text, " at ".join(filter(None, parts)))
        group.count += 1
        group.values_differ |= text != group.text
        return group.count <= OWN_LINES_MAX

    def lines(self) -> Iterator[str]:
        """Yield a line for each cause with verdicts that had no line."""
        for group in self._groups.values():
            if group.count > OWN_LINES_MAX:
                others = " with different values" if group.values_differ else ""
                since = f", first {group.first}" if group.first else ""
                yield f"{group.text}: {counted(group.count, 'time')}{others}{since}"


def _cause(verdict: Verdict) -> str:
    match verdict:
        case Violation():
            cause = f"{verdict.pattern}: {verdict.type}: {expected_text(verdict.expected)}"
        case Overflow():
            pattern = f"{verdict.pattern}: " if verdict.pattern else ""
            cause = f"{pattern}limit {verdict.limit} reached: {verdict.given_up}"
        case Rejected():
            cause = verdict.reason
        case _:
            return ""
    return f"{verdict.kind} {cause}"


class VerdictLines:
    """Renders the verdicts of `ketal run`, and then its summary.

    The limit `verdicts_max` bounds the results of a SARIF log. `judged` is the log that explains
    the verdicts under `--explain` and `--show`; None without these.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        program: Program,
        limits: Limits,
        places: VerdictPlaces,
        judged: JudgedLog | None,
    ) -> None:
        self._args = args
        self._program = program
        self._annotations_max = limits.verdicts_max
        self._places = places
        self._judged = judged
        self._json = args.output == "json"
        self._annotations: list[Annotation] = []
        self._omitted_annotations = 0
        self._groups = VerdictGroups(self._places.of)
        self._grouping = args.output == "human" and not (args.live or args.trace)

    # --- verdicts ---

    def has_own_lines(self, verdict: Verdict) -> bool:
        """Count a verdict; return whether it has its own lines."""
        # Verdicts that --first counts have; it does not count rejections.
        singly = self._args.first is not None and isinstance(verdict, IdentifiedVerdict)
        grouping = self._grouping and not singly
        return not self._args.count and (not grouping or self._groups.has_own_lines(verdict))

    def verdict_lines(self, verdict: Verdict) -> list[str]:
        """Return the lines of a verdict; empty for SARIF, which is written at the end."""
        explanation, drawn = self._explained(verdict)
        if self._json:
            as_data = verdict.to_dict(self._places.of_dots)
            if explanation is not None:
                reasons = explanation.to_dict().items()
                as_data["explanation"] = {k: v for k, v in reasons if k not in _VERDICT_FIELDS}
            return [as_json(as_data)]
        if self._args.output != "human":
            return self._annotate(verdict, explanation)
        if explanation is not None and self._args.explain:
            lines = list(explanation.lines())
        else:
            places = self._places.text(verdict)
            lines = [f"{verdict} ({places})" if places else str(verdict)]
        return [printable(line) for line in (*lines, *(f"  {line}" for line in drawn))]

    def _explained(self, verdict: Verdict) -> tuple[Explanation | None, list[str]]:
        """Return the explanation of a verdict, and the lines that draw the events around it.

        Without `--explain` and `--show` these are None and empty.
        """
        if self._judged is None:
            return None, []
        from ketal.explanation.explaining import diagram, explanation_of

        explanation = explanation_of(self._judged, verdict)
        if explanation is None or not self._args.show:
            return explanation, []
        return explanation, diagram(self._judged, explanation)

    def _annotate(self, verdict: Verdict, explanation: Explanation | None) -> list[str]:
        """Return the line of an annotation for a verdict; for SARIF record it, and return none."""
        annotation = self._annotation(verdict, explanation)
        if self._args.output == "github":
            return [github_line(annotation)]
        if len(self._annotations) < self._annotations_max:
            self._annotations.append(annotation)
        else:
            self._omitted_annotations += 1
        return []

    def _annotation(self, verdict: Verdict, explanation: Explanation | None) -> Annotation:
        place, related = self._places.of(verdict), []
        if isinstance(verdict, FindVerdict):
            of_steps = self._places.of_steps(verdict)
            for (step, dot), of_step in zip(verdict.steps, of_steps, strict=True):
                related.append((FilePlace(*file_and_line(of_step)), f"{step}={dot}"))
                place = of_step or place
        pattern, name = "", ""
        if not isinstance(verdict, Rejected):
            pattern, name = verdict.pattern, verdict.id
        return Annotation(
            verdict.kind,
            "error" if verdict.kind in self._args.fail_on else "warning",
            str(verdict if explanation is None else explanation),
            FilePlace(*file_and_line(place)),
            pattern,
            tuple(one for one in related if one[0].file),
            name,
        )

    # --- the summary ---

    def summary_lines(
        self,
        summary: dict[str, Any],
        held: Sequence[tuple[Event, Dot | None]],
        rejected: Rejected | None,
        *,
        is_partial: bool,
    ) -> Iterator[str]:
        """Yield the lines of a summary.

        `held` are the held-back events to list under `--stats`, each with a dot that it waits for;
        `rejected` is the first rejection. `is_partial` is as for `summary_text.lines`.
        """
        if self._json:
            report: dict[str, Any] = {"summary": summary}
            if self._args.stats:
                report["held_back"] = [
                    {"event": str(event.dot), "waits_for": str(dot) if dot else None}
                    for event, dot in held
                ]
            yield as_json(report)
        elif self._args.output == "sarif":
            yield sarif(self._annotations, summary=summary)
            if self._omitted_annotations:
                left = counted(self._omitted_annotations, "verdict is", "verdicts are")
                complain(f"{left} omitted from the SARIF log (limit verdicts_max)")
        else:
            texts = list(self._groups.lines())
            texts += (f"held back {event}: waits for {dot or 'its turn'}" for event, dot in held)
            if self._args.stats and not held:
                texts.append("held back: nothing")
            # A rejection that was listed is not repeated.
            unlisted = rejected if self._args.count else None
            hint = "" if self._args.stats else " (--stats lists them)"
            texts += summary_text.lines(
                summary, self._program, unlisted, held_back_hint=hint, is_partial=is_partial
            )
            yield from map(printable, texts)
