"""Automata: minterms, the minimal canonical table, fingerprints, limits, warnings."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject

import ketal
from ketal.compiler.automaton import ANONYMOUS, Automaton, Ways
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.minterms import SPLITS_MAX, Theory
from ketal.compiler.pipeline import compile_pattern
from ketal.compiler.predicate_codegen import Masks, compile_masks
from ketal.compiler.predicates import evaluate
from ketal.errors import Diagnostic, PatternError, SettingError
from ketal.grammar import format_text
from ketal.model.events.event import Event
from ketal.model.guard_functions import PREDICATES
from ketal.model.limits import DEFAULT, Limits
from tests.cases import REPLICATED_STACK, e, p
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import chances, drawn, examples, sample
from tests.work import calls_at_most, counted_calls

ROOT = Path(__file__).resolve().parents[2]


def compile_one(*statements: str, order: str = "CausalOrder", **knobs: Any) -> CompiledPattern:
    """Compile a pattern over the events A, B, C, D and N of `tests.cases`."""
    return ketal.compile(p(*statements, order=order, **knobs)).one


CALLS_MAX = 10_000_000
"""Far more calls than it takes to compile the patterns below, or to refuse them."""


@contextmanager
def within_cpu_seconds(seconds: float) -> Iterator[None]:
    """Fail if the block takes more CPU time, where its work is no calls but of re2 or hashing."""
    start = time.process_time()
    yield
    assert time.process_time() - start < seconds


def random_pattern(rng: random.Random, **knobs: Any) -> CompiledPattern:
    """Compile a random pattern; reject a contradictory one, which is refused."""
    file = pattern_file(rng, **knobs)
    try:
        return compile_pattern(file, file.patterns[0])
    except PatternError:
        reject()


# --- minterms ------------------------------------------------------------------------


def satisfied(compiled: CompiledPattern, event: Event, state: int = 0) -> frozenset[int]:
    """Return the guards on the edges from a state that hold for an event."""
    (mask,) = compiled.masks((event,))
    automaton = compiled.automaton
    return frozenset(v for v in automaton.enabled[state] if evaluate(automaton.formulas[v], mask))


def test_minterms_are_disjoint_and_complete_over_random_events() -> None:
    """In each state each event is in exactly one minterm of each group, or satisfies no guard."""
    judged = 0
    local = ("absent", "all", "deployment", "localhost", "references", "relational")

    @drawn(40, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal judged
        compiled = random_pattern(rng, without=local)
        automaton = compiled.automaton
        for event in execution(rng, events_max=20):
            for state in range(len(automaton.table)):
                guards = satisfied(compiled, event, state)
                targets = Ways(automaton, state).targets(guards)
                groups = {group for group, _ in targets}
                assert len(groups) == len(targets), event
                taken = {automaton.variants[v].step for v in guards}
                registered = {group for _, group in automaton.letters}
                assert groups == {s if s in registered else ANONYMOUS for s in taken}
                judged += bool(guards)

    assert judged > 500


def minterm_guards(minterms: Iterable[tuple[tuple[int, ...], ...]]) -> set[tuple[int, ...]]:
    """Return minterms, whose classes have one guard each, as sets of guards."""
    assert all(len(of_class) == 1 for minterm in minterms for of_class in minterm)
    return {tuple(guard for (guard,) in minterm) for minterm in minterms}


def choice_with_futures(*guards: str) -> CompiledPattern:
    """Compile a choice between guards of one group, each followed by another continuation."""
    steps = [f"S{i} = {guard}" for i, guard in enumerate(guards)]
    # Only the first letters matter; the events after them exclude each other.
    ways = " | ".join(f"S{i} {'Z' * i}Y" for i in range(len(guards)))
    ends = "".join(f'event {"Z" * i}Y = z == "{i}" && !exists(x);\n' for i in range(len(guards)))
    return compile_one(*steps, f"check {ways}", letters=f"event E = true;\n{ends}")


def first_minterms(compiled: CompiledPattern) -> set[tuple[int, ...]]:
    """Return the minterms that the initial state distinguishes."""
    automaton = compiled.automaton
    letters = [automaton.letters[letter] for letter, _ in automaton.table[0]]
    first = [automaton.minterms[minterm] for minterm, _ in letters]
    steps = [automaton.variants[v].step for v in range(len(automaton.variants))]
    return {
        tuple(sorted(int(automaton.steps[steps[guard]][1:]) for guard in term))
        for term in minterm_guards(first)
    }


def test_each_minterm_has_an_example_event() -> None:
    """Unsatisfiable minterms are dropped: here every minterm has an example."""
    compiled = choice_with_futures("x > 1", "x < 3", 'x == "a"')
    values: list[Any] = [0, 1, 1.5, 2, 3, 4, "a", "b", True, None]
    events = [e(f"n@{i}", "t", x=value) for i, value in enumerate(values, 1)]
    steps = compiled.automaton.steps
    examples = {
        tuple(sorted(int(steps[compiled.automaton.variants[v].step][1:]) for v in guards))
        for event in events
        if (guards := satisfied(compiled, event))
    }
    assert examples == first_minterms(compiled) == {(0,), (1,), (0, 1), (2,)}


@pytest.mark.parametrize(
    ("guards", "expected"),
    [
        ("type == 'a' | type == 'b'", {(0,), (1,)}),
        ("call(* S.a(..)) | call(* S.b(..))", {(0,), (1,)}),
        ("call(* S.*(..)) | call(* S.b(..))", {(0,), (0, 1)}),
        ('host("m1") | host("m2")', {(0,), (1,)}),
        ('host("m*") | host("m2")', {(0,), (0, 1)}),
        ("x < 1 | x > 2", {(0,), (1,)}),
        ("x <= 1 | x >= 1", {(0,), (1,), (0, 1)}),
        ("x < 1 | x < 2", {(0, 1), (1,)}),
        ("x in [1, 2] | x in [2, 3]", {(0,), (1,), (0, 1)}),
        ("x == 1 | x == 1.0", {(0, 1)}),
        ("x == 1 | x == true", {(0,), (1,)}),
        ("x == '1' | x == 1", {(0,), (1,)}),
        ("x == 1 | x != 1", {(0,), (1,)}),
        ("x == 1 | exists(x)", {(1,), (0, 1)}),
        ("x == 1 | !exists(x)", {(0,), (1,)}),
        ("x == 1 | y == 1", {(0,), (1,), (0, 1)}),
        ("x matches /a/ | !(x matches /a/)", {(0,), (1,)}),
        ("time < 5 | time >= 5 s", {(0,), (1,)}),
    ],
)
def test_unsatisfiable_minterms_are_dropped(guards: str, expected: set[tuple[int, ...]]) -> None:
    assert first_minterms(choice_with_futures(*guards.replace("'", '"').split(" | "))) == expected


def test_causal_and_conc_to_the_prior_event_are_not_split_further() -> None:
    compiled = compile_one("S = Causal(A)", "T = Conc(A)", "check B (S C | T D)", order="arrival")
    automaton = compiled.automaton
    (second,) = [target for _, target in automaton.table[0]]
    terms = [
        automaton.minterms[automaton.letters[letter][0]] for letter, _ in automaton.table[second]
    ]
    satisfied = {
        tuple(automaton.steps[automaton.variants[v].step] for v in t) for t in minterm_guards(terms)
    }
    # Both hold if there is no prior event, which the automaton cannot know.
    assert satisfied == {("S",), ("T",), ("S", "T")}


def test_an_incarnation_satisfies_its_host_whatever_its_other_predicates() -> None:
    guards = ('host("A") && node != "A"', 'host("A") && node matches /#3$/', 'node == "A#2"')
    compiled = choice_with_futures(*guards)
    steps = compiled.automaton.steps
    held_of = {
        node: {
            steps[compiled.automaton.variants[v].step]
            for v in satisfied(compiled, Event(node, "t", {node: 1}))
        }
        for node in ("A#2", "A#3", "A")
    }
    assert held_of == {"A#2": {"S0", "S2"}, "A#3": {"S0", "S1"}, "A": set()}
    assert {(0, 2), (0, 1)} <= first_minterms(compiled)


def all_bits(compiled: CompiledPattern) -> Masks:
    """Return a function: events → masks with the bits of all local atoms."""
    atoms = compiled.automaton.atoms
    return compile_masks(atoms, [("var", n, True) for n in range(len(atoms))], DEFAULT, {})


def test_masks_decide_as_all_bits_do() -> None:
    """The bits that are left out, by the type or the node of an event, decide no formula."""
    fewer = 0

    @drawn(60, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal fewer
        compiled = random_pattern(rng)
        automaton, counted = compiled.automaton, compiled.counted
        formulas = {
            compiled.alphabet, *automaton.formulas, *automaton.nots, *counted.guards,
            *(side for reading in counted.comparisons[1] for side in reading.sides),
        }  # fmt: skip
        of_the_run = automaton.localhost_bit
        for number, atom in enumerate(automaton.atoms):
            of_the_run |= atom.relational << number
        events = execution(rng, events_max=8)
        for mask, whole in zip(compiled.masks(events), all_bits(compiled)(events), strict=True):
            run = rng.getrandbits(len(automaton.atoms)) & of_the_run
            for formula in formulas:
                assert evaluate(formula, mask | run) == evaluate(formula, whole | run)
            fewer += mask != whole

    assert fewer > 5


@examples(40, 3_000)
@given(chances())
def test_theory_never_calls_satisfiable_sets_unsatisfiable(rng: random.Random) -> None:
    """The truth values that an event gives the atoms are always consistent for the theory."""
    compiled = random_pattern(rng, without=("deployment", "localhost"))
    atoms = compiled.automaton.atoms
    theory = Theory(atoms, DEFAULT)
    masks = all_bits(compiled)
    for event in execution(rng, events_max=8):
        (mask,) = masks((event,))
        shown = tuple(
            ("var", n, bool(mask >> n & 1)) for n, a in enumerate(atoms) if not a.relational
        )
        assert theory.can_hold(*shown), event


@pytest.mark.parametrize(
    "guard",
    [
        "x > 1e17",
        "x < -1e17",
        "x >= 1e300 && x != 1e300",
        "x > 9007199254740992.0 && x < 9007199254740994.0",
        f"x > 1 && x < {'9' * 309}",
        f"x > 1.5 && x < {'9' * 309}",
        "x > 0.5 && x < 0.6",
        "x > 0.1 && x < 0.10000000000000003",
    ],
)
def test_bounds_between_large_numbers_are_satisfiable(guard: str) -> None:
    assert [
        d.code for d in ketal.lint(p(f"S = A && {guard}", "check S*")) if d.code == "K203"
    ] == []


def test_bounds_without_a_number_in_between_are_unsatisfiable() -> None:
    for guard in ("x > 9007199254740992.0 && x < 9007199254740993", "x > 0.1 && x < 0.1"):
        found = ketal.lint(p(f"S = A && {guard}", "check S*"))
        assert "K203" in [d.code for d in found]


def test_comparisons_are_normalised_before_the_satisfiability_check() -> None:
    for guard in ("x < y && y < x", "x == y && y > x", "x < x", "First.x < x && First.x > x"):
        found = ketal.lint(p("First = A", f"S = A && {guard}", "check First S*"))
        assert "K203" in [d.code for d in found], guard
    for guard, codes in (("x <= y && y <= x", []), ("x == x", ["K137"]), ("x != y && y != x", [])):
        found = ketal.lint(p(f"S = A && {guard}", "check S*"))
        assert [d.code for d in found] == codes, guard


# --- minimal and canonical --------------------------------------------------------------


def distinguishable(automaton: Automaton) -> bool:
    """Return whether no two states can be merged, by partition refinement (Moore)."""
    states = range(len(automaton.table))
    rows = [dict(row) for row in automaton.table]
    colour: list[Any] = [s in automaton.finals for s in states]
    while True:
        finer = [
            (colour[s], tuple((letter, colour[t]) for letter, t in sorted(rows[s].items())))
            for s in states
        ]
        numbers = {c: n for n, c in enumerate(dict.fromkeys(finer))}
        if len(numbers) == len(set(colour)):
            return len(numbers) == len(automaton.table)
        colour = [numbers[c] for c in finer]


def breadth_first(automaton: Automaton) -> bool:
    """Return whether states are numbered in the order in which a breadth-first walk visits them."""
    met = [0]
    for state in met:
        met += [t for t in dict.fromkeys(t for _, t in automaton.table[state]) if t not in met]
    return met == list(range(len(automaton.table)))


@examples(40, 5_000)
@given(chances())
def test_random_automata_are_minimal_numbered_breadth_first_and_trim(rng: random.Random) -> None:
    compiled = random_pattern(rng)
    automaton = compiled.automaton
    assert distinguishable(automaton)
    assert breadth_first(automaton)
    assert automaton.letters == tuple(sorted(set(automaton.letters)))
    assert automaton.minterms == tuple(sorted(set(automaton.minterms)))
    alive = set(automaton.finals)
    for _ in automaton.table:
        alive |= {s for s, row in enumerate(automaton.table) if alive & {t for _, t in row}}
    assert alive == set(range(len(automaton.table))), "no state is dead"


@pytest.mark.parametrize(
    ("one_body", "other_body"),
    [
        ("check A A*", "check A+"),
        ("check A* A", "check A+"),
        ("check (A | B)*", "check (A* B*)*"),
        ("check (A B)*", "check ((A B)+)?"),
        ("check (A B)* A", "check A (B A)*"),
        ("check A{2,3}", "check A A A?"),
        ("check A{0,1} B", "check B | A B"),
        ("check A{2,}", "check A A A*"),
        ("check (A?){3}", "check A{0,3}"),
        ("check A? | B", "check (A | B)?"),
        ("find any A A*", "find any A+"),
        ("find any A B | A B", "find any A B"),
        ("find any {A & B}", "find any A B | B A"),
        ("find any {A & B & C}", "find any A {B & C} | B {A & C} | C {A & B}"),
        ("find any A | B", "find any B | A"),
        ("find any A (B | C)", "find any A B | A C"),
        ("find next (A B)+", "find next A (B A)* B"),
    ],
)
def test_equal_languages_compile_to_the_same_automaton(one_body: str, other_body: str) -> None:
    first, second = compile_one(one_body), compile_one(other_body)
    assert first.automaton == second.automaton
    assert first.fingerprint == second.fingerprint


def test_states_of_a_check_that_expect_different_steps_are_not_merged() -> None:
    """C and D accept the same events, so the states before them accept the same runs."""
    events = "event A = x == 1; event B = y == 1; event C = z == 1; event D = z == 1;"
    program = ketal.compile(p("check A C | B D", letters=events))
    for x, y, expected in ((1, 0, {"C"}), (0, 1, {"D"}), (1, 1, {"C", "D"})):
        (verdict,) = ketal.run(program, [e("n@1", "a", x=x, y=y)])
        assert isinstance(verdict, ketal.Incomplete)
        assert set(verdict.expected) == expected


@pytest.mark.parametrize("count", [15, 16, 17, 18])
def test_steps_beyond_one_digit_of_a_letter_lead_to_states_of_their_own(count: int) -> None:
    """Letters are written in base 16 while the automaton is minimised."""
    text = p(f"find any {alternatives_with_futures(count)}", letters=unrelated_events(count))
    automaton = ketal.compile(text).one.automaton
    starts = dict(automaton.table[0])
    assert len(set(starts.values())) == len(starts) == count
    steps = automaton.variants
    for letter, state in starts.items():
        (variant,) = automaton.enabled[state]
        assert steps[variant].step == (automaton.letters[letter][1] + 1) % count


def test_automaton_body_equals_that_of_the_regular_expression() -> None:
    spelled = compile_one(
        "check automaton { initial idle; idle -> busy on A; busy -> busy on B; "
        "busy -> idle on C; final idle; }"
    )
    written = compile_one("check (A B* C)*")
    assert spelled.automaton.names == ("idle", "busy")
    assert dataclasses.replace(spelled.automaton, names=("q0", "q1")) == written.automaton
    assert spelled.fingerprint == written.fingerprint, "what states are called changes no verdict"


def test_equivalent_states_of_an_automaton_body_are_merged() -> None:
    doubled = compile_one(
        "check automaton { initial q; q -> r on A; q -> s on B; r -> q on C; s -> q on C; "
        "final q; }"
    )
    assert doubled.automaton.names == ("q", "r|s")


LAID_OUT = """
/* The same, by someone else. */
pattern P
{   // comment
    order CausalOrder ;
    event A = type=="a" ;   event B = ( type == "b" ) ;
    First = A ; Second = Conc( B , First )
      && x == First . x ;
    find   any First     Second ;
}
"""
LAID_OUT_TERSE = (
    'pattern P{order CausalOrder;event A=type=="a";event B=type=="b";First=A;'
    "Second=Conc(B,First)&&x==First.x;find any First Second;}"
)


def test_layout_and_comments_do_not_change_the_automaton() -> None:
    first, second = ketal.compile(LAID_OUT).one, ketal.compile(LAID_OUT_TERSE).one
    assert first.automaton == second.automaton
    assert first.fingerprint == second.fingerprint


def test_pattern_name_does_not_change_the_automaton() -> None:
    renamed = ketal.compile(LAID_OUT.replace("pattern P", "pattern Q")).one
    assert renamed.automaton == ketal.compile(LAID_OUT).one.automaton


def test_renamed_steps_change_the_fingerprint() -> None:
    renamed = ketal.compile(LAID_OUT.replace("First", "Prior")).one
    assert renamed.fingerprint != ketal.compile(LAID_OUT).one.fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("order CausalOrder", "order arrival"),
        ('"b"', '"c"'),
        ("Conc(", "Causal("),
        ("find any", "find next"),
        ("x == First.x", "x != First.x"),
        ("x == First.x", "y == First.y"),
        ("First Second;", "First Second+;"),
        ("First Second;", "First Second; within 5 s;"),
        ("First Second;", "First Second; within 5 events;"),
        ("First Second;", "First Second; partition by key;"),
        ("First Second;", "First Second; return x = First.x;"),
        ("First Second;", "First Second; limit 3;"),
        ("order CausalOrder;", "order CausalOrder; at every node;"),
        ("order CausalOrder;", 'order CausalOrder; at host("n1");'),
    ],
)
def test_everything_that_decides_verdicts_changes_the_fingerprint(old: str, new: str) -> None:
    text = LAID_OUT_TERSE.replace("=", " = ").replace(" =  = ", " == ").replace(",", ", ")
    assert old in text
    changed = ketal.compile(text.replace(old, new)).one
    assert changed.fingerprint != ketal.compile(text).one.fingerprint


def test_unit_of_a_window_does_not_change_the_fingerprint() -> None:
    prints = {
        compile_one("find any A B", f"within {length}").fingerprint
        for length in ("1 min", "60 s", "60000 ms")
    }
    assert len(prints) == 1


FINGERPRINTS = """
import json, sys
import ketal
print(json.dumps([ketal.compile(text).one.fingerprint for text in json.load(sys.stdin)]))
"""


def test_fingerprints_are_the_same_in_every_process() -> None:
    """With different hash seeds, sets and the states of automata-lib are ordered differently."""
    texts = [
        LAID_OUT,
        p("S = x > 1 || y in [1, 2]", "T = x < 3", "check (S | T B* | C)* (A | S){2}"),
        p("S = Causal(A, B)", "T = Conc(A, all)", "find any {B & C} (S | T)+ not N D"),
        'pattern P { event A = call(* S.a(..)) && host("m*"); event B = x matches /b+/ && '
        "exists(y); find next (A | B){2,5} A; within 3 s; partition by k, l.m; }",
    ]
    fingerprints = []
    for seed in ("1", "2", "77"):
        done = subprocess.run(
            [sys.executable, "-c", FINGERPRINTS],
            input=json.dumps(texts),
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        fingerprints.append(json.loads(done.stdout))
    assert fingerprints[0] == fingerprints[1] == fingerprints[2]
    assert fingerprints[0] == [ketal.compile(text).one.fingerprint for text in texts]
    assert all(len(f) == 32 and set(f) <= set("0123456789abcdef") for f in fingerprints[0])


# --- frozen ------------------------------------------------------------------------------


def test_automata_and_compiled_patterns_are_frozen() -> None:
    compiled = compile_one("check (A B)*")
    frozen: list[tuple[Any, str]] = [
        (compiled, "name"),
        (compiled.automaton, "table"),
        (compiled.automaton.atoms[0], "shape"),
        (compiled.automaton.variants[0], "step"),
        (compiled.automaton.live[0], "prior"),
        (compiled.pattern, "name"),
    ]
    for value, name in frozen:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)
    for item in dataclasses.fields(Automaton):
        value = getattr(compiled.automaton, item.name)
        assert isinstance(value, tuple | frozenset | bool), item.name
        hash(value)


def test_no_state_of_a_find_is_reached_by_an_anonymous_event() -> None:
    """A match needs the events of all steps; a check keeps only events that are read later."""
    assert ANONYMOUS not in {group for _, group in compile_one("find any A B").automaton.letters}
    assert {group for _, group in compile_one("check A B").automaton.letters} == {ANONYMOUS}
    kept = compile_one("S = Causal(B, A)", "check A N* S")
    assert {g for _, g in kept.automaton.letters} == {ANONYMOUS, kept.automaton.steps.index("A")}


# --- limits ---------------------------------------------------------------------------------


def error_of(text: str, limits: Limits | None = None) -> Diagnostic:
    with pytest.raises(PatternError) as caught, calls_at_most(CALLS_MAX):
        ketal.compile(text, limits=limits)
    (said,) = caught.value.diagnostics
    return said


def test_atoms_max() -> None:
    events = "".join(f'event E{i} = x == "{i}";' for i in range(65))
    body = "find any " + " | ".join(f"E{i}" for i in range(65))
    diagnostic = error_of(p(body, letters=events))
    assert (
        diagnostic.code,
        "(limit atoms_max)" in diagnostic.message,
        "64" in diagnostic.message,
    ) == (
        "K210",
        True,
        True,
    )
    assert spanned_text(p(body, letters=events), diagnostic) == 'x == "64"'
    assert "x in [" in diagnostic.hint
    ketal.compile(p(body, letters=events), limits=Limits(atoms_max=65))


def unrelated_events(count: int) -> str:
    """Return declarations of events whose guards share no attribute."""
    return "".join(f"event E{i} = x{i} == true;\n" for i in range(count))


@pytest.mark.parametrize("head", ["find any", "find next", "find strict", "check"])
@pytest.mark.parametrize("order", ["arrival", "CausalOrder"])
def test_unrelated_guards_do_not_multiply_letters(head: str, order: str) -> None:
    count = sample(12, 24)
    steps = [f"E{i}" for i in range(count)]
    for body in (" ".join(steps), f"({' | '.join(steps)})+", f"({' | '.join(steps)})* E0"):
        with calls_at_most(CALLS_MAX):
            compiled = compile_one(f"{head} {body}", order=order, letters=unrelated_events(count))
        assert len(compiled.automaton.letters) <= count + 1, body


def test_guards_are_distinguished_only_in_the_states_that_need_it() -> None:
    """Fifteen rounds of two overlapping guards with two continuations have three minterms each."""
    rounds = range(15)
    events = unrelated_events(60)
    body = " ".join(f"(E{4 * i} E{4 * i + 2} | E{4 * i + 1} E{4 * i + 3})" for i in rounds)
    with calls_at_most(CALLS_MAX):
        compiled = compile_one(f"check {body}", letters=events)
    for state, row in enumerate(compiled.automaton.table):
        assert len(row) <= 3, state
    assert max(map(len, compiled.automaton.table)) == 3


def alternatives_with_futures(count: int) -> str:
    """Return a choice in which each guard has another continuation."""
    return " | ".join(f"E{i} E{(i + 1) % count}" for i in range(count))


def test_minterms_max() -> None:
    text = p(f"check {alternatives_with_futures(11)}", letters=unrelated_events(11))
    diagnostic = error_of(text)
    assert (diagnostic.code, "1024 classes" in diagnostic.message) == ("K211", True)
    assert diagnostic.message.endswith("(limit minterms_max)")
    # Ten of them distinguish 1,023 classes of events.
    assert spanned_text(text, diagnostic) == "E10"
    assert "`E10`" in diagnostic.message
    assert "type ==" in diagnostic.hint
    assert (
        error_of(
            p(f"check {alternatives_with_futures(5)}", letters=unrelated_events(5)),
            Limits(states_max=20),
        ).code
        == "K212"
    )  # 31 sets of states
    two = p(f"check {alternatives_with_futures(2)}", letters=unrelated_events(2))
    assert error_of(two, Limits(minterms_max=2)).code == "K211"
    ketal.compile(two, limits=Limits(minterms_max=3))


def spanned_text(text: str, said: Diagnostic) -> str:
    """Return the text of a diagnostic's span, which must be within one line."""
    span = said.span
    assert span is not None
    assert span.line == span.end_line
    return text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1]


