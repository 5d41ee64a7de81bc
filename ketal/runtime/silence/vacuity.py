"""Vacuity: which parts of a pattern no event of a log satisfied, and why.

A pattern is vacuous if its answer would be the same whatever the events were: no event was judged,
or none satisfies a step that every word has, or none has a name that the pattern uses (Beer,
Ben-David, Eisner and Rodeh, "Efficient detection of vacuity in temporal model checking", 2001).
Perhaps such events did not happen. Or a name is misspelt; then the log has a similar name that the
pattern does not use.

The one rule: a cause is reported once, and its consequences are not reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.analysis.bodies import required_steps
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.counted.named_values import NamedValue, NameKey, needed_names
from ketal.compiler.predicates import Formula
from ketal.engine.pattern_run import PatternRun
from ketal.engine.statistics.comparison_kinds import KindCounts
from ketal.engine.statistics.log_names import NamesMet
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.summaries import total
from ketal.model.syntax_walks import walk
from ketal.model.wording import counted
from ketal.runtime.silence.near_names import SHOWN_MAX, nearest, own_field_note
from ketal.runtime.silence.unknown_comparisons import Entry, entry_text, place_of, unknown_entries

Findings = dict[str, dict[str, list[Entry]]]
"""`vacuous` or `unknown` → pattern → its list of that name."""
APART_MIN = 50
"""Events from which on, if no clock refers to another node, the clocks are reported as wrong."""
_NOUNS = {"partition": "attribute"}
"""Nouns for kinds of names in messages, where they differ from the kind."""


@dataclass(frozen=True, slots=True)
class PatternMet:
    """How many events of an execution, or of a part of it, satisfied the guards of a pattern."""

    events: int  # how many events were accepted while the pattern ran
    judged: bool  # whether the pattern's run judged at least one of them
    guards: dict[str, int]
    """How many events satisfied each counted guard, by the keys of `CountedParts.guards`."""
    messages: int = 0
    """How many messages nodes with a copy received, under `at every node receiving`."""
    unscoped: int = 0  # how many events of the alphabet lacked a partition key
    untimed: int = 0  # how many of them lacked a time for the window

    @classmethod
    def of(cls, run: PatternRun, events: int) -> PatternMet:
        """Return the counts of a run, while `events` events were accepted."""
        judged = run.scopes.created > 0
        lacks = (run.counts.unscoped, run.counts.untimed)
        messages = 0 if run.copies is None else run.copies.messages
        return cls(events, judged, run.met.save(), messages, *lacks)

    @classmethod
    def sum(cls, parts: Sequence[PatternMet]) -> PatternMet:
        """Return the sum of the parts of an execution."""
        known = set(parts[0].guards).intersection(*(part.guards for part in parts))
        return cls(
            sum(part.events for part in parts),
            any(part.judged for part in parts),
            {key: sum(part.guards[key] for part in parts) for key in sorted(known)},
            sum(part.messages for part in parts),
            sum(part.unscoped for part in parts),
            sum(part.untimed for part in parts),
        )


@dataclass(frozen=True, slots=True)
class MetEvents:
    """Which guards, names and comparisons of a program the events of an execution used."""

    patterns: dict[str, PatternMet]  # by the name of the pattern
    names: NamesMet  # the names of the program that no event has
    kinds: dict[str, KindCounts]  # of the values that each pattern's comparisons read, by its name

    @classmethod
    def sum(cls, parts: Sequence[MetEvents]) -> MetEvents:
        """Return the sum of the parts of an execution, or of executions, of one program."""
        patterns = {
            name: PatternMet.sum([part.patterns[name] for part in parts])
            for name in parts[0].patterns
        }
        names = NamesMet.sum([part.names for part in parts])
        return cls(patterns, names, total(part.kinds for part in parts))


def add_findings(patterns: Mapping[str, dict[str, Any]], found: Findings) -> None:
    """Add the lists `vacuous` and `unknown` to the patterns of a summary."""
    for kind, by_pattern in found.items():
        for name, entries in by_pattern.items():
            patterns[name][kind] = entries


def findings(compiled: Sequence[CompiledPattern], met: MetEvents) -> Findings:
    """Return the lists `vacuous` and `unknown` of each pattern, without empty lists."""
    out: Findings = {"vacuous": {}, "unknown": {}}
    for pattern in compiled:
        pattern_met = met.patterns[pattern.name]
        if pattern_met.events and (entries := _Vacuity(pattern, pattern_met, met.names).entries()):
            out["vacuous"][pattern.name] = entries
        if entries := unknown_entries(pattern, met.kinds[pattern.name]):
            out["unknown"][pattern.name] = entries
    return out


def warnings(kind: str, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the warnings of a vacuous pattern (a `check` or a `find`) that is probably wrong.

    It is if the log has one of its names in another spelling, if no clock refers to another node,
    if no message was received under `at every node receiving`, or if it is a `check` that judged no
    event and so cannot be violated. A `find` whose events did not happen is not a mistake.
    """
    nothing = judged_nothing(entries)
    mistakes = [entry for entry in entries if _is_mistake(entry)]
    if not mistakes and not (nothing and kind == "check"):
        return []
    shown = [e for e in entries if e["what"] != "alphabet" and (e in mistakes or nothing)]
    # A name in a guard may be a key of `partition by` too.
    causes = list(dict.fromkeys(map(entry_text, shown)))
    if nothing:
        causes[:1] = ["; ".join([entries[0]["message"], *causes[:1]])]
    return [f"vacuous: {cause}" for cause in causes]


