"""The operator: the functions that Spark calls on the executors with the rows of a key group.

Spark passes the state of a group (`GroupState`) and the columns of its new rows. The operator
advances to the watermark, sorts the rows by topic, partition and offset, processes them, and
returns verdicts as columns.

In each call Spark passes the watermark of the batches before the current one. The operator applies
it before the rows. If it applied it after them, the rows would be judged by the watermark of the
group's previous call, which may be long ago if the group had no rows and no timer.

The one rule: a group's verdicts do not depend on the worker, nor on the batches in which it had no
rows. A worker caches programs and groups; a cached group is used only if its state is the one that
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

from ketal.streaming.spark.group import Group, OutputRow, Work
from ketal.streaming.spark.rows.row_reader import Row

ROWS_MAX = 10_000
"""How many verdicts are returned in one frame."""
COLLECT_AFTER = 500_000
"""How many objects are made between two collections of garbage cycles."""

FREE_BYTES = 64 << 20
"""How much free memory at the end of its heap a worker keeps for the next batch."""
_MAPPED_BYTES = 32 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

FROZEN_MAX = 256
"""After how many calls the cached groups are included in garbage collection once."""

_cached_work: dict[bytes, Work] = {}
_cached_groups: dict[tuple[bytes, int], tuple[bytes, Group]] = {}
_CACHED_WORK_MAX, _CACHED_GROUPS_MAX = 8, 1_024
_calls = itertools.count(1)


def _load_work(pickled: bytes, digest: bytes) -> Work:
    """Return the unpickled work; a worker unpickles it once."""
    work = _cached_work.get(digest)
    if work is None:
        if len(_cached_work) >= _CACHED_WORK_MAX:
            _cached_work.clear()
            _cached_groups.clear()
        work = _cached_work[digest] = pickle.loads(pickled)
        settle_worker()
    _drop_importers()
    return work


def settle_worker() -> None:
    """Make a worker collect garbage cycles less often, and keep memory between batches.

    The columns of a batch, and the arrays made from them, are larger than the blocks that the C
    library of Linux keeps by default: it would unmap and map each again, with a page fault for
    every 4 kB.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    # Other systems and C libraries have no mallopt.
    with contextlib.suppress(ImportError, OSError, TypeError, AttributeError):
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, FREE_BYTES)


def _drop_importers() -> None:
    """Drop the cached importers of archives that do not change: pyspark's, ketal's and Spark's jar.

    At the start of each task pyspark invalidates the caches of all importers, and each importer of
    an archive reads the archive's directory again: the 1,700 names of pyspark.zip for each of 13
    packages, and three times those of the jar, which Spark puts on Python's path. That takes 0.13 s
    of processor time. A later import from an archive makes a new importer.
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

    After each task pyspark's daemon makes a worker collect garbage among all objects, and groups
    have many. Frozen objects are still freed by reference counting, but not if they are in cycles,
    so every `FROZEN_MAX` calls all objects are collected.
    """
    if next(_calls) % FROZEN_MAX == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()


class Operator:
    """The functions that Spark calls on the executors.

    `pickled` is a pickled `Work`, which has the compiled tables, so executors need no compiler.
    """

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled
        self.digest = hashlib.blake2b(pickled, digest_size=16).digest()

    def process_stream(
        self, key: tuple[Any, ...], frames: Iterable[Any], state: Any
    ) -> Iterator[Any]:
        """Process the rows of one group in a batch: the function for `applyInPandasWithState`."""
        import pandas

        work = _load_work(self.pickled, self.digest)
        group = self._restored_group(work, int(key[0]), state.get[0] if state.exists else None)
        out: list[OutputRow] = []
        mark_ms = state.getCurrentWatermarkMs() if work.timed else 0
        out += map(work.verdict_row, group.advance(mark_ms))
        if not state.hasTimedOut:
            out += map(work.verdict_row, group.process(_sorted_rows(frames, work.shape.columns)))
        if work.timed and group.awaits_watermark:
            state.setTimeoutTimestamp(max(0, mark_ms) + 1)
        out += _extra_rows(group, work, Counter((row[0], row[1]) for row in out))
        blob = group.state()
        state.update((blob,))
        self._cache_group(group, blob)
        _exempt_groups()
        for rows in _chunks(out):
            yield pandas.DataFrame(rows, columns=work.output)

    def _restored_group(self, work: Work, number: int, held: bytes | None) -> Group:
        cached = _cached_groups.pop((self.digest, number), None)
        if cached is not None and held is not None and cached[0] == held:
            return cached[1]
        return Group(work, number, None if held is None else bytes(held))

    def _cache_group(self, group: Group, blob: bytes) -> None:
        if len(_cached_groups) < _CACHED_GROUPS_MAX:
            _cached_groups[self.digest, group.number] = (blob, group)

    def process_table(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Process a partition of a table, one group after another: the function for `mapInArrow`.

        Only one batch of rows is in memory at a time.
        """
        work = _load_work(self.pickled, self.digest)
        for rows in _chunks(_table_rows(work, batches)):
            yield _record_batch(rows, work.output)


def _table_rows(work: Work, batches: Iterable[Any]) -> Iterator[OutputRow]:
    """Yield the rows that the groups of a table return."""
    group: Group | None = None
    for batch in batches:
        numbers = batch.column("group").to_pylist()
        arrays = [batch.column(name).to_numpy(zero_copy_only=False) for name in work.shape.columns]
        rows = zip(*(array.tolist() for array in arrays), strict=True)
        numbered = zip(numbers, rows, strict=True)
        for number, some in itertools.groupby(numbered, operator.itemgetter(0)):
            if group is None or group.number != number:
                yield from _conclude(group, work)
                group = Group(work, number, None)
            yield from map(work.verdict_row, group.process([row for _, row in some]))
    yield from _conclude(group, work)


def _conclude(group: Group | None, work: Work) -> Iterator[OutputRow]:
    if group is not None:
        yield from map(work.verdict_row, group.execution.conclude())
        yield from _extra_rows(group, work, Counter())


def _chunks(rows: Iterable[OutputRow]) -> Iterator[list[OutputRow]]:
    """Yield rows in lists of at most `ROWS_MAX`."""
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, ROWS_MAX)):
        yield chunk


def _extra_rows(
    group: Group, work: Work, verdicts: Counter[tuple[str | None, str | None]]
) -> Iterator[OutputRow]:
    """Yield the rows of figures and of counts of a group, where the work asks for them."""
    if work.figures:
        yield group.figures_row(verdicts)
    if work.counts:
        yield group.counts_row()


def _record_batch(out: Sequence[OutputRow], names: Sequence[str]) -> Any:
    import pyarrow

    columns = zip(*out, strict=True)
    named = {
        name: pyarrow.array(column, pyarrow.string())
        for name, column in zip(names, columns, strict=True)
    }
    return pyarrow.record_batch(named)


def _sorted_rows(frames: Iterable[Any], names: Sequence[str]) -> list[Row]:
    """Return the rows of frames, sorted by topic, partition and offset if they have offsets."""
    rows: list[Row] = []
    for frame in frames:
        rows += zip(*(frame[name].tolist() for name in names), strict=True)
    if "offset" in names:
        topic, partition, offset = map(names.index, ("topic", "partition", "offset"))
        rows.sort(key=lambda row: (row[topic] or "", row[partition], row[offset]))
    return rows