OVERLAPPING = "event A = x == 1; event B = x > 0;"


@pytest.mark.parametrize("count", [14, 20, 500])
def test_states_max_stops_an_exponential_subset_construction(count: int) -> None:
    diagnostic = error_of(p(f"check (A | B)* A (A | B){{{count}}}", letters=OVERLAPPING))
    assert (
        diagnostic.code,
        "(limit states_max)" in diagnostic.message,
        "10000" in diagnostic.message,
    ) == (
        "K212",
        True,
        True,
    )


def test_overlapping_steps_that_count_alike_need_few_states() -> None:
    """Which of the two an event was makes no difference, once either reading can go on."""
    letters = 'event A = type == "a"; event B = true;'
    compiled = compile_one("check (B{1,2} (B | A) B B)*", letters=letters)
    assert len(compiled.automaton.table) == 13


def test_large_automaton_below_the_limit_is_compiled() -> None:
    more = sample(9, 10)
    with calls_at_most(2 * CALLS_MAX):
        compiled = compile_one(f"check (A | B)* A (A | B){{{more}}}", letters=OVERLAPPING)
    assert len(compiled.automaton.table) == 2 ** (1 + more)


@pytest.mark.parametrize(
    "body",
    [
        "(A{100}){101}",
        "{A & B & C & D & {A & B & C & D & {A & B & C & D & {A & B}}}}",
        f"({' | '.join(['A'] * 3000)}) ({' | '.join(['B'] * 3000)})",
        "(" + " ".join(["A?"] * 2000) + " B){4}",
    ],
    ids=["counts", "together", "alternatives", "optional"],
)
def test_states_max_refuses_a_large_body_before_it_is_compiled(body: str) -> None:
    diagnostic = error_of(p(f"find any {body}"))
    assert diagnostic.code == "K212"
    assert "(limit states_max)" in diagnostic.message


