"""The data of a space-time diagram: events with their rows, messages, and verdicts.

Events are in canonical order. The row of an event is the length of the longest chain of links that
ends in it, so every link leads downwards, and concurrent events may share a row.

The one rule: messages and lines are exactly the edges of the causal graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ketal.errors import SettingError
from ketal.explanation.explaining import explain_verdict
from ketal.explanation.guard_evidence import GuardEvidence, possible_order_in_words
from ketal.explanation.judged_log import Explained, JudgedLog, by_turns
from ketal.explanation.observed_run import ObservedRun
from ketal.explanation.reasons import Explanation
from ketal.explanation.surroundings import marked_events
from ketal.logs import Log, watched
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.limits import Limits
from ketal.model.log_arguments import RecordBatch, log_with_clocks
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.find_verdicts import Match
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.wording import counted, file_and_line, scope_text
from ketal.pictures.clocks.timeline_layout import longest_chains
from ketal.pictures.graphs.graph import Picture
from ketal.pictures.labels import common_end, in_natural_order
from ketal.programs.program import Program
from ketal.runtime.admission.execution_events import ExecutionEvents, executions_of
from ketal.runtime.admission.known_counters import KnownCounters, impossible_text

_PRECEDENCE = ("violation", "match", "other")
EXACT_MAX = 2**53
"""JavaScript rounds larger integers."""


class ViewedLog:
    """A log as `ketal view` reads it: once, into memory, with its executions.

    A SettingError if it cannot be read, or an execution has more events than `viewed_events_max`; a
    TypeError if `log` is not a log.
    """

    def __init__(self, log: Log | Iterable[Event], limits: Limits) -> None:
        held: list[RecordBatch] = []

        def holding(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            for batch in batches:
                held.append(batch)
                yield batch

        given = watched(log_with_clocks(log), holding)
        self.executions = executions_of(given, limits, bound="viewed_events_max")
        self.records = Log.of_batches(lambda: iter(held), undecided=given.undecided)
        """The records as they were read, as a log."""
        self.scheme = "" if given.undecided is None else given.undecided.scheme
        """The timestamping scheme whose clocks do not decide happened-before; empty if they do."""


class SpaceTime:
    """The diagram of one execution of a log.

    `undecided` is the timestamping scheme whose clocks do not decide happened-before; empty if they
    do.
    """

    def __init__(self, read: ExecutionEvents, undecided: str) -> None:
        self.name = self.title = read.name
        """The execution's name, empty if the log is not divided; and its title on the page."""
        self.undecided = undecided
        self.read = read
        self.events = canonical(read.events())
        known = KnownCounters(self.events)
        self.impossible = known.release(self.events)
        """How many events have an impossible clock."""
        highest = max(known.highest.values(), default=0)
        if highest > EXACT_MAX:
            raise SettingError(
                f"a clock has the counter {highest}, but counters above 2^53 cannot be shown"
            )
        self.graph = CausalGraph(self.events)
        self.number = {event.dot: number for number, event in enumerate(self.events)}
        """The index of each event in `events`."""
        self.messages = [
            (self.number[source.dot], number)
            for number, event in enumerate(self.events)
            for source in self.graph.messages_to(event)
        ]
        """For each message, the indices of the sending and the receiving event."""
        self.rows = longest_chains([event.node for event in self.events], self.messages)
        """The row of each event."""
        self.verdicts: list[dict[str, Any]] = []
        """The verdicts that are shown, as plain data; events are indices."""
        self.marks: dict[int, str] = {}
        """How events of verdicts are marked; a violation has precedence, then a match."""
        self.more_verdicts = 0
        """How many verdicts are not shown."""
        self.unmarked = 0
        """How many of these were found, and are not shown for the limit `viewed_verdicts_max`."""
        self.overflows: list[Overflow] = []
        """The limits that were reached, so that verdicts may be missing."""
        self.automata: list[dict[str, Any]] = []
        """For each check, its name and the moves of its scopes, as plain data."""

    @property
    def nodes(self) -> list[str]:
        """The nodes, by name; numbers in names by value."""
        return in_natural_order(self.graph.nodes)

    @property
    def note(self) -> str:
        """Why arrows may be wrong or mean less, or verdicts are or may be missing; mostly empty."""
        order = possible_order_in_words(self.undecided)
        impossible = impossible_text(self.impossible) if self.impossible else ""
        limits = ", ".join(dict.fromkeys(overflow.limit for overflow in self.overflows))
        missing = f"verdicts may be missing ({limits} reached)" if limits else ""
        unmarked = unmarked_text(self.unmarked) if self.unmarked else ""
        return "; ".join(filter(None, (order, impossible, missing, unmarked)))

    def place(self, event: Event) -> str:
        """Return the place of an event in the log; empty if unknown."""
        return self.read.place(event.dot)

    def add_verdicts(self, judged: JudgedLog, own: Sequence[Explained], verdicts_max: int) -> None:
        """Add the execution's verdicts, at most `verdicts_max`, and the moves of its checks."""
        # If not all are shown, each pattern has a share, and its violations come first.
        by_kind = sorted(range(len(own)), key=lambda n: (not isinstance(own[n], Violation), n))
        order = by_turns(by_kind, lambda n: own[n].pattern)
        # Matches that are only counted, as with `return count`, are among those not shown.
        matches = sum(run.counts.matches for run in judged.runs_of(self.name))
        unlisted = matches - sum(isinstance(one, Match) for one in own)
        self.unmarked = max(0, len(own) - verdicts_max)
        self.more_verdicts = unlisted + self.unmarked
        for number in sorted(order[:verdicts_max]):
            verdict = own[number]
            explanation = explain_verdict(judged, verdict)
            own_events = marked_events(explanation)
            events = [self.number[event.dot] for _, event in own_events]
            # Of a violation only the event is marked, not the steps taken before.
            event = explanation.event
            marked = events if event is None else [self.number[event.dot]]
            mark = verdict.kind if isinstance(verdict, Match | Violation) else "other"
            for one in marked:
                self.marks[one] = min(mark, self.marks.get(one, mark), key=_PRECEDENCE.index)
            self.verdicts.append(
                {
                    "steps": [step for step, _ in own_events],
                    "play": self._replay_data(judged, explanation),
                    "kind": verdict.kind,
                    "pattern": verdict.pattern,
                    "id": verdict.id,
                    "text": str(verdict),
                    "lines": list(explanation.lines()),
                    "events": events,
                    "paths": [
                        [self.number[link.source.dot] for link in pair.path]
                        + [self.number[pair.path[-1].target.dot]]
                        for pair in explanation.pairs
                        if pair.path
                    ],
                }
            )

        self.automata = [
            {"name": run.compiled.name, **self._move_data(run)} for run in self._checks(judged)
        ]

    def _replay_data(self, judged: JudgedLog, explanation: Explanation) -> dict[str, Any] | None:
        """Return the order of events that gives a verdict of a `mode`, and the moves of its check.

        None for a verdict that the canonical order gives. `automaton` is the index of the check in
        `automata`, or -1 for a find.
        """
        if not explanation.extension:
            return None
        verdict = explanation.verdict
        events = [one.event for one in explanation.extension]
        if not isinstance(verdict, Violation):
            order = [self.number[event.dot] for event in events]
            return {"automaton": -1, "order": order, "scopes": [], "moves": [], "more": 0}
        run = judged.run_of(verdict)
        number = self._checks(judged).index(run)
        return {"automaton": number, **self._move_data(judged.rerun(run, events))}

    def _checks(self, judged: JudgedLog) -> list[ObservedRun]:
        return [run for run in judged.runs_of(self.name) if run.compiled.kind == "check"]

    def _move_data(self, run: ObservedRun) -> dict[str, Any]:
        """Return the moves of the runs of a check.

        `order` has the indices of the events in offer order. Each move is its position in that
        order, the indices of its scope and its event, and the states before and after.
        """
        scopes: dict[FrozenMapping, int] = {}
        moves = []
        for move in run.observed.moves:
            scope = scopes.setdefault(move.scope, len(scopes))
            number = self.number[move.event.dot]
            moves.append([move.position, scope, number, list(move.before), list(move.after)])
        return {
            "scopes": [scope_text(scope) for scope in scopes],
            "order": [self.number[event.dot] for event in run.events],
            "moves": moves,
            "more": run.observed.moved - len(run.observed.moves),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the execution as the page reads it: columns, with names replaced by numbers."""
        nodes = {node: number for number, node in enumerate(self.nodes)}
        types: dict[str, int] = {}
        files: dict[str, int] = {}
        changes = [self._clock_changes(event, nodes) for event in self.events]
        places = [file_and_line(self.place(event)) for event in self.events]
        return {
            "name": self.title,
            "node": [nodes[event.node] for event in self.events],
            "counter": [event.counter for event in self.events],
            "type": [types.setdefault(event.type, len(types)) for event in self.events],
            "row": self.rows,
            "file": [
                files.setdefault(file, len(files)) if file or line else -1 for file, line in places
            ],
            "line": [line for _, line in places],
            "time": [event.time for event in self.events],
            "data": [_page_value(event.data) or None for event in self.events],
            "id": [event.id for event in self.events],
            "changes": changes,
            "messages": [number for pair in self.messages for number in pair],
            "verdicts": self.verdicts,
            "marks": self.marks,
            "automata": self.automata,
            "more": self.more_verdicts,
            "rejected": self.read.rejected,
            "undecided": self.undecided,
            "note": self.note,
            "nodes": self.nodes,
            "commonEnd": common_end(self.nodes),
            "others": list(nodes)[len(self.nodes) :],
            "types": list(types),
            "files": list(files),
        }

    def _clock_changes(self, event: Event, nodes: dict[str, int]) -> list[int]:
        """Return the clock entries of an event that its predecessor on the node does not have.

        Nodes without events in the log are numbered after the others.
        """
        before = self.graph.previous(event)
        old = {} if before is None else before.clock
        return [
            part
            for node, counter in event.clock.items()
            if old.get(node) != counter
            for part in (nodes.setdefault(node, len(nodes)), counter)
        ]


def guard_texts(program: Program) -> dict[str, dict[str, str]]:
    """Return the text of each guard that a pattern declares, by pattern and name, for searching."""
    out = {}
    for compiled in program.compiled:
        evidence = GuardEvidence(compiled)
        out[compiled.name] = {name: evidence.text(guard) for name, guard in compiled.declared}
    return out


def check_pictures(program: Program) -> dict[str, dict[str, Any]]:
    """Return the automaton of each check by name, as the page reads it."""
    return {
        compiled.name: {
            # What the page says while no scope has a run.
            "idle": "judged over every order of the events; each of its verdicts shows one"
            if compiled.pattern.mode
            else "no event was offered to it",
            # Empty if the automaton is too large to be drawn.
            "picture": Picture.of(compiled)._repr_svg_() or "",
            "states": compiled.automaton.names,
        }
        for compiled in program.compiled
        if compiled.kind == "check"
    }


def _page_value(value: Any) -> Any:
    """Return an attribute for the page: numbers that JSON or JavaScript would change as text."""
    if isinstance(value, dict):
        return {name: _page_value(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_page_value(one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    exact = abs(value) <= EXACT_MAX if isinstance(value, int) else math.isfinite(value)
    return value if exact else str(value)


def unmarked_text(number: int) -> str:
    """Return the statement that some verdicts are not shown for a limit."""
    more = counted(number, "more verdict is", "more verdicts are")
    return f"{more} neither marked nor explained (limit viewed_verdicts_max)"


def space_times(log: ViewedLog, program: Program | None, limits: Limits) -> list[SpaceTime]:
    """Return the executions of a log, each with the verdicts of a program."""
    drawn = [SpaceTime(read, log.scheme) for read in log.executions.values()]
    if program is not None:
        judged = JudgedLog(program, log.records, limits, moves_max=limits.viewed_moves_max)
        verdicts: dict[str, list[Explained]] = {}
        for verdict in judged.explainable:
            verdicts.setdefault(verdict.execution, []).append(verdict)
        overflows: dict[str, list[Overflow]] = {}
        for overflow in judged.overflows:
            overflows.setdefault(overflow.execution, []).append(overflow)
        for one in drawn:
            one.overflows = overflows.get(one.name, [])
            one.add_verdicts(judged, verdicts.get(one.name, ()), limits.viewed_verdicts_max)
    return drawn