def obstacles(kind: str, entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the entries because of which a `check` or `find` could not have found a fault.

    All entries if it judged no event. Otherwise the probable mistakes, and the names that every
    match of a `find` requires and that no event has. A run without a fault may well have no event
    that satisfies a step; and a `check` can be violated even if one of its steps never occurs.
    """
    if judged_nothing(entries):
        return list(entries)
    return [
        entry
        for entry in entries
        if _is_mistake(entry) or (kind == "find" and entry["what"] not in ("step", "event"))
    ]


def _is_mistake(entry: Mapping[str, Any]) -> bool:
    return "near" in entry or entry["what"] in ("clock", "message")


def judged_nothing(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a pattern judged no event, by its list `vacuous`."""
    return any(entry["what"] == "alphabet" for entry in entries)


def unreceived_text(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the entry that no message was received; empty if there is none."""
    return next((entry_text(entry) for entry in entries if entry["what"] == "message"), "")


class _Vacuity:
    """Finds the causes of one pattern's vacuity."""

    def __init__(self, compiled: CompiledPattern, met: PatternMet, names: NamesMet) -> None:
        self._compiled = compiled
        self._pattern_met = met
        self._events = met.events
        self._names = names
        self._declared = {event.name: event for event, _ in compiled.events}
        self._unmet = {
            name.key: name
            for name in compiled.counted.named_values
            if name.key in names.unmet and not self._events_meeting(name.known_by)
        }

    def _events_meeting(self, guard: Formula) -> int:
        """Return how many events satisfied a guard; all events if the guard was not counted."""
        key = self._compiled.counted.guards[guard]
        return self._pattern_met.guards.get(key, self._events)

    def entries(self) -> list[Entry]:
        """Return the causes."""
        nothing = not self._pattern_met.judged
        near = [
            entry for name in self._unmet.values() for entry in self._misspelling(name, nothing)
        ]
        if not nothing:
            stated = {(e["what"], e["name"]) for e in near}
            return [
                *self._without_messages(),
                *near,
                *self._unmet_steps(stated),
                *self._unrelated_clocks(),
            ]
        own = self._compiled.pattern.span
        head = self._entry("alphabet", self._compiled.name, own, self._reason_for_nothing())
        return [
            head,
            *(near or self._missing_names()),
            *self._without_messages(),
            *self._unrelated_clocks(),
        ]

    def _without_messages(self) -> Iterator[Entry]:
        """Yield the entry that no message was received, under `at every node receiving`."""
        deployment = self._compiled.pattern.deployment
        if deployment is not None and deployment.receiving and not self._pattern_met.messages:
            message = (
                "no event of a node with a copy names a received message, so no copy is offered "
                "events of other nodes; name messages in `receives`, or, for a whole log, pass "
                "--field message=PATH or --rebuild to match them by id"
            )
            yield self._entry("message", "", deployment.span, message)

    def _unrelated_clocks(self) -> Iterator[Entry]:
        """Yield the entry that no clock refers to another node, if the pattern needs causality."""
        apart = len(self._names.isolated_nodes)
        if self._compiled.counted.depends_on_causality and apart > 1 and self._events >= APART_MIN:
            message = (
                f"no clock of the events of {apart} nodes has an entry for another node, so events "
                "of different nodes are concurrent; if clocks are elsewhere, name their field "
                "(--field clock=PATH, or `fields` in [source]), or, for a whole log, pass "
                "--rebuild to compute them from messages"
            )
            yield self._entry("clock", "", None, message)

    def _entry(self, what: str, name: str, span: Span | None, message: str, **more: Any) -> Entry:
        """Return an entry; `more` has the fields of some kinds only."""
        place = {} if span is None else {"place": place_of(self._compiled, span)}
        return {"what": what, "name": name, **place, "events": self._events, **more} | {
            "message": message
        }

    # --- nothing is judged ---

    def _reason_for_nothing(self) -> str:
        members = self._events_meeting(self._compiled.counted.alphabet_guard)
        if not members:
            return _none_text(self._events, "is", "in the alphabet")
        met = self._pattern_met
        lacks = ["the key of `partition by`"] * bool(met.unscoped)
        lacks += ["a time, for `within`"] * bool(met.untimed)
        if not lacks:
            known = "known to a node with a copy of the pattern"
            return _none_text(members, "is", known, "in the alphabet ")
        return _none_text(members, "has", " and ".join(lacks), "in the alphabet ")

    def _missing_names(self) -> Iterator[Entry]:
        """Yield the names that no event has and without which no event can be judged."""
        wanted = [key for key in self._unmet if key[0] == "partition"]
        deployment = self._compiled.pattern.deployment
        if deployment is not None and deployment.glob is not None:
            wanted += [key for key in self._unmet if key == ("node", deployment.glob)]
        for _, formula in self._compiled.events:
            needed = needed_names(formula, self._compiled.automaton.atoms)
            wanted += [key for key in self._unmet if key in needed]
        for key in list(dict.fromkeys(wanted))[:SHOWN_MAX]:
            yield self._name_entry(self._unmet[key], self._common_names(key[0]))

    def _common_names(self, kind: str) -> str:
        """Return, in words, the most frequent names of a kind in the log."""
        counts = list(self._names.counted(kind).items())[:SHOWN_MAX]
        shown = ", ".join(f"`{name}` ({counted(n, 'event')})" for name, n in counts)
        return f"; most frequent: {shown}" if shown else ""

    # --- names ---

    def _name_entry(self, name: NamedValue, rest: str, **more: Any) -> Entry:
        noun = _NOUNS.get(name.what, name.what)
        is_of = "is of" if name.what == "node" else "has"
        looked_at = self._names.sampled_count
        none = "no event" if looked_at >= self._events else f"none of {looked_at:,} sampled events"
        note = f" ({own})" if (own := own_field_note(name)) else ""
        message = f"{none} {is_of} the {noun} `{name.name}`{note}{rest}"
        entry = self._entry(name.what, name.name, name.span, message, **more)
        return entry | {"events": looked_at}

    def _misspelling(self, name: NamedValue, nothing: bool) -> Iterator[Entry]:
        """Yield the entry of a name that is similar to a name in the log."""
        known, own = self._names.counted(name.what), self._compiled.counted.named_values
        near = nearest(name, known, own, loose=nothing and self._compiled.kind == "check")
        if near is not None:
            count = known[near]
            rest = f", which is similar to `{near}` ({counted(count, 'event')})"
            yield self._name_entry(name, rest, near=near, near_events=count)

    # --- steps ---

    def _unmet_steps(self, stated: set[NameKey]) -> Iterator[Entry]:
        """Yield why no event satisfies a step that every word has, if no cause is reported yet."""
        compiled, automaton = self._compiled, self._compiled.automaton
        formulas = automaton.step_formulas
        guards, required = dict(compiled.guards), required_steps(compiled.pattern.body)
        spans = {name: event.span for name, event in self._declared.items()}
        spans |= {step.name: step.span for step in compiled.pattern.steps}
        for step, local in compiled.counted.step_guards.items():
            if step not in required or self._events_meeting(local):
                continue
            needed = needed_names(formulas[step], automaton.atoms)
            if stated & needed:
                continue
            name = next((self._unmet[key] for key in self._unmet if key in needed), None)
            if name is not None:
                stated.add(name.key)
                yield self._name_entry(name, f", which the step `{step}` requires")
                continue
            kind, unmet = self._unmet_event(guards[step]) or ("step", step)
            if (kind, unmet) not in stated:
                stated.add((kind, unmet))
                message = _none_text(self._events, "satisfies", f"`{unmet}`")
                yield self._entry(kind, unmet, spans.get(unmet), message)

    def _unmet_event(self, guard: syntax.Guard) -> NameKey | None:
        """Return, of the declared events that a guard needs, one that no event satisfies."""
        parts = guard.operands if isinstance(guard, syntax.And) else (guard,)
        for part in parts:
            for node in walk(part) if isinstance(part, _NEEDS_AN_EVENT) else ():
                if isinstance(node, syntax.Name):
                    met = self._events_meeting(self._compiled.counted.event_guards[node.name])
                    if not met:
                        return "event", node.name
        return None


_PLURAL = {"is": "are", "has": "have", "satisfies": "satisfy"}


def _none_text(events: int, verb: str, predicate: str, which: str = "") -> str:
    """Return the statement that 0 of some events satisfy a predicate; `verb` is in the singular."""
    verb = verb if events == 1 else _PLURAL[verb]
    return f"0 of {counted(events, 'event')} {which}{verb} {predicate}"


_NEEDS_AN_EVENT = (syntax.Name, syntax.Causal, syntax.Conc)
"""Guards that are satisfied only by an event of some declared event that they name."""