@pytest.mark.parametrize(
    ("body", "product"),
    [
        ("(A{1000}){1000}", "1000 × 1000"),
        ("A{7} ((A{3,100} B){2,} | C (B C){60}){400}", "400 × 2 × 100"),
        ("A{9} | {B & (C{1000})+ (C{4,}){900,}}{12}", "12 × 900 × 4"),
    ],
)
def test_nested_counts_beyond_states_max_are_named(body: str, product: str) -> None:
    text = p(f"find any {body}")
    diagnostic = error_of(text)
    assert (diagnostic.code, spanned_text(text, diagnostic)) == ("K212", body)
    assert diagnostic.message.endswith("(limit states_max)")
    assert diagnostic.hint.endswith(f"; nested counts multiply, here {product}")


def test_states_max_can_be_set() -> None:
    text = p("check A B C")
    assert error_of(text, Limits(states_max=3)).code == "K212"
    assert len(ketal.compile(text, limits=Limits(states_max=4)).one.automaton.table) == 4


def test_repetitions_max() -> None:
    diagnostic = error_of(p("find any A{1001}"))
    assert "more than 1000 (limit repetitions_max)" in diagnostic.message
    assert len(compile_one("find any A{1000}").automaton.table) == 1001
    lower = error_of(p("find any A{3}"), Limits(repetitions_max=2))
    assert "more than 2 (limit repetitions_max)" in lower.message


