"""Vacuity: what of a pattern no event of a log met, and why.

A pattern is vacuous where its answer would be the same whatever the events were: none was judged,
none satisfies a step that every word has, or none has a name that it gives (Beer, Ben-David,
Eisner and Rodeh, "Efficient detection of vacuity in temporal model checking", 2001). It may be
that what is sought did not happen; or that a name is misspelt, and then the log has one that is
near and that the pattern does not name.

The one rule: a cause is stated once, in place of what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.analysis.bodies import required_steps
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.counted.named_values import NamedValue, NameKey, needed
from ketal.compiler.predicates import Formula
from ketal.engine.pattern_run import PatternRun
from ketal.engine.statistics.comparison_kinds import Counts
from ketal.engine.statistics.log_names import NamesMet
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.summaries import total
from ketal.model.syntax_walks import walk
from ketal.model.wording import counted
from ketal.runtime.silence.near_names import nearest
from ketal.runtime.silence.unknown_comparisons import Entry, entry_text, place_of, unknown

Findings = dict[str, dict[str, list[Entry]]]
"""`vacuous` or `unknown` → pattern → its list of that name."""
APART_MIN = 50
"""Of so many events on several nodes one has received a message, if the clocks are right."""
SHOWN_MAX = 3
"""Names that are listed where none is near."""
_NOUNS = {"partition": "attribute"}
"""What a name is of, where the word is another."""


@dataclass(frozen=True, slots=True)
class PatternMet:
    """What the events of an execution, or of a part of it, met of a pattern.

    Attributes
    ----------
    events : int
        How many events its run was to be offered.
    judged : bool
        Whether the run judged one of them.
    on_copies : bool
        Whether a node had a copy of it, under `at every node`.
    guards : dict of str to int
        How many events satisfied each guard, by the keys of `CountedParts.guards`.
        Of one that is absent that is not known.
    messages : int
        How many messages nodes with a copy received, under `at every node receiving`.
    unscoped, untimed : int
        How many events of the alphabet lacked a key of the partition, and the window's time.
    """

    events: int
    judged: bool
    on_copies: bool
    guards: dict[str, int]
    messages: int = 0
    unscoped: int = 0
    untimed: int = 0

    @classmethod
    def of(cls, run: PatternRun, events: int) -> PatternMet:
        """Return that of a run."""
        judged = run.scopes.created > 0
        lacks = (run.counts.unscoped, run.counts.untimed)
        messages = 0 if run.copies is None else run.copies.messages
        return cls(events, judged, bool(run.copies), run.met.save(), messages, *lacks)

    @classmethod
    def sum(cls, parts: Sequence[PatternMet]) -> PatternMet:
        """Return what parts have together."""
        known = set(parts[0].guards).intersection(*(part.guards for part in parts))
        return cls(
            sum(part.events for part in parts),
            any(part.judged for part in parts),
            any(part.on_copies for part in parts),
            {key: sum(part.guards[key] for part in parts) for key in sorted(known)},
            sum(part.messages for part in parts),
            sum(part.unscoped for part in parts),
            sum(part.untimed for part in parts),
        )


@dataclass(frozen=True, slots=True)
class MetEvents:
    """What the events of an execution, or of a part of it, met of a program.

    Attributes
    ----------
    patterns : dict of str to PatternMet
        By the names of patterns.
    names : NamesMet
        The names that no event has.
    kinds : dict of str to Counts
        By the names of patterns, the kinds of the values that their comparisons read.
    """

    patterns: dict[str, PatternMet]
    names: NamesMet
    kinds: dict[str, Counts]

    @classmethod
    def sum(cls, parts: Sequence[MetEvents]) -> MetEvents:
        """Return what parts of an execution, or executions, of one program have together."""
        patterns = {
            name: PatternMet.sum([part.patterns[name] for part in parts])
            for name in parts[0].patterns
        }
        names = NamesMet.sum([part.names for part in parts])
        return cls(patterns, names, total(part.kinds for part in parts))


def add_findings(patterns: Mapping[str, dict[str, Any]], found: Findings) -> None:
    """Add the lists `vacuous` and `unknown` to the patterns of a summary."""
    for what, of in found.items():
        for name, entries in of.items():
            patterns[name][what] = entries


def findings(compiled: Sequence[CompiledPattern], met: MetEvents) -> Findings:
    """Return the lists `vacuous` and `unknown` of the patterns that have one."""
    out: Findings = {"vacuous": {}, "unknown": {}}
    for one in compiled:
        of = met.patterns[one.name]
        if of.events and (entries := _Vacuity(one, of, met.names).entries()):
            out["vacuous"][one.name] = entries
        if entries := unknown(one, met.kinds[one.name]):
            out["unknown"][one.name] = entries
    return out


def warnings(kind: str, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is to be said of a pattern that is probably wrong.

    That is a name that the log has in another spelling, clocks that know of no other node, copies
    that are offered what was received where nothing was, and a check that judged no event: it
    found no violation in nothing. A `find` for what did not happen is right.

    Parameters
    ----------
    kind : str
        `check` or `find`.
    entries : sequence of mapping
        The list `vacuous` of the pattern in the summary.
    """
    nothing = judged_nothing(entries)
    wrong = [entry for entry in entries if "near" in entry or entry["what"] in ("clock", "message")]
    if not wrong and not (nothing and kind == "check"):
        return []
    causes = [
        entry_text(entry)
        for entry in entries
        if entry["what"] != "alphabet" and (entry in wrong or nothing)
    ]
    if nothing:
        causes[:1] = ["; ".join([entries[0]["message"], *causes[:1]])]
    return [f"vacuous: {cause}" for cause in causes]


