"""Which query is in force: a driver may die at any moment of a change."""

from tests.unit.state.test_checkpoint import manifest
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.query_file import Written

OLD, NEW = Written({"window of a": "1 minute"}, {"within": "1 minute"}), Written({"window of a": "2 minutes"}, {})


def begun(folder):
    checkpoint = Checkpoint(folder)
    checkpoint.remember_query(OLD.marks, OLD.texts)
    checkpoint.commit(manifest(0))
    checkpoint.expect_change(OLD, NEW)
    return checkpoint


def test_until_the_commit_the_old_query_is_in_force(tmp_path):
    checkpoint = begun(tmp_path)
    checkpoint.commit(manifest(1))
    found = Checkpoint(tmp_path).identified(NEW.marks, {})
    assert found.written == OLD
    assert found.differing == ["window of a"]
    assert Checkpoint(tmp_path).identified(OLD.marks, {}).differing == []


def test_from_the_commit_on_the_new_query_is_in_force(tmp_path):
    checkpoint = begun(tmp_path)
    checkpoint.commit(manifest(1), changes_query=True)
    checkpoint.commit(manifest(2))
    assert Checkpoint(tmp_path).identified(NEW.marks, {}).differing == []
    found = Checkpoint(tmp_path).identified(OLD.marks, {})
    assert found.written == NEW
    assert found.differing == ["window of a"]


def test_a_start_writes_the_query_in_force_alone(tmp_path):
    begun(tmp_path).commit(manifest(1), changes_query=True)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.remember_query(NEW.marks, NEW.texts)
    assert '"next"' not in (checkpoint.folder / "query.json").read_text()
    assert checkpoint.identified(OLD.marks, {}).written == NEW