def test_a_limit_is_a_positive_integer_with_a_known_name() -> None:
    for value in (0, -1, True, 1.5, "3"):
        with pytest.raises(SettingError, match="states_max must be a positive integer"):
            Limits(states_max=value)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="did you mean states_max"):
        Limits.named({"state_max": 3})
    assert Limits.named({"states_max": 3}).states_max == 3


def test_compiling_does_not_split_on_decided_variables() -> None:
    """Many events, each with its own type and attribute: satisfiability needs no splits."""
    for guard in ('type == "t{i}"', 'x == "{i}"', 'type == "t{i}" && y{i} == 1'):
        count = 30
        events = "".join(f"event E{i} = {guard.format(i=i)};\n" for i in range(count))
        any_of = " | ".join(f"E{i}" for i in range(count))
        for body in (f"find next ({any_of}) E1", f"check {alternatives_with_futures(count)}"):
            with calls_at_most(CALLS_MAX):
                automaton = compile_one(body, letters=events).automaton
            assert len(automaton.minterms) == count


def test_a_pattern_of_very_many_steps_needs_no_deep_recursion() -> None:
    events = 'event A = type == "a";\n' + "".join(f"S{i} = A;\n" for i in range(1_500))
    steps = " ".join(f"S{i}" for i in range(1_500))
    with calls_at_most(2 * CALLS_MAX):
        assert len(compile_one(f"find any {steps}", letters=events).automaton.table) == 1_501


@pytest.mark.parametrize("event", ["E{} || x == {}", "E{}", "!E{}"])
def test_nesting_of_a_chain_of_events_is_limited(event: str) -> None:
    def chain(length: int) -> str:
        links = "".join(f"event E{n} = {event.format(n - 1, n % 50)};\n" for n in range(1, length))
        return f"event E0 = x == 0;\n{links}pattern P {{ check E{length - 1}*; }}"

    assert ketal.compile(chain(85)).fingerprint
    with calls_at_most(2 * CALLS_MAX):
        (diagnostic,) = [d for d in ketal.lint(chain(1_500)) if d.severity == "error"]
    assert (diagnostic.code, "the limit nesting_max)" in diagnostic.message) == ("K003", True)


