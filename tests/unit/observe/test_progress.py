"""Progress in Spark's words."""

from watersmeet.observe.progress import EpochProgress, state_operator


def test_the_memory_of_a_slot_is_that_of_all_its_stages():
    counts = [{"memory_bytes": n} for n in (1, 20, 300, 4000)]  # two stages of two slots
    progress = EpochProgress(0, 0, 2, {}, {}, counts, {}, None, (), 0, 0, 0, 0)
    metrics = state_operator(progress, progress)["customMetrics"]
    assert {name: n for name, n in metrics.items() if name.startswith("memoryBytes")} == {
        "memoryBytes.slot0": 301,
        "memoryBytes.slot1": 4020,
    }
