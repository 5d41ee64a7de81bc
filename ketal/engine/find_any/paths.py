"""The conditions that a part of a word puts on the events just before and just after it.

The one rule: a condition on two events belongs to the role of the later one in the word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ketal.engine.configurations import Seen
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.findings import Taken
from ketal.engine.find_any.roles import ALL_ANCHOR, PRIOR_ANCHOR, Path, StepRole
from ketal.engine.machine import Machine
from ketal.model.events.event import Event

RequiredRelations = list[tuple[Seen, bool]]
"""Relations that an event must have: the other event, and whether they must be concurrent."""
Checks = list[tuple[Callable[[Event, Event], bool], Seen]]
"""Comparisons, each with the one of its two events that is chosen already."""


def relations_before(role: StepRole, path: Path, taken: Taken) -> RequiredRelations:
    """Return the relations that an event in a role must have just before a part of a word.

    An anchor is the last event of its step, so an event of the step in the part hides this one.
    """
    step = role.edge.step
    seen = taken[0][1]
    required = [(seen, r.concurrent) for r in path[0].relations if r.anchor < 0 or r.anchor == step]
    hidden = path[0].edge.step == step
    for i in range(1, len(path)):
        for r in path[i].relations:
            if r.anchor == ALL_ANCHOR or (r.anchor == step and not hidden):
                required.append((taken[i][1], r.concurrent))
        hidden = hidden or path[i].edge.step == step
    return required


def checks_before(role: StepRole, path: Path, taken: Taken) -> Checks:
    """Return the comparisons of a part of a word with an event in a role just before it."""
    checks: Checks = []
    step = role.edge.step
    for i, later in enumerate(path):
        checks += [(c.holds, taken[i][1]) for c in later.checks if c.step == step]
        if later.edge.step == step:
            break
    return checks


def checks_after(role: StepRole, taken: Taken) -> Checks:
    """Return the comparisons of an event in a role with a part of a word just before it."""
    comparisons = [(check.holds, last_of(taken, check.step)) for check in role.checks]
    return [(holds, seen) for holds, seen in comparisons if seen is not None]


def relations_after(role: StepRole, taken: Taken) -> RequiredRelations:
    """Return the relations that an event in a role must have just after a part of a word."""
    required: RequiredRelations = []
    for r in role.relations:
        if r.anchor == PRIOR_ANCHOR:
            required.append((taken[-1][1], r.concurrent))
        elif r.anchor == ALL_ANCHOR:
            required += [(seen, r.concurrent) for _, seen in taken]
        elif (seen := last_of(taken, r.anchor)) is not None:
            required.append((seen, r.concurrent))
    return required


def last_of(taken: Taken, step: int) -> Seen | None:
    """Return the last event of a step; None if there is none."""
    return next((seen for other, seen in reversed(taken) if other == step), None)


def replays(machine: Machine, breakers: Breakers | None, path: Path, taken: Taken) -> bool:
    """Return whether the automaton takes the events of a word, each in its role."""
    configuration, prior = machine.start(), None
    for role, (step, seen) in zip(path, taken, strict=True):
        if prior is not None and breakers is not None:
            configuration = breakers.flagged(configuration, prior, seen)
        plan = machine.plans[configuration.state][seen.mask]
        sub = None if plan is None else plan.part_for(seen, prior)
        if sub is None:
            return False
        if (step, role.edge.target) not in machine.decide(sub, configuration, seen):
            return False
        configuration = machine.take(configuration, step, role.edge.target, seen)
        prior = seen
    return True


def transitions_of(
    matches: Sequence[Taken], paths: Sequence[Path]
) -> list[tuple[int, int, int, Seen]]:
    """Return the transitions of matches, each once, in the form of `Findings.moves`."""
    moves = [
        (role.edge.source, step, role.edge.target, seen)
        for taken, path in zip(matches, paths, strict=True)
        for (step, seen), role in zip(taken, path, strict=True)
    ]
    return list(dict.fromkeys(moves))