def test_events_of_exponential_size_are_refused_before_expansion() -> None:
    """The bound is on CPU time: hashing the expanded guards makes no calls."""
    links = "".join(f"event E{n} = E{n - 1} && a || E{n - 1} && b;\n" for n in range(1, 22))
    text = f"event a = x == 0; event b = y == 0; event E0 = a;\n{links}pattern P {{ check E21*; }}"
    with within_cpu_seconds(2):
        (diagnostic,) = [d for d in ketal.lint(text) if d.severity == "error"]
    assert (diagnostic.code, "(limit pattern_bytes_max)" in diagnostic.message) == ("K003", True)


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the splits after which a proof is abandoned: a tenth of them in `make test`."""
    splits_max = sample(SPLITS_MAX // 10, SPLITS_MAX)
    monkeypatch.setattr("ketal.compiler.minterms.SPLITS_MAX", splits_max)
    return splits_max


def test_proof_over_large_guards_is_abandoned_in_time(splits: int) -> None:
    """Each event names the one before twice: 127 or 1,023 parts, most split in a full proof."""
    last = sample(7, 10)
    links = "".join(
        f"event E{n} = (E{n - 1} || x == {n}) && (E{n - 1} || y == {n});\n"
        for n in range(1, last + 1)
    )
    with calls_at_most(12_000 * splits):
        assert ketal.compile(f"event E0 = z == 0;\n{links}pattern P {{ find next E{last}; }}")


def test_search_of_a_proof_tries_the_smallest_part_first(splits: int) -> None:
    """Each event names the one before twice, once negated; some ten tests of it are hard."""
    links = "".join(
        f"event E{n} = !(E{n - 1} && x{n} == 1) || (E{n - 1} && y{n} == 2);\n" for n in range(1, 8)
    )
    pattern = "pattern P { A = E7; B = Causal(E7); check (A | B) A*; }"
    with calls_at_most(30_000 * splits):
        assert ketal.compile(f"event E0 = x == 1 && y == 2;\n{links}{pattern}")


def test_shared_parts_of_events_are_compiled_once() -> None:
    """Each event names the one before twice: 98,302 parts, of which few are different."""
    links = "".join(
        f"event E{n} = E{n - 1} && !(x{n} == 1) || !E{n - 1} && x{n} == 1;\n" for n in range(1, 16)
    )
    with calls_at_most(CALLS_MAX):
        assert ketal.compile(f"event E0 = x == 1;\n{links}pattern P {{ find any E15; }}")


EVENT = "event A = x == 1;"


def _each(count: int, statement: str) -> str:
    return " ".join(statement.format(n, n + 1) for n in range(count))


@pytest.mark.parametrize(
    ("text", "codes", "growth"),
    [
        (lambda n: f"{_each(n, 'event E{} = x == {};')} check E0*;", {"K210"}, 5),
        (lambda n: f"{EVENT * n} check A*;", {"K105"}, 5),
        (lambda n: f"{EVENT} partition by {_each(n, 'k{},')} k; check A*;", set(), 5),
        (lambda n: f"event A = x in [{_each(n, '{},')} 0]; check A*;", set(), 5),
        # Each step may be the next after each before it.
        (lambda n: f"{EVENT} find any A {'A? ' * (n // 4)};", {"K220"}, 16),
        (
            lambda n: f"{EVENT} B = A && y == S.y; S = A; find next S (A{{90}}){{{n // 30}}} B;",
            {"K220"},
            5,
        ),
        (
            lambda n: f"{EVENT} check automaton {{ initial q0; {_each(n, 'q{} -> q{} on A;')} }}",
            set(),
            5,
        ),
    ],
    ids=["declarations", "findings", "keys", "list", "choices", "registers", "edges"],
)
def test_work_grows_with_the_length_of_a_pattern(
    text: Callable[[int], str], codes: set[str], growth: int
) -> None:
    def work(length: int) -> int:
        found, calls = counted_calls(lambda: ketal.lint(f"pattern P {{ {text(length)} }}"))
        assert {diagnostic.code for diagnostic in found} == codes
        return calls

    length = sample(150, 300)
    work(length)  # what is computed only once
    assert work(4 * length) < growth * work(length)


def test_work_grows_with_the_number_of_patterns_that_share_events() -> None:
    def work(count: int) -> int:
        text = _each(count, "event E{0} = x == {0}; pattern P{0} {{ find any E{0}; }}")
        program, calls = counted_calls(lambda: ketal.compile(text))
        assert [compiled.declared[0][0] for compiled in program.compiled[:2]] == ["E0", "E1"]
        return calls

    work(20)  # what is computed only once
    assert work(160) < 5 * work(40)


def test_work_of_formatting_grows_with_the_number_of_comments() -> None:
    def work(lines: int) -> int:
        statements = "    event A = x == 1;  // a comment\n" * lines
        text = f"pattern P {{\n{statements}    check A*;\n}}\n"
        formatted, calls = counted_calls(lambda: format_text(text))
        assert formatted.count("// a comment") == lines
        return calls

    work(300)
    assert work(1_200) < 5 * work(300)


# --- hostile attributes ---------------------------------------------------------------------

LONG = "a" * 100_000


@pytest.mark.parametrize("regex", ["(a*)*b", "(a|a)*b", "(a+)+$x", "(.*)*(.*)*(.*)*b", "a{0,500}b"])
def test_no_regular_expression_stalls_on_a_hostile_attribute(regex: str) -> None:
    program = ketal.compile(p("find any S", f"S = x matches /{regex}/", letters="event E = true;"))
    with within_cpu_seconds(5):
        events = [e(f"n@{i}", "t", x=LONG) for i in range(1, 21)]
        assert list(ketal.run(program, events)) == []


GLOBS = (
    'S = host("*a*a*a*a*b")',
    'T = origin("*a*a*a*a*b")',
    "U = call(* *a*a*a*a*b(..))",
    "V = call(*a*a*a*a*b S.t(..))",
    "W = call(* S.t(.., *a*a*a*b, ..))",
)


def test_no_glob_stalls_on_a_hostile_attribute() -> None:
    program = ketal.compile(p(*GLOBS, "find any S | T | U | V | W", letters="event E = true;"))
    events = [
        Event(LONG, LONG, {LONG: 1}, data={"origin": LONG}),
        Event("n", "S.t", {"n": 1}, data={"result_type": LONG, "arg_types": [LONG] * 50}),
        Event("n", "S.t", {"n": 2}, data={"result_type": LONG, "arg_types": ["a"] * 10_000}),
    ]
    with within_cpu_seconds(5):
        assert list(ketal.run(program, events)) == []


def test_long_list_of_argument_types_does_not_make_a_call_backtrack() -> None:
    program = ketal.compile(
        p(
            "S = call(* S.t(.., a, .., a, .., a, .., b))",
            "find any S",
            letters="event E = true;",
        )
    )
    with calls_at_most(CALLS_MAX):
        event = e("n@1", "S.t", arg_types=["a"] * 5_000)
        assert list(ketal.run(program, [event])) == []


def test_argument_types_match_as_by_the_obvious_recursion() -> None:
    def matches_by_recursion(globs: tuple[str, ...], values: list[str]) -> bool:
        if not globs:
            return not values
        if globs[0] == "..":
            return any(matches_by_recursion(globs[1:], values[i:]) for i in range(len(values) + 1))
        return (
            bool(values)
            and globs[0] in ("*", values[0])
            and matches_by_recursion(globs[1:], values[1:])
        )

    for length in range(5):
        for globs in itertools.product(("..", "*", "a", "b"), repeat=length):
            matches = PREDICATES["arguments"].prepare(DEFAULT, globs)
            for count in range(4):
                for values in itertools.product("ab", repeat=count):
                    types = list(values)
                    assert matches(types) is matches_by_recursion(globs, types)


# --- errors and warnings of the compiler --------------------------------------------------------


def findings(text: str, *codes: str) -> list[tuple[str, str, str]]:
    """Return (code, severity, text of the span) of each diagnostic with one of these codes."""
    lines = text.split("\n")
    out = []
    for diagnostic in ketal.lint(text):
        if diagnostic.code in codes:
            span = diagnostic.span
            assert span is not None
            assert span.line == span.end_line
            assert diagnostic.message
            assert diagnostic.hint
            assert diagnostic.pattern == "P"
            out.append(
                (
                    diagnostic.code,
                    diagnostic.severity,
                    lines[span.line - 1][span.column - 1 : span.end_column - 1],
                )
            )
    return out


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (("S = A && B", "find any S"), ("K203", "error", "S")),
        (("S = A && x > 3 && x < 3", "find any S"), ("K203", "error", "S")),
        (("S = A && x == 1 && x == 2", "find any S"), ("K203", "error", "S")),
        (('S = A && x == 1 && x == "1"', "find any S"), ("K203", "error", "S")),
        (("S = A && !exists(x) && x != 1", "find any S"), ("K203", "error", "S")),
        (("S = A && x == 1 / 0", "find any S"), ("K203", "error", "x == 1 / 0")),
        (("S = A && !(x < 1 + 5 % 0)", "find any S"), ("K203", "error", "!(x < 1 + 5 % 0)")),
        (("param n = 0", "S = A && x > 8 / n", "find any S"), ("K203", "error", "x > 8 / n")),
        (("S = A && x == y / 0", "find any S"), None),
        (("S = A && (x == 1 / 0 || x == 2)", "find any S"), None),
        (('S = type == "other"', "find any S"), ("K204", "error", "S")),
        (("S = true && x == 1", "find any S"), None),
        (('find any A not (type == "x") B',), ("K205", "warning", 'type == "x"')),
        (("find any A not N B",), None),
        (("S = B && x == A.x", "find any A? S"), ("K201", "error", "A.x")),
        (("S = B && x == A.x", "find any (A | C) S"), ("K201", "error", "A.x")),
        (("S = B && x == A.x", "find any A+ S"), None),
        (("S = B && x == A.x", "find any {A & S}"), ("K201", "error", "A.x")),
        (("find any A? B", "return y = A.x"), ("K201", "error", "A.x")),
        (("find any A not (N && x == C.x) B C",), ("K201", "error", "C.x")),
    ],
)  # fmt: skip
def test_unsatisfiable_guards_and_unbound_references_are_reported(
    statements: tuple[str, ...], expected: tuple[str, str, str] | None
) -> None:
    found = findings(p(*statements), "K201", "K203", "K204", "K205")
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (("S = B && S.x > A.x", "find any A S"), "`S` is this step itself; "),
        (("S = B && S.x > 1", "find any A S+"), "`S` is this step itself; "),
        (("S = B.x > 1", "find any S"), "`B` is no step of the body; "),
        (("S = B && x == A.x", "find any A? S"), ""),
    ],
)
def test_the_hint_says_how_to_write_a_value_of_the_event_itself(
    statements: tuple[str, ...], reason: str
) -> None:
    (found,) = (one for one in ketal.lint(p(*statements)) if one.code == "K201")
    assert found.hint is not None
    is_own = "is an attribute of the event that the guard tests" in found.hint
    assert is_own is bool(reason)
    assert found.hint.startswith(reason)


@pytest.mark.parametrize(
    ("statements", "order", "body"),
    [
        (("check (A B)*",), "CausalOrder", "(A B)*"),
        (("check (A B)*",), "arrival", "(A B)*"),
        (("find next A B",), "CausalOrder", "A B"),
        (("find strict A B",), "CausalOrder", "A B"),
        (("find any A B",), "arrival", "A B"),
        (("find any A B", "within 3 events"), "CausalOrder", "within 3 events;"),
        (("find any A B", "limit 2"), "CausalOrder", "limit 2;"),
        (("find any A", "limit 2"), "arrival", "limit 2;"),
        (("find next A B", "limit 2"), "CausalOrder", "A B"),
        (("find any A not N B",), "arrival", "A not N B"),
        (("S = Causal(B, A)", "check (A S)*"), "CausalOrder", "(A S)*"),
    ],
)
def test_order_sensitive_patterns_are_warned_of(
    statements: tuple[str, ...], order: str, body: str
) -> None:
    text = p(*statements, order=order)
    assert findings(text, "K220") == [("K220", "warning", body)]
    assert not ketal.compile(text).one.order_independent
    (hint,) = (str(one.hint) for one in ketal.lint(text) if one.code == "K220")
    assert ("`mode possibly`" in hint) is statements[-1].startswith("check")


def test_events_of_two_incarnations_of_a_host_may_be_concurrent() -> None:
    """The order in which n1@2 and n1#2@1 are offered decides what follows n1@1."""
    compiled = ketal.compile(
        p('X = host("n1")', "find next X X", order="CausalOrder", letters="event E = true;")
    )
    assert not compiled.one.order_independent


