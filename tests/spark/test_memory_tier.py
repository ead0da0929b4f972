"""What others do to the memory tier of a running query: no result is wrong, no file of theirs is touched."""

import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.oracle import canonical
from tests.other_user import OTHER_UID, a_tmpfs, acting_as, contents, needs_root, shared_folder, turn_read_only
from tests.spark.helpers import expected, join_of, random_batches, until, write_batches
from tests.spoiling import spoil_copies
from watersmeet.errors import WatersmeetError
from watersmeet.state.checkpoint import Checkpoint

BATCHES = random_batches(seed=16, streams="ab", batches=5, rows=30)
Fault = Callable[[Path], None]


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    base = tmp_path_factory.mktemp("feed")
    write_batches(base, BATCHES)
    return base


@pytest.fixture(scope="module")
def right(spark, feed):
    return expected(join_of(spark, feed, "ab"), BATCHES)


def run_of(location: Path) -> Path:
    """The folder of the only run in a location."""
    (folder,) = location.glob("watersmeet-*")
    return folder


def play(spark, feed: Path, location: Path, checkpoint: Path, faults: dict[int, Fault]):
    """Run a query that meets faults after some of its epochs; its handle and its results."""
    results = Counter()

    def take(rows, epoch):
        nonlocal results
        results += canonical(rows.toArrow())
        faults.get(epoch, lambda _: None)(run_of(location))

    join = join_of(spark, feed, "ab").options(slots=2, memoryLocation=location)
    writer = join.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    return query, results


def spoiled(folder: Path) -> None:
    assert spoil_copies(folder), "nothing is in memory"


def test_copies_that_were_replaced_are_never_joined(spark, feed, right, tmp_path):
    (tmp_path / "memory").mkdir()
    query, results = play(spark, feed, tmp_path / "memory", tmp_path / "ck", {1: spoiled, 2: spoiled})
    assert results == right
    counts = [p["stateOperators"][0]["customMetrics"]["spoiledCopies"] for p in query.recentProgress]
    assert [count > 0 for count in counts] == [False, False, True, True, False]


def test_a_memory_folder_that_turns_read_only_costs_speed_and_not_the_query(spark, feed, right, tmp_path):
    seen: list[set[str]] = []

    def look(folder: Path) -> None:
        seen.append({path.name for path in folder.iterdir()})

    def stop_writing(folder: Path) -> None:
        look(folder)
        turn_read_only(folder.parent)

    with a_tmpfs(tmp_path / "memory") as location:
        query, results = play(spark, feed, location, tmp_path / "ck", {1: stop_writing, 3: look})
    assert results == right
    assert seen[0] == seen[1], "it was written to"
    assert any(name.endswith(".seg") for name in seen[0]), "nothing was in memory"
    assert query.exception() is None


def test_a_folder_that_took_its_place_is_refused_and_untouched(spark, feed, tmp_path):
    (tmp_path / "memory").mkdir()
    victim = tmp_path / "victim"

    def linked(folder: Path) -> None:
        folder.rename(victim)
        folder.symlink_to(victim)
        before.update(contents(victim))

    before: dict = {}
    with pytest.raises(WatersmeetError) as caught:
        play(spark, feed, tmp_path / "memory", tmp_path / "ck", {1: linked})
    assert caught.value.error_class == "MEMORY_FOLDER_REFUSED"
    assert str(caught.value).startswith(
        f"[MEMORY_FOLDER_REFUSED] memory folder {run_of(tmp_path / 'memory')} is refused: it is a link. another user "
    )
    assert any(name.endswith(".seg") for name in before)


@needs_root
def test_other_users_see_nothing_and_what_they_put_beside_it_stays(spark, feed, right, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in ("0-0-0-x-0.seg", "letter"):
        (victim / name).write_bytes(b"precious")
    victims = contents(victim)

    def attacked(folder: Path) -> None:
        assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
        files = list(folder.iterdir())
        assert any(path.suffix == ".seg" for path in files)
        assert {stat.S_IMODE(path.lstat().st_mode) for path in files} == {0o600}
        with acting_as(OTHER_UID):
            with pytest.raises(PermissionError):
                list(folder.iterdir())
            with pytest.raises(PermissionError):
                folder.rename(folder.with_name("moved"))

    with shared_folder() as location:
        _, results = play(spark, feed, location, tmp_path / "ck", {1: attacked})
        assert results == right
        until(lambda: not list(location.iterdir()), 30, "the folder of the run to go")
        with acting_as(OTHER_UID):
            bait = location / f"watersmeet-{'0' * 32}-ff"
            bait.mkdir(mode=0o777)
            (bait / "0-0-0-x-0.seg").symlink_to(victim / "0-0-0-x-0.seg")
            (bait / "link").symlink_to(victim)
        dead = bait.rename(location / f"watersmeet-{Checkpoint(tmp_path / 'ck').identity()}-ff")
        baits = contents(location)
        join = join_of(spark, feed, "ab").options(slots=2, memoryLocation=location)
        writer = join.writeStream.foreachBatch(lambda rows, epoch: None).option("checkpointLocation", tmp_path / "ck")
        writer.trigger(availableNow=True).start().awaitTermination()
        until(lambda: set(location.iterdir()) == {dead}, 30, "the folder of the run to go")
        assert contents(location) == baits
    assert contents(victim) == victims
