"""The memory budget of a slot: as given, or its part of what is free."""

import shutil

import pytest

from watersmeet.errors import OptionError
from watersmeet.runtime.spark.memory import SHARE_OF_FREE, budget_per_slot, require_room, run_folder


def test_without_a_word_slots_share_half_of_what_is_free(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    assert budget_per_slot(str(tmp_path), 4, None) == pytest.approx(free / SHARE_OF_FREE / 4, rel=0.05)


@pytest.mark.parametrize("given", [0, 1, 1 << 60])
def test_a_given_budget_is_the_budget(tmp_path, given):
    assert budget_per_slot(str(tmp_path), 4, given) == given


def test_a_budget_that_does_not_fit_is_refused_when_the_query_starts(tmp_path):
    folder = run_folder(str(tmp_path), "query", "run")
    require_room(folder, 2, 1024)
    with pytest.raises(OptionError, match=r"memoryBudget .* x 2 slots do not fit"):
        require_room(folder, 2, 1 << 60)


def test_a_location_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(OptionError, match="is not a folder"):
        budget_per_slot(str(tmp_path / "none"), 1, None)
