"""What each pattern of a judged log made of an event.

The one rule: a run is shown as it was when its scope was offered the event.
"""

from __future__ import annotations

from collections.abc import Iterator

from ketal.errors import SettingError
from ketal.explanation.judged_log import JudgedLog
from ketal.explanation.observed_runs.observations import LiveRun, Offer
from ketal.explanation.observed_runs.observed_run import ObservedRun
from ketal.explanation.reasons import Explanation, PlacedEvent, RunReason
from ketal.explanation.step_reasons import StepReasons
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.values import base_node
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.wording import counted


def event_explained(judged: JudgedLog) -> Iterator[Explanation]:
    """Yield what each pattern made of the event that a log was judged for.

    Raises
    ------
    SettingError
        If the log has no such event.
    """
    dot = judged.event
    assert dot is not None
    runs = [(run, event) for run in judged.runs for event in run.events if event.dot == dot]
    if not runs:
        raise SettingError(f"no run was offered an event {dot}{_near(judged, dot)}")
    for run, event in runs:
        offers = [offer for offer in run.steps.offers if offer.seen.dot == dot]
        for offer in offers:
            yield offer_explained(judged, run, offer)
        if not offers:
            yield _unoffered(judged, run, event)


def _near(judged: JudgedLog, dot: Dot) -> str:
    """Return what there is in place of an event."""
    for run in judged.runs:
        for event in run.events:
            if event.counter == dot.counter and base_node(event.node) == dot.node:
                return f": {dot.node} restarted, and a run was offered {event.dot}"
    if any(event.dot == dot for event in judged.events()):
        return ": the log has it, and it was late or refused"
    own = [event.counter for event in judged.events() if event.node == dot.node]
    if not own:
        nodes = sorted({event.node for event in judged.events()})
        return f": the log has no node {dot.node}; it has {', '.join(nodes[:5])}"
    reach = f"{dot.node}@{min(own)}" + (f" to {dot.node}@{max(own)}" if len(own) > 1 else "")
    return f": it is not in the log, which has {counted(len(own), 'event')} of {dot.node}, {reach}"


def _unoffered(judged: JudgedLog, run: ObservedRun, event: Event) -> Explanation:
    """Return why no single run of a pattern was offered an event."""
    return Explanation(
        run.compiled.name,
        event=judged.placed(run, event),
        execution=run.execution,
        statements=tuple(_why_unoffered(run, event)),
    )


def _why_unoffered(run: ObservedRun, event: Event) -> Iterator[str]:
    mode = run.compiled.pattern.mode
    if mode is not None:
        yield (
            f"`mode {mode}` judges it in every order; the explanation of a verdict shows the one "
            "that gives it"
        )
        return
    failed = list(StepReasons(run, FrozenMapping(())).of_alphabet(event))
    if len(failed) == len(run.compiled.events):
        yield "it is no event of the pattern:"
        yield from (f"  {one}" for one in failed)
    elif run.scopes.name_of(event) is None:
        yield "it lacks the time of the window, or a key of `partition by`"
    else:
        yield "no copy of the pattern was offered it"


def offer_explained(
    judged: JudgedLog,
    run: ObservedRun,
    offer: Offer,
    verdict: Violation | None = None,
    extension: tuple[PlacedEvent, ...] = (),
) -> Explanation:
    """Return what the runs of a scope made of an event.

    Parameters
    ----------
    judged, run, offer : JudgedLog, ObservedRun, Offer
        The event, as a run of a log was offered it.
    verdict : Violation, optional
        What it violated, if that is to be explained.
    extension : tuple of PlacedEvent
        Of a verdict of a `mode` the linear extension that gives it.
    """
    event = judged.placed(run, offer.seen.event)
    reasons = StepReasons(run, offer.scope)
    live, cut = offer.live, offer.cut
    if run.compiled.strategy == "any":
        live, cut = run.steps.partial_matches(offer)
    runs = [_of_run(judged, run, reasons, one, event) for one in live]
    statements = [] if verdict is not None else [str(one) for one in offer.verdicts]
    if offer.halted:
        statements.append("the run had ended before, at a violation (`on violation halt`)")
    if cut:
        most = run.limits.explained_runs_max
        statements.append(f"there are more than {most:,} runs (limit explained_runs_max)")
    return Explanation(
        run.compiled.name,
        verdict,
        event,
        scope=offer.scope,
        learned_by=_learned_by(judged, run, offer),
        execution=run.execution,
        statements=tuple(statements),
        extension=extension,
        # Those that had come furthest first.
        runs=tuple(sorted(runs, key=lambda one: -len(one.taken))),
    )


def _learned_by(judged: JudgedLog, run: ObservedRun, offer: Offer) -> PlacedEvent | None:
    """Return the event with which the node of a copy learned of another node's event."""
    event, deployment = offer.seen.event, run.compiled.pattern.deployment
    if deployment is None or deployment.everything or event.node == offer.scope["node"]:
        return None
    own = (
        one
        for one in run.events
        if one.node == offer.scope["node"]
        and (event.dot in one.receives if deployment.receiving else happened_before(event, one))
    )
    first = min(own, key=lambda one: one.counter, default=None)
    return None if first is None else judged.placed(run, first)


def _of_run(
    judged: JudgedLog, run: ObservedRun, reasons: StepReasons, live: LiveRun, event: PlacedEvent
) -> RunReason:
    state = run.machine.automaton.named((live.configuration.state,))
    taken = judged.placed_steps(run, live.taken)
    return RunReason(state, taken, reasons.expected(live, event))
