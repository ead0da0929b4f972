"""Two modules share a name only if they are the same idea, seen from two layers."""

from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "watersmeet"
SAME_IDEA = {
    "aggregate": {"plan", "engine"},
    "analysis": {"query", "runtime/spark"},
    "expressions": {"query", "engine"},
    "hints": {"optimizer", "cli"},
    "progress": {"observe", "runtime/spark"},
    "repair": {"runtime", "cli"},
    "statistics": {"engine", "observe"},
}


def test_modules_with_one_name_are_one_idea():
    folders = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        if not path.stem.startswith("__"):
            folders[path.stem].add(f"{path.parent.relative_to(SOURCE)}")
    assert {name: places for name, places in folders.items() if len(places) > 1} == SAME_IDEA
