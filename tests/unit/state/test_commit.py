"""Who owns an epoch: of all drivers that try to commit it, ever, one."""

from pathlib import Path

from watersmeet.state import checkpoint as checkpoint_module
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import Manifest, PlanText, before_first_epoch


def manifest(epoch: int) -> Manifest:
    empty = before_first_epoch(PlanText("a b"), 2, ["k"], 4, 1)
    return Manifest(
        epoch, None, empty.plan, empty.placement, None, empty.times_max_us, empty.last_seen_ms, {}, empty.extents
    )


def test_an_epoch_is_committed_once(tmp_path: Path):
    first, second = Checkpoint(tmp_path), Checkpoint(tmp_path)
    assert first.commit(manifest(0))
    assert not second.commit(manifest(0))
    assert second.latest() == manifest(0)


def test_an_epoch_whose_manifest_was_removed_long_ago_is_not_committed_again(tmp_path: Path):
    late, quick = Checkpoint(tmp_path), Checkpoint(tmp_path)
    for epoch in range(3):
        assert quick.commit(manifest(epoch))
        quick.acknowledge(epoch)
        quick.discard(manifest(epoch - 1) if epoch else None, manifest(epoch))
    assert not late.commit(manifest(1))
    assert quick.latest() == manifest(2)
    assert {path.name for path in (tmp_path / "watersmeet" / "manifests").iterdir()} == {"000000000002.json"}


def test_whoever_reads_while_a_driver_commits_finds_the_next_manifest(tmp_path, monkeypatch):
    """The one before is gone as soon as the next is there."""
    driver, reader = Checkpoint(tmp_path), Checkpoint(tmp_path)
    driver.commit(manifest(0))
    read, epochs = checkpoint_module.read_plain, iter(range(1, 4))

    def read_late(path):
        if (epoch := next(epochs, None)) is not None:
            driver.commit(manifest(epoch))
            driver.acknowledge(epoch)
        return read(path)

    monkeypatch.setattr(checkpoint_module, "read_plain", read_late)
    assert reader.latest() == manifest(3)
    assert [path.name for path in driver.manifests.iterdir()] == ["000000000003.json"]
