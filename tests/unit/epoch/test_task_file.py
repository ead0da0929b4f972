"""A file of tasks: every task reads its own part, and a damaged part is refused, not carried out."""

import random
from functools import partial

import pytest

from tests.unit.adaptation.plans import chain, extent, manifest_with
from watersmeet.epoch.kinds import Batch, Clean, Spill
from watersmeet.epoch.task_file import read_dropped, read_task, write_tasks
from watersmeet.epoch.tasks import tasks_of
from watersmeet.errors import CheckpointError
from watersmeet.state.manifest import ACTIVE

DROPPED = {3: ["x", "y"], 4: []}
HELD = {(0, 0): [extent(ACTIVE, 0, 4, segment="mine")], (1, 1): [extent(ACTIVE, 4, 8, segment="theirs")]}


@pytest.fixture
def file(tmp_path):
    """The file, and the tasks in it."""
    orders = (Spill(1, 0, (3, 1)), Clean(1, 1, 4, 6, keep=True))
    tasks = tasks_of(chain(), manifest_with(chain(), HELD, slots=2, watermark_us=90), Batch(1, orders))
    write_tasks(tmp_path / "tasks", tasks, DROPPED)
    return tmp_path / "tasks", tasks


def test_every_task_reads_its_own_part(file):
    path, tasks = file
    for stage, of_stage in tasks.items():
        for partition in range(4):
            assert read_task(path, stage, partition) == of_stage[partition % 2]
    assert read_dropped(path) == DROPPED


def test_no_flipped_bit_changes_a_task(file):
    """Each is in the part of some task, which refuses it, or in what all of them read."""
    path, tasks = file
    whole, rng = path.read_bytes(), random.Random(1)
    readers = [(task, partial(read_task, path, task.stage, task.slot)) for some in tasks.values() for task in some]
    for _ in range(300):
        content = bytearray(whole)
        content[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        refused = []
        for right, read in [*readers, (DROPPED, partial(read_dropped, path))]:
            try:
                assert read() == right
            except CheckpointError as error:
                refused.append(error)
        assert {error.error_class for error in refused} == {"CHECKPOINT_DAMAGED"}
        assert all(str(path) in error.message for error in refused)


@pytest.mark.parametrize("size", [0, 1, 15, 19, 20, 40, -1])
def test_a_cut_file_is_refused(file, size):
    path, _ = file
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="is damaged") as refused:
        read_dropped(path)  # the last part
    assert "start the query again" in refused.value.hint


def test_a_link_is_not_followed(file, tmp_path):
    path, tasks = file
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(CheckpointError, match="symbolic link"):
        read_task(tmp_path / "link", 0, 0)
    with pytest.raises(CheckpointError, match="cannot write"):
        write_tasks(tmp_path / "link", tasks, {})
