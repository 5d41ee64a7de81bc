"""Clocks that do not decide happened-before: guards over undecided pairs are unknown."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, reject

import ketal
from ketal import semantics
from ketal.clocks.schemes import SCHEMES, scheme_named
from ketal.compiler.pipeline import compile_pattern
from ketal.errors import PatternError, SettingError
from ketal.logs.clock_translation import UndecidedPairs
from ketal.logs.restamping import restamped
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from tests.cases import facts
from tests.examples.transcripts import ROOT
from tests.outcomes import LIMITS, TooManyError, outcome_of
from tests.property.executions import execution
from tests.property.patterns import REFUSED, pattern_file
from tests.sampling import chances, drawn, examples, sample

PROGRAM = ketal.compile("pattern P { order CausalOrder; event A = true; check A; }")
INEXACT = [name for name in SCHEMES if not scheme_named(name).decides]


def _reread(events: list[Event], scheme: str) -> ketal.Log:
    file = io.BytesIO()
    ketal.write_jsonl(restamped(events, scheme_named(scheme)).drafts(), file)
    file.seek(0)
    return ketal.read_log(file, clock=scheme)


@examples(60, 10_000)
@given(chances())
def test_engine_equals_the_oracle_under_inexact_clocks(rng: random.Random) -> None:
    """Every kind of pattern, over clocks that order all pairs that may be ordered."""
    file = pattern_file(rng)
    # The oracle lists the matches that `return count` only counts.
    pattern = replace(file.patterns[0], deployment=None, mode=None, returns=None)
    file = replace(file, patterns=(pattern,))
    events = list(_reread(execution(rng, events_max=9), rng.choice(INEXACT)))
    assume(events)
    try:
        compiled = compile_pattern(file, pattern, undecided="lamport")
        order = canonical(events) if compiled.causal else events
        found = outcome_of(compiled, order, LIMITS)
        expected = semantics.judge(file, "P", events, clocks_decide=False)
    except PatternError as error:
        if not {d.code for d in error.diagnostics} <= REFUSED:
            raise
        reject()
    except (TooManyError, semantics.TooManyProbesError):
        reject()
    assert facts(found) == facts(expected)


def test_a_match_under_inexact_clocks_is_one_under_exact_clocks_too() -> None:
    """For `find any` under CausalOrder: a match that inexact clocks prove is certain."""
    matched = 0

    @drawn(60, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal matched
        first, second = (rng.choice(["A", "B"]) for _ in range(2))
        relation = rng.choice(["Conc(F)", "!Causal(F)", "Causal(F)", "!Conc(F) && F", "F"])
        text = (
            "pattern P { order CausalOrder; "
            f'event E = type == "{first}"; event F = type == "{second}"; '
            f"One = E; Two = {relation}; find any One Two; }}"
        )
        program = ketal.compile(text)
        events = execution(rng, events_min=2, events_max=9, types=("A", "B"))
        log = _reread(events, rng.choice(INEXACT))
        exact = restamped(events, scheme_named("vector")).drafts()
        file = io.BytesIO()
        ketal.write_jsonl(exact, file)
        file.seek(0)
        truth = {frozenset(m.events) for m in ketal.run(program, ketal.read_log(file)).matches}
        found = {frozenset(m.events) for m in ketal.run(program, log).matches}
        assert found <= truth
        matched += bool(found)

    assert matched > sample(150, 5_000) / 8


def _log(clock: str, *lines: tuple[str, str, Any]) -> ketal.Log:
    records = [{"node": node, "type": kind, "clock": stamp} for node, kind, stamp in lines]
    text = "".join(json.dumps(record) + "\n" for record in records)
    return ketal.read_log(io.BytesIO(text.encode()), clock=clock)


PAIRS = """
    event W = type == "write";
    pattern Concurrent { order CausalOrder; First = W; Second = Conc(W); find any First Second; }
    pattern After { order CausalOrder; First = W; Second = Causal(W); find any First Second; }
    pattern NotAfter { order arrival; First = W; Second = W && !Causal(W); find any First Second; }
"""


def _counts(log: ketal.Log) -> dict[str, int]:
    patterns = ketal.run(ketal.compile(PAIRS), log).summary["patterns"]
    return {name: counts["matches"] for name, counts in patterns.items()}


def test_only_equal_lamport_counters_prove_concurrency() -> None:
    log = _log("lamport", ("a", "write", 1), ("b", "write", 1), ("b", "write", 2))
    assert _counts(log) == {"Concurrent": 1, "After": 1, "NotAfter": 1}
    summary = ketal.run(ketal.compile(PAIRS), log).summary
    assert summary["unknown_orders"] == 1


def test_plausible_clocks_prove_concurrency_between_entries() -> None:
    """a and b have their own entries, c shares a's entry."""
    stamps = {"a": [0, 1, 0], "b": [1, 0, 1], "c": [0, 2, 0]}
    log = _log("plausible:2", *((node, "write", stamp) for node, stamp in stamps.items()))
    assert _counts(log) == {"Concurrent": 2, "After": 0, "NotAfter": 2}
    assert log.undecided == UndecidedPairs("plausible:2", pairs=3, unknown=1)


def test_pattern_that_needs_exact_clocks_is_refused() -> None:
    log = _log("lamport", ("a", "write", 1))
    for clause in ("at every node;", "mode possibly;"):
        program = ketal.compile(
            f"pattern P {{ order CausalOrder; {clause} event A = true; check A; }}"
        )
        with pytest.raises(PatternError) as raised:
            list(ketal.run(program, log))
        assert [d.code for d in raised.value.diagnostics] == ["K306"]


