"""Random cases of the engine against the oracle, as many as one has the time for.

    .venv/bin/python -m tests.property.many_cases --cases 1000000 --processes 2

Half are patterns of every kind, half are `find any`, each in every order in which the oracle's
answer holds. Chunks of 1,000 cases have a seed each, their number, so that a chunk can be run
again (`--first N --cases 1000`); a case that differs is shrunk, and printed with its chunk, which
ends there.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from hypothesis import HealthCheck, given, reject, seed, settings

from ketal.grammar import render
from tests.outcomes import TooManyError
from tests.property.against_oracle import differing_orders, small_case
from tests.sampling import chances

CHUNK = 1_000


def chunk(number: int) -> tuple[int, str | None]:
    """Try the cases of a chunk; return how many there were, and the smallest that differs."""
    tried = 0

    @seed(number)
    @settings(
        max_examples=CHUNK,
        database=None,
        derandomize=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(chances())
    def holds(rng: random.Random) -> None:
        nonlocal tried
        case = small_case(rng, rng.choice((None, "any")))
        if case is None:
            reject()
        try:
            differ = differing_orders(case, rng)
        except TooManyError:
            reject()
        assert not differ, f"{differ}\n{render(case.file)}"
        tried += 1

    try:
        holds()
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        return tried, f"chunk {number}: {type(error).__name__}: {error}\n{notes}"
    return tried, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first chunk")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    begun = time.monotonic()
    chunks = range(asked.first, asked.first + -(-asked.cases // CHUNK))
    cases = differing = 0
    with ProcessPoolExecutor(asked.processes) as pool:
        for done in as_completed([pool.submit(chunk, number) for number in chunks]):
            tried, difference = done.result()
            cases += tried
            if difference is not None:
                differing += 1
                print(difference, flush=True)
            took = time.monotonic() - begun
            print(f"{cases:,} cases, {took:,.0f} s, {cases / took:,.0f}/s", file=sys.stderr)
    print(f"{cases:,} cases in {took:,.0f} s on {asked.processes} processes, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