@pytest.mark.parametrize(
    "statements",
    [
        ("find any A B",),
        ("find any A+ B", "within 5 s", "partition by k"),
        ("find any A not N B",),
        ("check (A | B)*",),
        ("check A*",),
        ("S = Causal(A)", "check S*"),
        ("find next A",),
        ('X = A && node == "n1"', 'Y = B && node == "n1"', "check (X Y)*"),
        ("check (A B)*", "partition by k, node"),
        ("find next A not N B", "within 3 events", "partition by node"),
    ],
)
def test_order_independent_patterns_are_proven(statements: tuple[str, ...]) -> None:
    letters = 'event A = type == "a"; event B = type == "b"; event N = type == "n";'
    if "node ==" in statements[0]:
        letters = 'event A = type == "a" && node == "n1"; event B = type == "b" && node == "n1"; '
    text = p(*statements, order="CausalOrder", letters=letters)
    assert findings(text, "K220") == []
    assert ketal.compile(text).one.order_independent


@pytest.mark.parametrize(
    ("find", "order", "void"),
    [
        ("find any A B", "total", "`total` has"),
        ("find any A B", 'total, nodes = ["p"]', "`total` and `nodes` have"),
        ("find any A+", "gap = 1 s, idle = 1 s", "`idle` has"),
        ("find any A B", "overflow = lost", "`overflow` has"),
        ("find any A B", "gap = 1 s", ""),
        ("find any A B", "frontier = 1 s", ""),
        ("find any A not N B", 'total, nodes = ["p"], idle = 1 s, overflow = lost', ""),
        ("find any A B; limit 1", 'total, nodes = ["p"]', ""),
        ("find any A B; within 3 events", 'total, nodes = ["p"]', ""),
        ("find next A B", 'total, nodes = ["p"]', ""),
    ],
)
def test_waiting_options_without_effect_are_warned_of(find: str, order: str, void: str) -> None:
    linted = ketal.lint(p(find, order=f"CausalOrder({order})"))
    diagnostics = [d for d in linted if d.code != "K108"]  # K108 is about unused events
    assert [d.code for d in diagnostics] == ["K224"] * bool(void)
    assert all(d.severity == "warning" and f"so {void} no effect" in d.message for d in diagnostics)


def test_order_sensitivity_names_two_steps_that_do_not_commute() -> None:
    (warning,) = ketal.compile(p("check (A B)*", order="CausalOrder", letters=AB)).warnings
    assert warning.message == "order-sensitive: in state q0, `A` and `B` do not commute"
    assert "CausalOrder(total)" in warning.hint


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("check A*", "in state q0, two events that no step accepts do not commute"),
        ("check automaton { initial q; q -> r on A; }", "in state q, two `A` do not commute"),
    ],
)
def test_order_sensitivity_names_events_that_no_step_accepts(check: str, message: str) -> None:
    text = p(check, "on violation resume", order="CausalOrder", letters=AB)
    (warning,) = [d for d in ketal.lint(text) if d.code == "K220"]
    assert warning.message == f"order-sensitive: {message}"


@pytest.mark.parametrize(
    ("statements", "order", "message", "hint"),
    [
        (
            "find strict A B", "arrival",
            ": in state q0, `A` and an event that no step accepts do not commute",
            "; or `find any` under `order CausalOrder`, which has the same matches in every order",
        ),
        (
            "find next A not N B", "CausalOrder",
            ": what a `not` excludes depends on the events offered in between",
            "; or `find any` under `order CausalOrder`, which has the same matches in every order",
        ),
        (
            "check (A N)*", "CausalOrder",
            ": in state q0, `A` and `N` do not commute",
            "; or, for a finite log, `mode possibly`, which reports a violation that some order "
            "of the events has",
        ),
        # A mode excludes `frontier`.
        (
            "check (A N)*", "CausalOrder(frontier = 1 s)",
            ": in state q0, `A` and `N` do not commute", "",
        ),
    ],
)  # fmt: skip
def test_order_sensitivity_says_why_and_what_to_use_instead(
    statements: str, order: str, message: str, hint: str
) -> None:
    """Events of one node are never concurrent, so no two `A` are swapped."""
    letters = "".join(
        f'event {name} = type == "{name}" && node == "n1"; ' for name in ("A", "B")
    ) + 'event N = type == "N"; '  # fmt: skip
    text = p(statements, order=order, letters=letters)
    (warning,) = [one for one in ketal.lint(text) if one.code == "K220"]
    assert warning.message == f"order-sensitive{message}"
    total = "use `order CausalOrder(total)`, which makes the result deterministic"
    assert warning.hint == f"{total}{hint}"


