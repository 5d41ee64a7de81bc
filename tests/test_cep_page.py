"""docs/cep.md: each row of its table finds what the construct of the other engines finds.

These constructs are defined here over the positions of a stream, without ketal.
"""

from __future__ import annotations

import doctest
import random
import re
from collections.abc import Callable
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given

import ketal
from tests.page_blocks import page
from tests.sampling import chances, examples

PAGE = page("cep.md")
ROWS = dict(re.findall(r"^\| .* \| `([^|]+;)`(.*) \|$", PAGE, re.M))
WINDOW_S = 5

Found = list[tuple[int, ...]]
"""The positions of the events of each match, or of each window that timed out."""


class Stream:
    """The types, times and attributes of the events of a stream, by their positions."""

    def __init__(self, rng: random.Random) -> None:
        count = rng.randint(0, 9)
        self.types = "".join(rng.choice("aaabbcuo") for _ in range(count))
        self.values = [rng.randrange(4) for _ in range(count)]
        self.cards = [rng.choice("xy") for _ in range(count)]
        self.times = [0] * count
        for n in range(1, count):
            self.times[n] = self.times[n - 1] + rng.choice((0, 1, 2, 5, 6))

    def of(self, kind: str, after: int = -1) -> list[int]:
        """Return the positions of the events of a type after a position."""
        return [n for n in range(after + 1, len(self.types)) if self.types[n] == kind]

    def near(self, one: int, two: int) -> bool:
        return abs(self.times[one] - self.times[two]) < WINDOW_S

    def pairs(self, first: str, second: str) -> Found:
        return [(a, b) for a in self.of(first) for b in self.of(second, a)]

    def first_pairs(self) -> Found:
        return [(a, b) for a, b in self.pairs("a", "b") if b == self.of("b", a)[0]]

    def until(self, a: int, end: str) -> list[int]:
        """Return the `b` after an `a`, up to the first `end` after the first of them."""
        following = self.of("b", a)
        ends = self.of(end, following[0]) if following else []
        return [b for b in following if not ends or b < ends[0]]

    def runs(self, regex: str, named: str) -> Found:
        """Return the longest match of a regular expression from each of the events it names."""
        places = [n for n, kind in enumerate(self.types) if kind in named]
        text = "".join(self.types[n] for n in places)
        starts = [re.compile(regex).match(text, n) for n in range(len(text))]
        return [tuple(places[m.start() : m.end()]) for m in starts if m]

    def events(self, rng: random.Random) -> list[ketal.Event]:
        """Return the events, each at one of three nodes, and after the one before it."""
        clock: dict[str, int] = {}
        out = []
        for n, kind in enumerate(self.types):
            node = rng.choice("pqr")
            clock[node] = clock.get(node, 0) + 1
            data = {"v": self.values[n], "card": self.cards[n], "position": n}
            out.append(
                ketal.Event(node=node, type=kind, clock=dict(clock), time=self.times[n], data=data)
            )
        return out


def subsets(items: list[int]) -> Any:
    return chain.from_iterable(combinations(items, n) for n in range(1, len(items) + 1))


DEFINED: dict[str, Callable[[Stream], Found]] = {
    "partition by card;": lambda s: [
        (a, b) for a in s.of("a") for b in [b for b in s.of("b", a) if s.cards[b] == s.cards[a]][:1]
    ],
    "find strict A B;": lambda s: s.runs("ab", "ab"),
    "event Other = true; find strict A B;": lambda s: s.runs("ab", "aabbcuo"),
    "find next A B;": Stream.first_pairs,
    "find any A B;": lambda s: s.pairs("a", "b"),
    "find next A not C B;": lambda s: [
        (a, b) for a, b in s.first_pairs() if "c" not in s.types[a:b]
    ],
    "find next A B; within 5 s;": lambda s: [
        (a,) for a in s.of("a") if not any(s.near(a, b) for b in s.of("b", a))
    ],
    "First = A; Second = A; find next First Second; within 5 s;": lambda s: [
        (a,) for a in s.of("a") if not any(s.near(a, b) for b in s.of("a", a))
    ],
    "find strict A{2,} B;": lambda s: s.runs("a{2,}b", "ab"),
    "find next A B+ C;": lambda s: [
        (a, *repeated, s.of("c", repeated[-1])[0])
        for a in s.of("a")
        if (repeated := s.until(a, "c")) and s.of("c", repeated[-1])
    ],
    "find any A B+ C;": lambda s: [
        (a, *some, c)
        for a in s.of("a")
        for some in subsets(s.of("b", a))
        for c in s.of("c", some[-1])
    ],
    "find next A B+ U?;": lambda s: [
        (a, *s.until(a, "u")[: n + 1]) for a in s.of("a") for n in range(len(s.until(a, "u")))
    ],
    "find any {A & B}; within 5 s;": lambda s: [
        pair for pair in s.pairs("a", "b") + s.pairs("b", "a") if s.near(*pair)
    ],
    "First = A; Second = A && v > First.v; find any First Second;": lambda s: [
        (a, b) for a, b in s.pairs("a", "a") if s.values[b] > s.values[a]
    ],
}
"""What each row finds, by its code."""


