"""What we write is called as the patterns say, and nothing that leads elsewhere is."""

import os
from contextlib import ExitStack

import pyarrow as pa
import pytest

from tests.unit.state.test_format_1 import CASES
from watersmeet.engine.work import Scratch
from watersmeet.state.file_names import FILES, RESULTS, SEGMENT, is_folder_of_ours, is_left_over
from watersmeet.state.outbox import ResultFolder, ResultWriter
from watersmeet.state.tiers import segment_name, task_name


def test_segments_and_results_are_called_as_the_patterns_say(tmp_path):
    assert SEGMENT.fullmatch(segment_name(task_name(12, 1, 300), "1f3a9c21b", 7))
    for compression in ("snappy", "zstd", "gzip", "none"):
        writer = ResultWriter(ResultFolder(tmp_path, compression=compression), 7)
        (file,) = writer.close(empty=pa.schema([("x", pa.int64())]))
        assert RESULTS.fullmatch(file.name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_so_are_files_of_version_0_1(case, tmp_path):
    ours = case.copied(tmp_path).folder
    for name in ("segments", "manifests", "acks"):
        assert all(FILES[name].fullmatch(found) for found in os.listdir(ours / name))


def test_so_are_leftovers(tmp_path):
    with ExitStack() as stack:
        Scratch(tmp_path, stack).open()
        (name,) = os.listdir(tmp_path)
        assert is_left_over(name)
        assert is_folder_of_ours(name)
    assert all(is_left_over(name) for name in (".tmp-0123abc", ".tmp-statistics", "trial"))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/x", "a/b", "x\0", "1-0-0-abc-0.seg\n", "1-0-0-abc-0.seg~", "1-0-0-../..-0.seg",
     "\u0661-0-0-a-0.seg", ".tmp-", ".tmp-../x", ".scratch-/x", ".nfs0001", "000000000007.json~", "x.json.swp",
     "7.json", "part-00000.parquet"],
)  # fmt: skip
def test_other_names_are_not_ours(name):
    assert not is_left_over(name)
    assert not [folder for folder, pattern in FILES.items() if pattern.fullmatch(name)]
