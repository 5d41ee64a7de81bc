"""Which values of a sequence that never falls are wrong, if it falls.

What is kept is the heaviest non-falling subsequence (Fredman, "On computing the
length of longest increasing subsequences", 1975), found block by block: where
nothing before is greater than anything after, a sequence falls apart.

The one rule: of two answers as good, the one that keeps the earlier values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

RUN = 3
"""So many neighbours that are wrong alike have one cause."""

_BIG = 1_000_000_000_000


def runs(wrong: Sequence[int], values: Sequence[int]) -> Iterator[list[int]]:
    """Yield neighbours that have one cause together, all others by themselves."""
    run: list[int] = []
    for at in [*wrong, -1]:
        if run and at == run[-1] + 1 and values[at] >= values[run[-1]]:
            run.append(at)
            continue
        if len(run) >= RUN:
            yield run
        else:
            yield from ([one] for one in run)
        run = [at]


def outliers(values: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Return the places outside of the heaviest non-falling subsequence.

    Of equally heavy ones the earlier values are kept.
    """
    wrong: list[int] = []
    greatest: list[int] = []
    for value in values:
        greatest.append(value if not greatest else max(greatest[-1], value))
    start, least = len(values), None
    block_end = len(values)
    # A column falls apart where nothing before is greater than anything after.
    for at in range(len(values) - 1, -1, -1):
        least = values[at] if least is None else min(least, values[at])
        start = at
        if at == 0 or greatest[at - 1] <= least:
            if block_end - start > 1:
                wrong += _outliers_of_block(values, weights, start, block_end)
            block_end, least = start, None
    return sorted(wrong)


def _outliers_of_block(
    values: Sequence[int], weights: Sequence[int], start: int, end: int
) -> list[int]:
    ranks = {value: rank for rank, value in enumerate(sorted(set(values[start:end])), 1)}
    # A tree of maxima over the values: (weight, where the subsequence ends).
    tree: list[tuple[int, int]] = [(0, -1)] * (len(ranks) + 1)
    before: list[int] = []
    top = (0, -1)
    for at in range(start, end):
        rank = ranks[values[at]]
        best, index = (0, -1), rank
        while index:
            best = max(best, tree[index])
            index -= index & -index
        before.append(best[1])
        mine = best[0] + weights[at] * _BIG - (at - start), at
        top = max(top, mine)
        index = rank
        while index <= len(ranks):
            tree[index] = max(tree[index], mine)
            index += index & -index
    keep: set[int] = set()
    at = top[1]
    while at >= 0:
        keep.add(at)
        at = before[at - start]
    return [at for at in range(start, end) if at not in keep]
