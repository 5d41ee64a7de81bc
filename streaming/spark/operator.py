"""The operator: the functions that Spark calls on the executors with a key group's rows.

A group's state is one binary value: the execution's records, the partitions that have ended, and
the counts. Spark passes the columns of the group's new rows; the operator advances to the
watermark, sorts the rows by topic, partition and offset, processes them, and returns verdicts as
columns.

Spark's watermark in a batch is that of the batches before it, and each call has it. It is applied
before the rows: applied after them, a group would use the watermark of the last batch in which it
was called, which is old where the group was quiet and had no timer.

The one rule: a group's verdicts do not depend on the worker, nor on the batches in which it had no
rows. A worker caches the program, and a group, which is used only if its state is the one that
Spark passes.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import operator
import os
import pickle
import sys
import zipimport
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ketal.streaming.spark.group import Group, Work
from ketal.streaming.spark.rows.row_reader import Row

ROWS_MAX = 10_000
"""So many verdicts are returned at once."""
COLLECT_AFTER = 500_000
"""Objects made between two collections of garbage cycles."""

FREE_BYTES = 64 << 20
"""So much free memory at the end of its heap a worker keeps for the next batch."""
_MAPPED_BYTES = 32 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

FROZEN_MAX = 256
"""So many calls in turn leave the cached groups out of garbage collection."""

_loaded: dict[bytes, Work] = {}
_groups: dict[tuple[bytes, int], tuple[bytes, Group]] = {}
_LOADED_MAX, _GROUPS_MAX = 8, 1_024
_calls = itertools.count(1)


def _work(shipped: bytes, digest: bytes) -> Work:
    """Return the work that was pickled; a worker loads it once."""
    work = _loaded.get(digest)
    if work is None:
        if len(_loaded) >= _LOADED_MAX:
            _loaded.clear()
            _groups.clear()
        work = _loaded[digest] = pickle.loads(shipped)
        settle_worker()
    _drop_importers()
    return work


def settle_worker() -> None:
    """Have a worker collect garbage cycles less often, and keep memory between batches.

    The columns of a batch, and arrays made of them, are larger than what the C library of Linux
    keeps by itself: it would free and map each again, a page fault for every 4 kB.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    # Other systems, and other C libraries, have no such function.
    with contextlib.suppress(ImportError, OSError, TypeError, AttributeError):
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, FREE_BYTES)


def _drop_importers() -> None:
    """Drop the cached importers of archives that do not change: pyspark's, ketal's and Spark's jar.

    At the start of each task pyspark invalidates the caches of all importers, and each importer of
    an archive reads its directory again: 1,700 names of pyspark.zip for each of 13 packages, and
    thrice those of the jar, which Spark puts on Python's path; 0.13 s of processor time. What
    imports from an archive later makes a new importer.
    """
    loaders = [getattr(sys.modules.get(name), "__loader__", None) for name in ("pyspark", "ketal")]
    archives = {one.archive for one in loaders if isinstance(one, zipimport.zipimporter)}
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and (
            finder.archive in archives or os.path.basename(finder.archive).startswith("spark-core_")
        ):
            del sys.path_importer_cache[path]


def _exempt_groups() -> None:
    """Exempt the cached groups from garbage collection.

    After each task pyspark's daemon has a worker collect garbage among all objects; those of the
    groups are many. Frozen objects are freed by their reference counts, but not in cycles, so now
    and then all are collected.
    """
    if next(_calls) % FROZEN_MAX == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()


class Operator:
    """The functions that Spark calls.

    A pickled `Work` has the compiled tables, so that executors need no compiler.
    """

    def __init__(self, shipped: bytes) -> None:
        self.shipped = shipped
        self.digest = hashlib.blake2b(shipped, digest_size=16).digest()

    def stateful(self, key: tuple[Any, ...], frames: Iterable[Any], state: Any) -> Iterator[Any]:
        """Process a batch's rows of one group: the function of `applyInPandasWithState`."""
        import pandas

        work = _work(self.shipped, self.digest)
        group = self._group(work, int(key[0]), state.get[0] if state.exists else None)
        out: list[tuple[str | None, ...]] = []
        mark_ms = state.getCurrentWatermarkMs() if work.timed else 0
        out += map(work.row, group.advance(mark_ms))
        if not state.hasTimedOut:
            out += map(work.row, group.take(_ordered(frames, work.shape.columns)))
        if work.timed and group.waits:
            state.setTimeoutTimestamp(max(0, mark_ms) + 1)
        out += _beside(group, work, Counter((row[0], row[1]) for row in out))
        blob = group.state()
        state.update((blob,))
        self._keep(group, blob)
        _exempt_groups()
        for start in range(0, len(out), ROWS_MAX):
            yield pandas.DataFrame(out[start : start + ROWS_MAX], columns=work.output)

    def _group(self, work: Work, number: int, held: bytes | None) -> Group:
        cached = _groups.pop((self.digest, number), None)
        if cached is not None and held is not None and cached[0] == held:
            return cached[1]
        return Group(work, number, None if held is None else bytes(held))

    def _keep(self, group: Group, blob: bytes) -> None:
        if len(_groups) < _GROUPS_MAX:
            _groups[self.digest, group.number] = (blob, group)

    def finite(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Process a partition of a table, its groups one after another, each to its end.

        The function of `mapInArrow`; no more than a batch of rows is held.
        """
        work = _work(self.shipped, self.digest)
        group: Group | None = None
        out: list[tuple[str | None, ...]] = []
        for batch in batches:
            numbers = batch.column("group").to_pylist()
            arrays = [
                batch.column(name).to_numpy(zero_copy_only=False) for name in work.shape.columns
            ]
            rows = zip(*(array.tolist() for array in arrays), strict=True)
            numbered = zip(numbers, rows, strict=True)
            for number, some in itertools.groupby(numbered, operator.itemgetter(0)):
                if group is None or group.number != number:
                    out += _ended(group, work)
                    group = Group(work, number, None)
                for verdict in group.take([row for _, row in some]):
                    out.append(work.row(verdict))
                    if len(out) >= ROWS_MAX:
                        yield _arrow(out, work.output)
                        out = []
        out += _ended(group, work)
        for start in range(0, len(out), ROWS_MAX):
            yield _arrow(out[start : start + ROWS_MAX], work.output)


def _ended(group: Group | None, work: Work) -> list[tuple[str | None, ...]]:
    if group is None:
        return []
    out = list(map(work.row, group.execution.conclude()))
    return [*out, *_beside(group, work, Counter())]


def _beside(
    group: Group, work: Work, verdicts: Counter[tuple[str | None, str | None]]
) -> Iterator[tuple[str | None, ...]]:
    """Yield the rows of figures and counts of a group."""
    if work.figures:
        yield group.figures(verdicts)
    if work.counts:
        yield group.counted()


def _arrow(out: Sequence[tuple[str | None, ...]], names: Sequence[str]) -> Any:
    import pyarrow

    columns = zip(*out, strict=True)
    named = {
        name: pyarrow.array(column, pyarrow.string())
        for name, column in zip(names, columns, strict=True)
    }
    return pyarrow.record_batch(named)


def _ordered(frames: Iterable[Any], names: Sequence[str]) -> list[Row]:
    """Return the rows of frames, sorted by topic, partition and offset if they have these."""
    rows: list[Row] = []
    for frame in frames:
        rows += zip(*(frame[name].tolist() for name in names), strict=True)
    if "offset" in names:
        topic, partition, offset = map(names.index, ("topic", "partition", "offset"))
        rows.sort(key=lambda row: (row[topic] or "", row[partition], row[offset]))
    return rows