@pytest.mark.parametrize(
    ("statements", "order", "instead"),
    [
        (("find any A B",), "arrival", ("order arrival", "order CausalOrder")),
        (("find any A not N B",), "arrival", ("order arrival", "order CausalOrder")),
        (("find any A B", "limit 2"), "CausalOrder", ("limit 2;", "")),
        (("find any A B", "within 3 events"), "CausalOrder", ("3 events", "3 s")),
        (("find next A B",), "CausalOrder", ("find next", "find any")),
        (("find next A B",), "arrival", ("order arrival", "order CausalOrder(total)")),
        (("find next A B",), "CausalOrder", ("CausalOrder", "CausalOrder(total)")),
        (("find strict A B", "limit 2"), "CausalOrder", ("CausalOrder", "CausalOrder(total)")),
        (("check (A B)*",), "CausalOrder", ("CausalOrder", "CausalOrder(total)")),
        (("check (A B)*",), "arrival", ("order arrival", "order CausalOrder(total)")),
    ],
)
def test_hint_for_an_order_sensitive_pattern_removes_the_warning(
    statements: tuple[str, ...], order: str, instead: tuple[str, str]
) -> None:
    text = p(*statements, order=order)
    (warning,) = [d for d in ketal.lint(text) if d.code == "K220"]
    word = instead[1].removeprefix("order ") or "remove `limit`"
    assert (word if instead[1] != "3 s" else "use a time window") in warning.hint
    assert findings(text.replace(*instead), "K220") == []


@pytest.mark.parametrize("mode", ["possibly", "definitely"])
@pytest.mark.parametrize("order", ["arrival", "CausalOrder"])
@pytest.mark.parametrize("body", ["check (A B)*", "find next A B", "find any A B; limit 2"])
def test_pattern_with_a_mode_is_not_order_sensitive(mode: str, order: str, body: str) -> None:
    assert findings(p(f"mode {mode}", body, order=order), "K220") == []


AB = 'event A = type == "a"; event B = type == "b";\n'


def test_replicated_stack_is_order_independent() -> None:
    program = ketal.compile(REPLICATED_STACK)
    assert program.warnings == ()
    assert program.one.order_independent
    # Pushes and pops of other nodes alternate: a node may learn of either first.
    turns = REPLICATED_STACK.replace(
        "B = Causal(Push, A) || Causal(Pop, A);", "B = Causal(Push, A); D = Causal(Pop, A);"
    ).replace("(A B* C)*", "(A (B D)* C)*")
    (warning,) = ketal.compile(turns).warnings
    assert warning.code == "K220"
    assert "`B` and `D` do not commute" in warning.message


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        # One event can be S, whose register U reads, or T, which leaves it as it was.
        (
            ("S = A && x == 1", "T = A && y == 1", "U = Causal(B, S)", "check (S | T)* U"),
            [("K221", "warning", "T")],
        ),
        (("S = A && x == 1", "T = A && y == 1", "find any S B | T C"), [("K221", "warning", "T")]),
        # Merged: no register is read, so the readings are one set of states.
        (("S = A && x == 1", "T = A && y == 1", "check (S B | T C)*"), []),
        (("S = A && x == 1", "T = A && x == 2", "find any S B | T C"), []),
        (("find any A B | A C",), []),
        # No event is both after and concurrent with an anchor that has an event.
        (("S = Causal(B)", "T = Conc(B)", "find any A (S C | T D)"), []),
        (("S = Causal(B, all)", "T = Conc(B, all)", "find any A (S C | T D)"), []),
        (("S = Causal(B, A)", "T = Conc(B, A)", "find any A (S C | T D)"), []),
        (("S = Causal(B, A)", "T = Conc(B, A)", "check (A+ (S C | T D))*"), []),
        (("S = Causal(B, A)", "T = Conc(B, A)", "find any (A C | D A) (S C | T D)"), []),
        # Without an event both hold; of two anchors, one may be the other's past.
        (("S = Causal(B)", "T = Conc(B)", "find any (S C | T D)"), [("K221", "warning", "T")]),
        (
            ("S = Causal(B, A)", "T = Conc(B, A)", "find any (A | C) (S C | T D)"),
            [("K221", "warning", "T")],
        ),
        (
            ("S = Causal(B, A)", "T = Conc(B, C)", "find any A C (S C | T D)"),
            [("K221", "warning", "T")],
        ),
    ],
)
def test_ambiguous_steps_are_warned_of(
    statements: tuple[str, ...], expected: list[tuple[str, str, str]]
) -> None:
    letters = AB + 'event C = type == "c"; event D = type == "d";'
    text = p(*statements, order="CausalOrder", letters=letters)
    assert findings(text, "K221") == expected
    for warning in ketal.compile(text).warnings:
        if warning.code == "K221":
            assert "one event can be both `S` and `T`" in warning.message


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (("S = Causal(B, A)", "find any S A"), [("K223", "warning", "A")]),
        (("T = A", "S = Causal(B, T)", "find any A S"), [("K223", "warning", "T")]),
        (("S = Conc(B)", "find any S A"), [("K223", "warning", "Conc(B)")]),
        (("S = Causal(B, all)", "find any S A"), [("K223", "warning", "all")]),
        (("S = Causal(B, S)", "find any A S"), [("K223", "warning", "S")]),
        (("find any A not (Causal(N, B)) B",), [("K223", "warning", "B")]),
        (("S = Causal(B, A) || Causal(C, D)", "find any A S D"), [("K223", "warning", "D")]),
        # On some path is enough.
        (("S = Causal(B, A)", "find any A? S"), []),
        (("S = Causal(B, A)", "find any (S A)+"), []),
        (("S = Causal(B, S)", "find any A S S"), []),
        (("S = Conc(B)", "find any S+ A"), []),
        (("S = Causal(B, A)", "find any {A & S}"), []),
        (("find any A not (Causal(N, A)) B",), []),
        (
            ("S = Causal(B, A)", "check automaton { initial q; q -> r on S; r -> q on A; }"),
            [],
        ),
    ],
)
def test_an_anchor_that_has_no_event_on_any_path_is_warned_of(
    statements: tuple[str, ...], expected: list[tuple[str, str, str]]
) -> None:
    assert findings(p(*statements, order="CausalOrder"), "K223") == expected


def test_an_anchor_without_an_event_before_a_not_is_said_to_be_before_this_not() -> None:
    text = p("find any A not (Causal(N, B)) B", order="CausalOrder")
    (warning,) = [d for d in ketal.lint(text) if d.code == "K223"]
    assert warning.message.endswith("on no path does `B` have an event before this `not`")
    assert "before this `not`" in warning.hint


def test_an_anchor_of_a_step_that_the_body_never_takes_is_warned_of() -> None:
    """K223 is at its use, K107 at its declaration: without the declaration it is an error."""
    text = p("S = A && !Causal(A, R)", "R = B", "check S")
    said = {w.code: (w.message, w.hint) for w in ketal.compile(text).warnings}
    assert said["K223"] == (
        "`Causal` has no event to compare with here: the step `R` is not in the body",
        "put `R` into the body before `S`, or name another anchor",
    )
    assert said["K107"] == ("the step `R` is never used", "use it in the `check`")


def test_hint_for_an_operator_on_the_first_step_keeps_its_event() -> None:
    """Without `!Causal(A)` the step would take events; as written it takes none."""
    text = p("S = A && !Causal(A)", "find any S B")
    [warning] = [w for w in ketal.compile(text).warnings if w.code == "K223"]
    assert warning.message.endswith("here: no event is taken before `S`")
    assert warning.hint == "write its event alone, or put a step before it in the body"


@pytest.mark.parametrize("guard", ["x == R.x", "Causal(A, R)", "!Conc(A, R)"])
def test_step_on_an_unreachable_edge_may_name_a_step_outside_the_body(guard: str) -> None:
    body = "automaton { initial q; q -> r on A; dead -> r on S; }"
    program = ketal.compile(p(f"S = A && {guard}", "R = B", f"check {body}"))
    assert [str(v) for v in ketal.run(program, [e("n@1", "a"), e("n@2", "a")])] == [
        "violation P: n@2 a: nothing may follow"
    ]


