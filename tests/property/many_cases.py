"""Compares the engine with the oracle over a given number of random cases.

    .venv/bin/python -m tests.property.many_cases --cases 1000000 --processes 2

Half the patterns are of every kind, half are `find any`, each in every order for which the oracle's
answer is valid. A pattern is compiled once and run over eight executions, which are eight cases.
Each chunk of about 1,000 cases has its number as seed, so that a chunk can be run again
(`--first N --cases 1000`). A case that differs is shrunk and printed with its chunk, which ends
there.
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
from tests.property.against_oracle import compiled_of, differing_orders, judged
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import chances

CHUNK = 1_000
EXECUTIONS = 8
"""Number of executions per pattern."""


def chunk(number: int) -> tuple[int, str | None]:
    """Run a chunk; return its number of cases, and the smallest case that differs."""
    tried = 0

    @seed(number)
    @settings(
        max_examples=CHUNK // EXECUTIONS,
        database=None,
        derandomize=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(chances(tape_bytes=2_048))
    def holds(rng: random.Random) -> None:
        nonlocal tried
        pattern = compiled_of(pattern_file(rng, strategy=rng.choice((None, "any"))))
        if pattern is None:
            reject()
        for _ in range(EXECUTIONS):
            case = judged(pattern, execution(rng, events_max=10))
            if case is None:
                continue
            try:
                differ = differing_orders(case, rng)
            except TooManyError:
                continue
            assert not differ, f"{differ}\n{render(case.file)}\n{case.events}"
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