@pytest.mark.parametrize(
    "use",
    [
        lambda log: ketal.possibly(PROGRAM, log),
        lambda log: ketal.definitely(PROGRAM, log),
        lambda log: ketal.Monitor(PROGRAM).feed_many(log),
        lambda log: ketal.cuts(log),
        lambda log: ketal.audit(log),
        lambda log: ketal.stats(log),
        lambda log: ketal.write_jsonl(log, io.BytesIO()),
    ],
    ids=["possibly", "definitely", "feed_many", "cuts", "audit", "stats", "write_jsonl"],
)
def test_function_that_needs_exact_clocks_refuses_inexact_ones(
    use: Callable[[ketal.Log], object],
) -> None:
    """It would take every pair that may be ordered for one that is."""
    log = _log("lamport", ("a", "write", 1), ("b", "write", 2))
    with pytest.raises(SettingError, match="lamport clocks do not determine happened-before"):
        use(log)


ROWS = re.findall(
    r"^\| (K30[56]) \| (\w+) \|.*\| `([^`]+)` \|$",
    (ROOT / "docs" / "diagnostics.md").read_text("utf-8"),
    re.M,
)


@pytest.mark.parametrize(("code", "severity", "example"), ROWS)
def test_documented_examples_give_their_codes(code: str, severity: str, example: str) -> None:
    body = "" if "find" in example else "check E;"
    program = ketal.compile(
        f'pattern P {{ order CausalOrder; event E = type == "e"; {example} {body} }}'
    )
    try:
        diagnostics = program.for_undecided_clocks("lamport").warnings
    except PatternError as error:
        diagnostics = error.diagnostics
    assert (code, severity) in {(one.code, one.severity) for one in diagnostics}
    assert len(ROWS) == 2


def test_an_explanation_names_what_the_clocks_leave_unknown() -> None:
    log = _log("lamport", ("a", "write", 1), ("b", "write", 2))
    program = ketal.compile(PAIRS)["Concurrent"]
    (one,) = ketal.explain(program, log, event="b@1")
    text = "\n".join(one.lines())
    assert "is unknown: lamport clocks do not determine how b@1 and a@1 are ordered" in text


def test_near_misses_are_judged_under_the_same_clocks() -> None:
    """`Then` has a larger number than `First`, which proves nothing between nodes."""
    log = _log("lamport", ("a", "write", 1), ("b", "write", 2), ("b", "write", 3))
    program = ketal.compile(
        'pattern P { order CausalOrder; event W = type == "write"; event E = type == "end"; '
        'First = W && node == "a"; Then = Causal(W, First) && node == "b"; Last = E; '
        "find any First Then Last; }"
    )
    assert not ketal.run(program, log).matches
    (one,) = ketal.explain(program, log)
    assert [[step for step, _ in run.taken] for run in one.runs] == [["First"]]


def test_page_shows_the_verdicts_of_a_log_with_inexact_clocks() -> None:
    log = _log("lamport", ("a", "write", 1), ("b", "write", 1))
    assert "Concurrent" in ketal.view(log, ketal.compile(PAIRS)).html


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("order CausalOrder; find any One Two;", ["CausalOrder"]),
        ("order CausalOrder; mode possibly; find any One Two;", ["CausalOrder", "mode"]),
        ("at every node; check One*;", ["at"]),
        ("at every node receiving; check One*;", ["at"]),
        ("Then = Causal(Two); find next One Then;", ["Causal"]),
        ("Then = !(Conc(Two, One)); find any One Then;", ["Conc"]),
        ("find next One not Causal(Two) Two;", ["Causal"]),
        ("find next One Two; within 5 s;", []),
        ("check (One Two)*;", []),
    ],
)
def test_without_clocks_a_pattern_that_needs_them_is_refused(text: str, needs: list[str]) -> None:
    """Nothing is known between nodes, so even `!Causal` would be no answer."""
    program = ketal.compile(
        f'pattern P {{ event One = type == "one"; event Two = type == "two"; {text} }}'
    )
    log = ketal.read_log([{"node": "a", "type": "one"}], clock="none")
    if not needs:
        assert ketal.run(program, log).summary["events"]["accepted"] == 1
        return
    with pytest.raises(PatternError) as raised:
        list(ketal.run(program, log))
    sentence = "a log without clocks does not determine happened-before, which `{}` needs"
    found = [(d.code, d.severity, d.message) for d in raised.value.diagnostics]
    assert found == [("K306", "error", sentence.format(name)) for name in needs]


def test_without_clocks_the_explanation_claims_no_order_between_nodes() -> None:
    rows = [{"node": "b", "type": "one"}, {"node": "a", "type": "two"}, {"node": "a", "type": "x"}]
    program = ketal.compile(
        'pattern P { event One = type == "one"; event Two = type == "two"; find next One Two; }'
    )
    (one,) = ketal.explain(program, ketal.read_log(rows, clock="none"))
    assert "a log without clocks does not determine how a@1 and b@1 are ordered" in str(one)


def test_without_clocks_stats_count_and_compare_nothing() -> None:
    rows = [{"node": node, "type": "one", "x": 1} for node in "ab"]
    stats = ketal.stats(ketal.read_log(rows, clock="none"))
    assert (stats.events, stats.nodes, stats.concurrency.of) == (2, {"a": 1, "b": 1}, 0)
    assert "concurrent  not known: the log has no clocks" in str(stats)
    assert "messages" not in str(stats)
    for refused in (ketal.audit, ketal.cuts, ketal.view):
        with pytest.raises(SettingError, match="a log without clocks does not determine"):
            refused(ketal.read_log(rows, clock="none"))
