"""Compressed logs that are damaged, truncated, or misnamed."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import random
import zlib
from pathlib import Path

import pytest
import zstandard

from ketal.logs import read_log
from ketal.model.events.event import Event
from ketal.model.verdicts.execution_verdicts import Rejected

LINES = [b'{"node":"a","type":"T","clock":{"a":%d},"x":%d}\n' % (n, n * n) for n in range(1, 3001)]
RAW = b"".join(LINES)


def read(path: Path) -> tuple[list[int], list[Rejected]]:
    """Return the counters of the events, and the reasons of rejections."""
    items = [record[1] for record in read_log(path).records()]
    counters = [item.counter for item in items if isinstance(item, Event)]
    return counters, [item for item in items if isinstance(item, Rejected)]


def unpacked_lines(packed: bytes) -> int:
    """Return how many whole lines gzip data decompresses to, byte by byte, before an error."""
    unpack = zlib.decompressobj(wbits=31)
    out = b""
    try:
        for byte in packed:
            out += unpack.decompress(bytes((byte,)))
    except zlib.error:
        pass
    return out.count(b"\n")


@pytest.mark.parametrize("name", ["x.gz", "x.jsonl.gz", "x.csv.GZ", "x.log.zst", "x.jsonl.zst"])
@pytest.mark.parametrize(
    "raw", [random.Random(1).randbytes(3000), b"", b"\x1f", LINES[0]], ids=range(4)
)
def test_a_name_of_compressed_data(tmp_path: Path, name: str, raw: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    counters, (lost,) = read(path)
    kind = "Zstandard" if name.endswith("zst") else "gzip"
    assert counters == []
    assert lost.place == f"{path}:1"
    wanted = (
        f"this is not a {kind} file, although its name ends in"
        if raw
        else "the file is empty, but a valid"
    )
    assert wanted in lost.reason


def test_data_decompressed_by_python_keeps_its_name(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(RAW))
    with gzip.open(path) as file:
        assert len(list(read_log(file, format="jsonl"))) == 3000  # type: ignore[arg-type]


def test_truncated_gzip_data_gives_its_whole_lines_and_one_rejection(tmp_path: Path) -> None:
    packed = gzip.compress(RAW)
    path = tmp_path / "run.jsonl.gz"
    for size in (3, 10, 11, 100, 2000, 5000, len(packed) - 8, len(packed) - 1):
        path.write_bytes(packed[:size])
        counters, (lost,) = read(path)
        whole = unpacked_lines(packed[:size])
        assert counters == list(range(1, whole + 1))
        assert lost.place == f"{path}:{whole + 1}"
        reason = f"the gzip data is truncated after byte {size:,}; the rest is lost"
        assert lost.reason == reason


def test_damaged_gzip_data_gives_its_readable_lines(tmp_path: Path) -> None:
    # The damage is an invalid block header after whole blocks.
    pack = zlib.compressobj(wbits=31)
    packed = pack.compress(RAW[:60_000]) + pack.flush(zlib.Z_FULL_FLUSH)
    damaged = packed + b"\xff" * 100
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(damaged)
    counters, (lost,) = read(path)
    whole = RAW[:60_000].count(b"\n")
    assert counters == list(range(1, whole + 1))
    assert lost.place == f"{path}:{whole + 1}"
    assert lost.reason.startswith(f"the gzip data is damaged at byte {len(packed) + 1:,} (invalid ")


@pytest.mark.parametrize("at", [-1, -8])
def test_gzip_checksum_mismatch_is_rejected(tmp_path: Path, at: int) -> None:
    packed = bytearray(gzip.compress(RAW.removesuffix(b"\n")))
    packed[at] ^= 1
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(packed)
    counters, (lost,) = read(path)
    assert counters == list(range(1, 3001))
    assert "does not match its checksum at byte" in lost.reason
    assert lost.place == f"{path}:3001"


def test_damaged_or_truncated_zstandard_data_is_rejected(tmp_path: Path) -> None:
    first, second = zstandard.compress(RAW[:50_000]), zstandard.compress(RAW[50_000:])
    whole = RAW[:50_000].count(b"\n")
    path = tmp_path / "run.jsonl.zst"
    for packed, reason in (
        (first + second[:-5], f"is truncated after byte {len(first + second) - 5:,}; the rest is"),
        (first + second[:9] + b"\xff" * 50, "is damaged before byte "),
    ):
        path.write_bytes(packed)
        counters, (lost,) = read(path)
        assert counters == list(range(1, whole + 1))
        assert lost.place == f"{path}:{whole + 1}"
        assert lost.reason.startswith(f"the Zstandard data {reason}")


@pytest.mark.parametrize("size", [0, 4, 2_000])
@pytest.mark.parametrize("number", [0, 15])
def test_skippable_frames_between_zstandard_data_are_skipped(
    tmp_path: Path, number: int, size: int
) -> None:
    """As in a file that `pzstd` writes, which begins with such a frame."""
    frame = (0x184D2A50 + number).to_bytes(4, "little") + size.to_bytes(4, "little") + b"\n" * size
    path = tmp_path / "run.jsonl.zst"
    packed = frame.join([b"", zstandard.compress(RAW[:50_000]), zstandard.compress(RAW[50_000:])])
    path.write_bytes(packed + frame)
    assert read(path) == ([*range(1, 3001)], [])
    path.write_bytes(frame)
    assert read(path) == ([], [])
    if size:
        path.write_bytes(frame[:-1])
        counters, (lost,) = read(path)
        assert counters == []
        assert "is truncated after byte " in lost.reason


def test_zstandard_data_with_a_long_window_is_refused_with_a_hint(tmp_path: Path) -> None:
    long = zstandard.ZstdCompressionParameters(window_log=28)
    packer = zstandard.ZstdCompressor(compression_params=long).compressobj()
    path = tmp_path / "run.jsonl.zst"
    path.write_bytes(packer.compress(RAW) + packer.flush())
    counters, (lost,) = read(path)
    assert counters == []
    assert lost.reason.startswith("the Zstandard data needs a window of more than 128 MiB")
    assert lost.reason.endswith("use `zstd -dc --long=31 FILE | ketal ... -`")


def test_a_truncated_row_is_dropped(tmp_path: Path) -> None:
    # The truncated clock `a:12` would be a valid but different clock.
    table = io.StringIO()
    csv.writer(table).writerows([("node", "type", "clock"), ("a", "T", "a:1"), ("a", "T", "a:12")])
    pack = zlib.compressobj(wbits=31)
    text = table.getvalue().rstrip()[:-1].encode()
    path = tmp_path / "run.csv.gz"
    path.write_bytes(pack.compress(text) + pack.flush(zlib.Z_SYNC_FLUSH))
    counters, (lost,) = read(path)
    assert (counters, lost.place) == ([1], f"{path}:3")


def test_a_truncated_event_is_dropped(tmp_path: Path) -> None:
    pack = zlib.compressobj(wbits=31)
    text = b'(?<host>\\S+) (?<clock>{.*}) (?<event>.*)\n\na {"a":1} push\na {"a":2} pushed t'
    path = tmp_path / "run.log.gz"
    path.write_bytes(pack.compress(text) + pack.flush(zlib.Z_SYNC_FLUSH))
    counters, (lost,) = read(path)
    assert (counters, lost.place) == ([1], f"{path}:4")
    assert "is truncated" in lost.reason


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            bz2.compress(RAW),
            "the file is compressed with bzip2, which is not supported; use `bzip2 -dc",
        ),
        (
            lzma.compress(RAW),
            "the file is compressed with xz, which is not supported; use `xz -dc FILE |",
        ),
        (b"PK\x03\x04rest", "the file is compressed with zip"),
        (
            RAW.decode().encode("utf-16"),
            "the text is UTF-16, but a log must be UTF-8; convert it with `iconv ",
        ),
        (RAW.decode().encode("utf-16-le"), "the text is UTF-16"),
        (RAW.decode().encode("utf-16-be"), "the text is UTF-16"),
        (b"\xfe\xff" + RAW.decode().encode("utf-16-be"), "the text is UTF-16"),
        (
            gzip.compress(gzip.compress(RAW)),
            "the file is compressed twice (gzip within gzip), but decompressed "
            "only once; use `gzip -dc FILE |",
        ),
        (
            zstandard.compress(gzip.compress(gzip.compress(RAW))),
            "the file is compressed twice (gzip within Zstandard), but decompressed "
            "only once; use `zstd -dc",
        ),
        (
            gzip.compress(bz2.compress(RAW)),
            "within the gzip data: the file is compressed with bzip2, which is not supported; use "
            "`bzip2 -dc <(gzip -dc FILE) | ketal ... -`",
        ),
        (
            zstandard.compress(RAW.decode().encode("utf-16")),
            "within the Zstandard data: the text is UTF-16",
        ),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("name", ["run.log", "run.jsonl", "run.csv"])
def test_unsupported_data_has_one_rejection(
    tmp_path: Path, name: str, raw: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    counters, (lost,) = read(path)
    assert counters == []
    assert said in lost.reason


def test_an_invalid_parquet_file(tmp_path: Path) -> None:
    for name, raw in (("x.parquet", RAW), ("y.parquet", b""), ("x.parquet.gz", gzip.compress(RAW))):
        path = tmp_path / name
        path.write_bytes(raw)
        counters, (lost,) = read(path)
        assert counters == []
        assert lost.reason == "this is not a Parquet file: it does not begin with PAR1"
