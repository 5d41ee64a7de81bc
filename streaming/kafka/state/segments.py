"""A log of segments with changed records, which is cleaned as it grows.

A state is a set of named records. The changes of a commit are packed into segments, each with a
number and each written once; the newest segment that names a record has its value, or marks it as
removed. So a commit is one message or a few, however many records it changes. Once the log is more
than twice as large as its live records, the oldest segments are cleaned: their live records are
written again, at the end of the log, and the segments are deleted. (Rosenblum and Ousterhout, "The
design and implementation of a log-structured file system", 1992.) A commit cleans at most as many
bytes as it writes itself, so no commit has to write the whole state. In one pass over the log at
least half of it is freed while the live records are written once, so the log stays below three
times the live records, or `LOG_BYTES_LEAST`.

Because the oldest segment is cleaned first, a removal is written only once: when its segment is
cleaned, no older segment is left. And the numbers of the live segments have no hole, so that a lost
segment is detected.

Cleaning a segment writes its live records again, so the live records are held in memory, as the
bytes that were written.

The one rule: the segments applied from the oldest to the newest, each over those before, are the
state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ketal.runtime.state.records import Changes

LOG_BYTES_LEAST = 4_000_000
"""The size up to which a log is not cleaned, however small its live records are."""
GARBAGE_FACTOR = 2
"""How many times as large as its live records a log may be before it is cleaned."""
RECORD_BYTES = 8
"""Overhead of a record in a segment, beside its name and its value; nearly an upper bound."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(dict[bytes, bytes | None]).decode


class Segments:
    """The live records of a log, by segment.

    A segment of several records has at most `bytes_max` bytes; one with a single record may be
    larger.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._live: dict[int, dict[bytes, bytes]] = {}
        """Number of a segment, from the oldest → the live records in it."""
        self._sizes: dict[int, int] = {}
        self._number_of: dict[bytes, int] = {}
        """Name of a live record → the segment that has it."""
        self._live_bytes = self._log_bytes = 0
        self._next = 0

    @property
    def first(self) -> int:
        """The number of the oldest segment; of the next segment if the log is empty."""
        return next(iter(self._sizes), self._next)

    def restore(self, number: int, content: bytes) -> None:
        """Apply a segment that was read; segments are applied from the oldest to the newest."""
        self._record_segment(number, decode(content), len(content))

    def records(self) -> dict[bytes, bytes]:
        """Return the live records."""
        return {name: value for live in self._live.values() for name, value in live.items()}

    def append(self, changes: Changes) -> dict[int, bytes | None]:
        """Append changed records, and clean the oldest segments if that is due.

        A removed record has None for its value. Returns the content of each segment to write, and
        None for each segment to delete.
        """
        out: dict[int, bytes | None] = {}
        # A record that the log does not have needs no removal.
        rows = {n: v for n, v in changes.items() if v is not None or n in self._number_of}
        for name in rows:
            self._remove(name)
        written = sum(map(_size, rows.items()))
        moved, live = 0, self._live_bytes + written
        while self._sizes and moved <= written:
            if self._log_bytes + written + moved <= max(LOG_BYTES_LEAST, GARBAGE_FACTOR * live):
                break
            oldest = self.first
            for name, value in list(self._live[oldest].items()):
                self._remove(name)
                rows[name] = value
                moved += _size((name, value))
            self._log_bytes -= self._sizes.pop(oldest)
            del self._live[oldest]
            out[oldest] = None
        for chunk in chunks(rows, self._bytes_max):
            content = encode(chunk)
            out[self._next] = content
            self._record_segment(self._next, chunk, len(content))
        return out

    def _record_segment(self, number: int, rows: Mapping[bytes, bytes | None], size: int) -> None:
        live = self._live[number] = {}
        for name, value in rows.items():
            self._remove(name)
            if value is not None:
                live[name] = value
                self._number_of[name] = number
                self._live_bytes += _size((name, value))
        self._sizes[number] = size
        self._log_bytes += size
        self._next = number + 1

    def _remove(self, name: bytes) -> None:
        """Remove a record from the live records, if it is one."""
        number = self._number_of.pop(name, None)
        if number is not None:
            self._live_bytes -= _size((name, self._live[number].pop(name)))


def chunks(rows: Mapping[bytes, bytes | None], bytes_max: int) -> Iterator[Changes]:
    """Yield records in chunks of at most `bytes_max`; one with a single record may be larger."""
    chunk: Changes = {}
    size = 0
    for row in rows.items():
        more = _size(row)
        if chunk and size + more > bytes_max:
            yield chunk
            chunk, size = {}, 0
        chunk[row[0]] = row[1]
        size += more
    if chunk:
        yield chunk


def _size(row: tuple[bytes, bytes | None]) -> int:
    name, value = row
    return len(name) + len(value or b"") + RECORD_BYTES


def first_hole(numbers: Iterable[int], first: int) -> int | None:
    """Return the least number missing between `first` and the largest number; None if none is."""
    there = set(numbers)
    return next((n for n in range(first, max(there, default=first)) if n not in there), None)