def text_of(code: str, order: str) -> str:
    declared = "".join(
        f'event {name} = type == "{name.lower()}"; '
        for name in "ABCU"
        if re.search(rf"\b{name}\b", code)
    )
    if "find" not in code:
        code, declared = f"{code} find next A B;", 'event A = type == "a"; event B = type == "b"; '
    return f"pattern P {{ order {order}; {declared}{code} }}"


def found_in(code: str, verdicts: list[ketal.Verdict], events: list[ketal.Event]) -> Found:
    """Return what the row with this code names: matches, those without U, or time-outs."""
    place = {event.dot: n for n, event in enumerate(events)}
    which = ROWS.get(code, "")
    kind = ketal.TimedOut if "timed_out" in which else ketal.Match
    bindings = [verdict.bindings for verdict in verdicts if isinstance(verdict, kind)]
    return sorted(
        tuple(sorted(place[dot] for dot in chain.from_iterable(bound.values())))
        for bound in bindings
        if not ("without U" in which and "U" in bound)
    )


OPTIONAL = "One = A; Two = A; find next One C | Two B C;"


def with_and_without(stream: Stream) -> Found:
    """Return what `A followedBy B optional followedBy C` finds: `A C`, and `A B C`."""
    without = [(a, c) for a in stream.of("a") for c in stream.of("c", a)[:1]]
    return without + [(a, b, c) for a, b in stream.first_pairs() for c in stream.of("c", b)[:1]]


def test_table_has_the_rows_that_are_defined() -> None:
    assert list(ROWS) == list(DEFINED)
    assert f"`{OPTIONAL}`" in PAGE


@pytest.mark.parametrize("code", [*DEFINED, OPTIONAL])
def test_row_finds_what_the_construct_finds(code: str) -> None:
    arrival, causal = (ketal.compile(text_of(code, order)) for order in ("arrival", "CausalOrder"))
    found = 0

    @examples(60, 1_000)
    @given(chances())
    def holds(rng: random.Random) -> None:
        nonlocal found
        stream = Stream(rng)
        events = stream.events(rng)
        expected = sorted({**DEFINED, OPTIONAL: with_and_without}[code](stream))
        found += len(expected)
        shuffled = rng.sample(events, len(events))
        monitor = ketal.Monitor(causal)
        for verdicts in (
            list(ketal.run(arrival, events)),
            list(ketal.run(causal, shuffled)),
            monitor.feed_many(shuffled) + monitor.close(),
        ):
            assert found_in(code, verdicts, events) == expected

    holds()
    assert found > 0


def test_occurrences_of_one_step_are_one_reading() -> None:
    text = text_of("find next A C | A B C;", "arrival")
    events = [ketal.Event("p0", kind, {"p0": n}) for n, kind in enumerate("abc", 1)]
    assert [str(match) for match in ketal.run(ketal.compile(text), events)] == [
        "match P: A=p0@1, B=p0@2, C=p0@3"
    ]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The names that the examples on the page define, after these printed what they show."""
    text = re.sub(r"^ *```.*$", "", PAGE, flags=re.M)
    shown = doctest.DocTestParser().get_doctest(text, {}, "cep.md", "cep.md", 0)
    result = doctest.DocTestRunner().run(shown, clear_globs=False)
    assert (result.failed, result.attempted) == (0, 9)
    return shown.globs


def falls_then_rises(names: dict[str, Any], rng: random.Random) -> None:
    """Compare a V, with `previous` for `PREV`, and `skip_past_last`, with a regular expression."""
    prices = [rng.randrange(4) for _ in range(rng.randint(1, 9))]
    before = [None, *prices]
    events = [
        ketal.Event("p0", "tick", {"p0": n}, data={"price": price, "previous": before[n - 1]})
        for n, price in enumerate(prices, 1)
    ]
    moves = "".join(
        "." if one is None else "d" if two < one else "u" if two > one else "-"
        for one, two in zip(before, prices, strict=False)
    )
    program = ketal.compile("""pattern V {
        event Tick = type == "tick";
        Start = Tick;
        Down = Tick && price < previous;
        Up = Tick && price > previous;
        find strict Start Down+ Up+;
    }""")
    kept = names["skip_past_last"](ketal.run(program, events).matches)
    spans = [(match.events[0].counter - 1, match.events[-1].counter) for match in kept]
    assert spans == [found.span() for found in re.finditer(".d+u+", moves)]


def test_skip_past_last_and_previous_are_those_of_match_recognize(names: dict[str, Any]) -> None:
    @examples(60, 1_000)
    @given(chances())
    def holds(rng: random.Random) -> None:
        falls_then_rises(names, rng)

    holds()


def test_event_that_ends_a_match_of_find_any_does_not_time_out() -> None:
    code = "First = A; Second = A; find {}; within 5 s;"
    events = [ketal.Event("p0", "a", {"p0": n}, time=n) for n in (1, 2)]
    late = {
        strategy: [
            [str(dot) for dot in verdict.bindings["First"]]
            for verdict in ketal.run(
                ketal.compile(text_of(code.format(f"{strategy} First Second"), "arrival")), events
            )
            if isinstance(verdict, ketal.TimedOut)
        ]
        for strategy in ("next", "any")
    }
    assert late == {"next": [["p0@2"]], "any": []}
