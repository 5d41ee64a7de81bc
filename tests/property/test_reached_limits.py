"""Once a run has reached a limit, only its uncertain verdicts may be false."""

from __future__ import annotations

import random
from collections import Counter

from ketal import semantics
from ketal.engine.pattern_run import PatternRun
from ketal.engine.verdict_building import flat
from ketal.model.events.happened_before import canonical
from ketal.model.limits import Limits
from ketal.model.verdicts.run_verdicts import Overflow
from tests.outcomes import collected
from tests.property.executions import execution
from tests.runtime.small_streams import drawn_program
from tests.sampling import drawn

SMALL = {
    "candidates_max": (1, 2, 3),
    "runs_max": (1, 2, 3),
    "scopes_max": (1, 2),
    "unlearned_max": (1, 2),
    "matches_per_event_max": (1, 2),
    "configurations_max": (1, 2),
}
STATEMENTS = (
    ("arrival;", "CausalOrder;", "CausalOrder(total);"),
    ("", "", "partition by key;"),
    ("", "", "at every node;", "at every node receiving;", "at every node all;"),
    (
        *(f"find {strategy} A not C B;" for strategy in ("any", "next", "strict")),
        *("find any A (A | C) not C B;", "find next A A+ B;", "find any A* B;", "check (A C? B)*;"),
        *("check A B C; on violation resume;", "check (A | A A) B;"),
    ),
    ("", "", "within 3 events;", "within 2 s;"),
)


def findings(outcome: semantics.Outcome) -> set[tuple[object, ...]]:
    """Return the verdicts of an outcome; a match by its events, as mirror images are equal."""
    matches = [("match", scope, frozenset(dot for _, dot in s)) for scope, s, _ in outcome.matches]
    violations = [("violation", scope, dot) for scope, dot, _ in outcome.violations]
    ends = [("incomplete", scope) for scope, _ in outcome.incomplete]
    return {*matches, *violations, *ends, *(("timed_out", *one) for one in outcome.timed_out)}


def test_certain_verdicts_are_true_after_a_limit_was_reached() -> None:
    met: Counter[str] = Counter()

    @drawn(150, 20_000)
    def holds(rng: random.Random) -> None:
        program = drawn_program(rng, *STATEMENTS)
        events = execution(rng, types=("a", "b", "c"))
        few = {name: rng.choice(values) for name, values in SMALL.items() if rng.random() < 0.7}
        for compiled in program.compiled:
            run, verdicts = PatternRun(compiled, Limits(**few)), []
            for event in canonical(events) if compiled.causal else events:
                verdicts += flat(run.process((event,)))
                run.validate_state()
            verdicts += run.steps.close()
            if not any(isinstance(verdict, Overflow) for verdict in verdicts):
                continue
            true = findings(semantics.judge(program.file, compiled.name, events))
            certain = findings(collected(run, [one for one in verdicts if one.certain]))
            uncertain = findings(collected(run, [one for one in verdicts if not one.certain]))
            assert certain <= true
            met["certain"] += bool(certain)
            met["needlessly uncertain"] += bool(uncertain & true)
            met["false"] += not uncertain <= true

    assert min(met["certain"], met["needlessly uncertain"], met["false"]) > 3
