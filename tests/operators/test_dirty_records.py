"""Dirty records: with each call of `take` applied, the saved objects equal the live ones."""

from __future__ import annotations

import random

from hypothesis import given

from ketal.operators.dirty_records import DirtyRecords
from tests.sampling import chances, examples


@examples(50, 1_000)
@given(rng=chances())
def test_changes_applied_to_the_saved_objects_give_the_live_ones(rng: random.Random) -> None:
    dirty = DirtyRecords[int]()
    live: dict[int, int | None] = {}
    saved: dict[int, int | None] = {}
    end = 0
    for _ in range(40):
        match rng.choice(("add", "change", "remove", "take")):
            case "add":
                live[end] = rng.randrange(10)
                dirty.mark(end, live[end] or 0)
                end += 1
            case "change" if live:
                number = rng.choice(sorted(live))
                live[number] = rng.randrange(10)
                dirty.mark(number, live[number] or 0)
            case "remove" if live:
                number = rng.choice(sorted(live))
                del live[number]
                dirty.remove(number)
            case "take":
                for number, one in dirty.take(lambda: dict(live), end).items():
                    if one is None:
                        assert number in saved, "only saved objects are removed"
                        del saved[number]
                    else:
                        saved[number] = one
                assert saved == live
                assert dirty.changed == {}