@pytest.mark.parametrize(
    ("guard", "reason"),
    [
        ("!Causal(A, R)", "R has no event yet"),
        ("!Conc(A, R)", "R has no event yet"),
        ("!Causal(A, B)", "B has no event yet"),
        ("!Causal(A, all)", "no event was taken before it"),
        ("!Conc(A)", "no event was taken before it"),
    ],
)
def test_the_reason_of_a_violation_names_an_anchor_without_an_event(
    guard: str, reason: str
) -> None:
    program = ketal.compile(p(f"S = A && {guard}", "R = B", "check S B*"))
    (violation,) = ketal.Monitor(program).feed(e("n@1", "a"))
    assert isinstance(violation, ketal.Violation)
    assert violation.reason == f"expected S; not S: {reason}"


LIST = '!(x in [1, "a"])'


@pytest.mark.parametrize(
    ("guard", "hint"),
    [
        ("x == 1 / 0", "a calculation in it, such as a division by 0"),
        (f"{LIST} || x == 1 && x == 2", "a list contains a number and a string"),
        ('!(x in [1, "a"] || y == 1)', "a list contains a number and a string"),
        (f"!!({LIST})", "a list contains a number and a string"),
        (f"Causal({LIST})", "a list contains a number and a string"),
        (f"Conc({LIST})", "a list contains a number and a string"),
        ("!Mixed", "a list contains a number and a string"),
        ('x in [1, "a"] && x == 3', "its conditions contradict each other"),
        ('!(!(x in [1, "a"]) || true)', "its conditions contradict each other"),
        ("Causal(B, C)", "its conditions contradict each other"),
        ("!(x in [1, 2] || true)", "its conditions contradict each other"),
        ("!(x in [1, y] || true)", "its conditions contradict each other"),
    ],
)
def test_the_hint_for_an_unsatisfiable_step_says_why(guard: str, hint: str) -> None:
    text = p('event Mixed = x in [1, "a"]', f"S = A && ({guard})", "find any C S")
    (found,) = [d for d in ketal.lint(text) if d.code == "K203"]
    assert found.hint.startswith(hint)


def test_the_hint_for_a_negated_list_of_several_kinds_names_the_kinds() -> None:
    text = p('S = A && !(x in [1, "a"])', "find any S")
    (said,) = [d for d in ketal.lint(text) if d.severity == "error"]
    assert (said.code, spanned_text(text, said)) == ("K203", '!(x in [1, "a"])')
    assert "a number and a string" in said.hint
    assert "different kinds is unknown" in said.hint
    better = p('S = A && (!(x in [1]) || !(x in ["a"]))', "find any S")
    assert not [d for d in ketal.lint(better) if d.severity == "error"]
    assert ketal.lint(p('S = A && x in [1, "a"]', "find any S")) == ketal.lint(
        p("S = A && x == 1", "find any S")
    )


# --- lists and chains ---------------------------------------------------------------------------


def test_list_is_a_single_predicate_of_any_length() -> None:
    items = ", ".join(f"{n}, {n}.0" for n in range(5_000))
    compiled = compile_one(f"S = x in [{items}]", "T = y in [3, 3.0]", "find any S T")
    shapes = [atom.shape for atom in compiled.automaton.atoms]
    assert shapes.count("member") == 1
    assert len([s for s in shapes if s in ("member", "compare")]) == 2 + 5  # five events
    events = [e("n@1", "a", x=4_999, y=1), e("n@2", "a", x=True), e("n@3", "b", y=3)]
    assert [satisfied(compiled, event) for event in events] == [{0}, set(), set()]


def test_order_of_a_list_does_not_change_the_fingerprint() -> None:
    prints = {
        compile_one(f"S = A && x in [{items}]", "find any S").fingerprint
        for items in ("1, 2, 3", "3, 2, 1", "2, 3, 1, 2")
    }
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("guards", "expected"),
    [
        ("x in [1, 2] | x == 2", {(0,), (0, 1)}),
        ("x in [1, 2] | x == 3", {(0,), (1,)}),
        ("x in [1, 2] | x in [3, 4]", {(0,), (1,)}),
        ("x in [1, 2] | x < 3", {(1,), (0, 1)}),
        ("x in [1, 5] | x < 3", {(0,), (1,), (0, 1)}),
        ("x in [1, 2] | x != 1", {(0,), (1,), (0, 1)}),
        ("x in [1, 2] | !(x in [1, 2])", {(0,), (1,)}),
        ("x in [1, 'a'] | x in ['a', true]", {(0,), (1,), (0, 1)}),
        ("x in ['a', 'b'] | x matches /a/", {(0,), (1,), (0, 1)}),
        ("x in ['a', 'ba'] | x matches /a/", {(1,), (0, 1)}),
        ("type in ['a', 'b'] | call(* a(..))", {(0,), (0, 1)}),
        ("!(x in [1, 2]) | !(x in [2, 3])", {(0,), (1,), (0, 1)}),
        ("!(x in [1, 2]) | exists(x)", {(1,), (0, 1)}),
        ("x + 1 in [1, 2] | x + 1 == 3", {(0,), (1,)}),
    ],
)
def test_theory_handles_lists(guards: str, expected: set[tuple[int, ...]]) -> None:
    assert first_minterms(choice_with_futures(*guards.replace("'", '"').split(" | "))) == expected


def test_long_sum_is_evaluated_from_the_left() -> None:
    compiled = compile_one(
        f"S = x == 1{' + y' * 2_000}", f"T = x == 0{' - y * 2' * 50}", "find any S | T"
    )
    for x, guards in ((2_001, {0}), (-100, {1}), (5, set())):
        assert satisfied(compiled, e("n@1", "a", x=x, y=1)) == guards


# --- what the reviewers found -------------------------------------------------------------------


def test_scope_with_two_parts_of_the_same_name_is_refused() -> None:
    text = 'pattern P { at every node; partition by node; event E = type == "e"; check E*; }'
    with pytest.raises(PatternError, match="K206"):
        ketal.compile(text)


def test_guard_too_hard_to_refute_is_assumed_satisfiable(splits: int) -> None:
    # Eight pigeons in seven holes: unsatisfiable, and exponential to refute by splitting.
    pigeons, holes = range(8), range(7)
    somewhere = [" || ".join(f"p{p}h{h}a == p{p}h{h}b" for h in holes[:1]) for p in pigeons[:1]]
    clauses = [f"({' || '.join(f'p{p} == {h}' for h in holes)})" for p in pigeons]
    clauses += [
        f"!(p{p} == {h} && p{q} == {h})"
        for h in holes
        for p, q in itertools.combinations(pigeons, 2)
    ]
    text = f"pattern P {{ event E = true; A = {' && '.join([*somewhere, *clauses])}; check A*; }}"
    with calls_at_most(20_000 * splits):
        ketal.compile(text, limits=Limits(atoms_max=200))


# --- a step that is both after and concurrent with what is bound -----------------------------


@pytest.mark.parametrize(
    ("steps", "dead"),
    [
        ("B = Causal(E) && Conc(E); find any A B;", True),
        ("B = Causal(E, A) && Conc(E, A); find any A B;", True),
        ("B = Causal(E, all) && Conc(E, A); find any A B;", True),
        ("B = Causal(E) && Conc(E, A); find any A B;", True),  # the prior event is A
        ("B = Causal(E) && Conc(E, A); find any A E B;", False),
        ("B = Causal(E) || Conc(E); find any A B;", False),
        ("B = Causal(E) && Conc(E); find any A? B;", False),  # the first one asks nothing
        ("B = Causal(E, A) && Conc(E, A); find any A? E B;", False),
        ("B = Causal(E) && !Conc(E); find any A B;", False),
    ],
)
def test_step_that_no_event_can_satisfy_is_refused(steps: str, dead: bool) -> None:
    """An event that is causally after another is not concurrent with it."""
    text = f"pattern P {{ order CausalOrder; event E = true; A = E; {steps} }}"
    if not dead:
        assert ketal.compile(text)
        return
    with pytest.raises(PatternError, match=r"K203.*no event can satisfy the step `B`"):
        ketal.compile(text)
