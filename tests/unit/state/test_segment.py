"""Segments: what is read is what was written, and bytes that were not written are noticed."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import CorruptSegmentError
from watersmeet.state.run import build_runs
from watersmeet.state.segment import ALIGNMENT, Checksum, checksum_of, read_segment, write_segment


def some_runs(*, windowed: bool = True, payload: bool = True) -> list:
    keys = pa.record_batch({"_k0": ["x", "y", "x", "z"], "_k1": [1, 2, 1, 3]})
    hashes = np.array([9, 5, 9, 2**64 - 1], dtype=np.uint64)
    times = np.array([40, -3, 7, 40], dtype=np.int64) if windowed else None
    columns = pa.record_batch({"p": [1.5, None, float("nan"), -0.0], "s": ["a", None, "", "é"]})
    if not payload:
        columns = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
    return [(store, run) for store in (0, 2) for run in build_runs(hashes, keys, times, columns)]


def written(path: Path, runs: list) -> Checksum:
    with path.open("wb") as file:
        return write_segment(file, runs)


def describe(pairs: list) -> list:
    return [
        (
            store,
            run.hashes.tolist(),
            str(run.keys.to_pydict()),
            run.starts.tolist(),
            None if run.codes is None else run.times(run.rows_slice()).tolist(),
            str(run.payload.to_pydict()),
            (run.time_min, run.time_max, run.rows),
        )
        for store, run in pairs
    ]


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("payload", [True, False])
def test_a_segment_reads_back_as_written(tmp_path, windowed, payload):
    runs = some_runs(windowed=windowed, payload=payload)
    written(tmp_path / "one.seg", runs)
    assert describe(read_segment(tmp_path / "one.seg")) == describe(runs)


def test_a_cut_run_is_written_with_arrays_of_its_own(tmp_path):
    cut = [(store, run.between_hashes(6, 2**64)) for store, run in some_runs()]
    written(tmp_path / "cut.seg", cut)
    ((_, first), _) = again = read_segment(tmp_path / "cut.seg")
    assert (first.rank_base, int(first.starts[0]), len(first.codes)) == (0, 0, first.rows)
    assert first.payload.num_rows == first.rows
    assert [row[:5] for row in describe(again)] == [
        (store, h, k, [s - starts[0] for s in starts], t) for store, h, k, starts, t, *_ in describe(cut)
    ]


def test_the_checksum_is_that_of_the_file(tmp_path):
    checksum = written(tmp_path / "one.seg", some_runs())
    assert checksum == checksum_of(tmp_path / "one.seg")
    assert checksum.bytes == (tmp_path / "one.seg").stat().st_size


def test_sections_are_aligned_so_that_arrays_can_be_mapped(tmp_path):
    written(tmp_path / "one.seg", some_runs())
    assert ALIGNMENT == 64
    for _, run in read_segment(tmp_path / "one.seg"):
        assert run.hashes.ctypes.data % 8 == 0
        assert run.codes.ctypes.data % 8 == 0


def test_one_changed_byte_anywhere_changes_the_checksum(tmp_path):
    path = tmp_path / "one.seg"
    checksum = written(path, some_runs())
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert checksum_of(path) != checksum, f"byte {position}"


@pytest.mark.parametrize("kept", [0, 7, 15, 16, 100, -1, -8, -16, -17])
def test_a_truncated_file_is_refused_by_name(tmp_path, kept):
    path = tmp_path / "short.seg"
    checksum = written(path, some_runs())
    path.write_bytes(path.read_bytes()[:kept])
    assert checksum_of(path) != checksum
    with pytest.raises(CorruptSegmentError, match=r"short\.seg"):
        read_segment(path)


@pytest.mark.parametrize("content", [b"", b"PAR1" * 10, b"WSEG0001" + bytes(8) + b"WSEG0001", b"WSEG0002" * 4])
def test_another_kind_of_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "other.seg").write_bytes(content)
    with pytest.raises(CorruptSegmentError, match=r"other\.seg"):
        read_segment(tmp_path / "other.seg")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(CorruptSegmentError, match=r"gone\.seg"):
        read_segment(tmp_path / "gone.seg")


def test_offsets_beyond_the_file_are_refused_by_name(tmp_path):
    """By whoever reads it without a checksum: Arrow would take them."""
    path = tmp_path / "one.seg"
    written(path, some_runs())
    content = path.read_bytes()
    length = int.from_bytes(content[-16:-8], "little")
    footer = json.loads(content[-16 - length : -16])
    for start, size in ((-64, 64), (0, 1 << 62), (1 << 62, 64), (len(content), 1), (0, -1), ("x", 1), (0, None)):
        footer["runs"][0]["sections"]["keys"][:2] = start, size
        text = json.dumps(footer).encode()
        path.write_bytes(content[: -16 - length] + text + len(text).to_bytes(8, "little") + content[-8:])
        with pytest.raises(CorruptSegmentError, match=r"one\.seg"):
            read_segment(path)
    path.write_bytes(content[:-16] + (1 << 63).to_bytes(8, "little") + content[-8:])
    with pytest.raises(CorruptSegmentError, match=r"one\.seg"):
        read_segment(path)