def judged_nothing(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a pattern judged no event, by its list `vacuous`."""
    return any(entry["what"] == "alphabet" for entry in entries)


class _Vacuity:
    """What of one pattern no event met."""

    def __init__(self, compiled: CompiledPattern, met: PatternMet, names: NamesMet) -> None:
        self._compiled = compiled
        self._pattern_met = met
        self._events = met.events
        self._names = names
        self._declared = {event.name: event for event, _ in compiled.events}
        self._guards = {event.name: event.guard for event in compiled.named_events}
        self._unmet = {
            name.key: name
            for name in compiled.counted.named_values
            if name.key in names.unmet and not self._met(name.known_by)
        }

    def _met(self, guard: Formula) -> int:
        """Return how many events satisfied a guard; of one that is not known, all."""
        key = self._compiled.counted.guards[guard]
        return self._pattern_met.guards.get(key, self._events)

    def entries(self) -> list[Entry]:
        """Return the causes."""
        nothing = not self._pattern_met.judged
        near = [entry for name in self._unmet.values() for entry in self._misspelt(name, nothing)]
        if not nothing:
            stated = {(e["what"], e["name"]) for e in near}
            return [*self._messages(), *near, *self._unmet_steps(stated), *self._clocks()]
        own = self._compiled.pattern.span
        head = self._entry("alphabet", self._compiled.name, own, self._why_nothing())
        return [head, *(near or self._missing()), *self._messages(), *self._clocks()]

    def _messages(self) -> Iterator[Entry]:
        """Yield that no message is received, where copies are offered what their nodes receive."""
        deployment = self._compiled.pattern.deployment
        if deployment is not None and deployment.receiving and not self._pattern_met.messages:
            message = (
                "no event of a node with a copy names a message that it received, so no copy is "
                "offered an event of another node; events name them in `receives`, "
                "--field message=PATH or --rebuild finds them by their ids"
            )
            yield self._entry("message", "", deployment.span, message)

    def _clocks(self) -> Iterator[Entry]:
        """Yield that no clock knows of another node, where a pattern asks for more."""
        apart = len(self._names.isolated_nodes)
        if self._compiled.counted.asks_causality and apart > 1 and self._events >= APART_MIN:
            message = (
                f"no clock of the events of {apart} nodes knows another node, so all that is of "
                "different nodes is concurrent; --field clock=PATH says where clocks are, "
                "--rebuild makes them of messages"
            )
            yield self._entry("clock", "", None, message)

    def _entry(self, what: str, name: str, span: Span | None, message: str, **more: Any) -> Entry:
        """Return an entry; `more` is what some kinds have."""
        place = {} if span is None else {"place": place_of(self._compiled, span)}
        return {"what": what, "name": name, **place, "events": self._events, **more} | {
            "message": message
        }

    # --- nothing is judged ---

    def _why_nothing(self) -> str:
        compiled = self._compiled
        members = self._met(compiled.counted.alphabet_guard)
        if not members:
            return _none_of(self._events, "is", "in the alphabet")
        if compiled.pattern.deployment is not None and not self._pattern_met.on_copies:
            return _none_of(self._events, "is", "of a node with a copy of the pattern")
        met = self._pattern_met
        lacks = ["the key of `partition by`"] * bool(met.unscoped)
        lacks += ["a time, for `within`"] * bool(met.untimed)
        if not lacks:
            known = "known to a node with a copy of the pattern"
            return _none_of(members, "is", known, "in the alphabet ")
        return _none_of(members, "has", " and ".join(lacks), "in the alphabet ")

    def _missing(self) -> Iterator[Entry]:
        """Yield the names that no event has and without which nothing can be judged."""
        wanted = [key for key in self._unmet if key[0] == "partition"]
        deployment = self._compiled.pattern.deployment
        if deployment is not None and deployment.glob is not None:
            wanted += [key for key in self._unmet if key == ("node", deployment.glob)]
        for event in self._declared.values():
            wanted += [key for key in self._unmet if key in needed(event.guard, self._guards)]
        for key in list(dict.fromkeys(wanted))[:SHOWN_MAX]:
            yield self._name_entry(self._unmet[key], self._there_are(key[0]))

    def _there_are(self, what: str) -> str:
        """Return what the log has in place of a name."""
        counts = list(self._names.counted(what).items())[:SHOWN_MAX]
        shown = ", ".join(f"`{name}` ({counted(n, 'event')})" for name, n in counts)
        return f"; most have {shown}" if shown else ""

    # --- names ---

    def _name_entry(self, name: NamedValue, rest: str, **more: Any) -> Entry:
        noun = _NOUNS.get(name.what, name.what)
        is_of = "is of" if name.what == "node" else "has"
        looked_at = self._names.sampled_count
        none = "no event" if looked_at >= self._events else f"none of {looked_at:,} events"
        message = f"{none} {is_of} the {noun} `{name.name}`{rest}"
        entry = self._entry(name.what, name.name, name.span, message, **more)
        return entry | {"events": self._names.sampled_count}

    def _misspelt(self, name: NamedValue, nothing: bool) -> Iterator[Entry]:
        """Yield the entry of a name that is near one of the log."""
        known, own = self._names.counted(name.what), self._compiled.counted.named_values
        near = nearest(name, known, own, loose=nothing and self._compiled.kind == "check")
        if near is not None:
            count = known[near]
            rest = f", which is near `{near}` ({counted(count, 'event')})"
            yield self._name_entry(name, rest, near=near, near_events=count)

    # --- steps ---

    def _unmet_steps(self, stated: set[NameKey]) -> Iterator[Entry]:
        """Yield why no event satisfies a step that every word has, if no cause is stated yet."""
        compiled = self._compiled
        guards, required = dict(compiled.guards), required_steps(compiled.pattern.body)
        spans = {name: event.span for name, event in self._declared.items()}
        spans |= {step.name: step.span for step in compiled.pattern.steps}
        for step, local in compiled.counted.step_guards.items():
            if step not in required or self._met(local):
                continue
            why = needed(guards[step], self._guards)
            if stated & why:
                continue
            name = next((self._unmet[key] for key in self._unmet if key in why), None)
            if name is not None:
                stated.add(name.key)
                yield self._name_entry(name, f", which the step `{step}` needs")
                continue
            what, unmet = self._unmet_event(guards[step]) or ("step", step)
            if (what, unmet) not in stated:
                stated.add((what, unmet))
                message = _none_of(self._events, "is", f"a `{unmet}`")
                yield self._entry(what, unmet, spans.get(unmet), message)

    def _unmet_event(self, guard: syntax.Guard) -> NameKey | None:
        """Return the declared event that no event is, of those that a guard needs."""
        parts = guard.operands if isinstance(guard, syntax.And) else (guard,)
        for part in parts:
            for node in walk(part) if isinstance(part, _OVER_ONE) else ():
                if isinstance(node, syntax.Name):
                    met = self._met(self._compiled.counted.event_guards[node.name])
                    if not met:
                        return "event", node.name
        return None


def _none_of(events: int, verb: str, what: str, which: str = "") -> str:
    """Return that none of some events `is` something, or `has` it."""
    verb = verb if events == 1 else {"is": "are", "has": "have"}[verb]
    return f"0 of {counted(events, 'event')} {which}{verb} {what}"


_OVER_ONE = (syntax.Name, syntax.Causal, syntax.Conc)
"""Guards of which one event at least is needed."""
