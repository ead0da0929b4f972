"""Whether what a long run holds is flat: figures of its last tenth against those of its second tenth.

The first tenth is left out: state fills its window, and caches fill. A figure of a tenth is the greatest in it; the
last one may exceed the first by a part of it and by what is small beside any leak.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from watersmeet.state.checkpoint import Checkpoint

MEBIBYTE = 1 << 20
MARGINS: Mapping[str, tuple[float, float]] = {
    "unnamed files": (1.0, 0),
    "files": (1.3, 4),
    "extents": (1.3, 12),
    "manifest bytes": (1.25, 500),
    "event log bytes": (1.5, 2_000),
    "left in tasks": (1.0, 0),
    "memory maps": (1.3, 60),
    "descriptors": (1.0, 4),
    "threads": (1.0, 2),
    "resident bytes": (1.1, 16 * MEBIBYTE),
}
"""How many times the earlier figure, and how much more, the later one may be."""


def figures_of(checkpoint: Checkpoint, pids: Sequence[int]) -> dict[str, int]:
    """What a checkpoint and some processes hold at this moment."""
    last = checkpoint.latest()
    assert last is not None
    files = {entry.name for entry in os.scandir(checkpoint.segments)}
    manifests = [path.stat().st_size for path in checkpoint.manifests.iterdir()]
    log = checkpoint.folder / "events.jsonl"
    found = {
        "unnamed files": len(files - last.segments.keys()),
        "files": len(files),
        "extents": sum(1 for _ in last.all_extents()),
        "manifest bytes": max(manifests),
        "event log bytes": log.stat().st_size if log.exists() else 0,
        "left in tasks": len(list(checkpoint.tasks.iterdir())),
    }
    for pid in pids:
        for name, figure in _of_process(Path("/proc") / str(pid)).items():
            found[name] = found.get(name, 0) + figure
    return found


def _of_process(process: Path) -> dict[str, int]:
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    return {
        "memory maps": len((process / "maps").read_bytes().splitlines()),
        "descriptors": len(list((process / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "resident bytes": int(status["VmRSS"].split()[0]) * 1024,
    }


class Watch:
    """Looks at a run of so many epochs, in its second and last tenth."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self._seen: dict[str, dict[str, int]] = defaultdict(dict)

    def look(self, epoch: int, checkpoint: Checkpoint, pids: Sequence[int] = ()) -> None:
        tenth = 10 * epoch // self.epochs
        if tenth in (1, 9):
            held = self._seen["last" if tenth == 9 else "second"]
            for name, figure in figures_of(checkpoint, pids).items():
                held[name] = max(figure, held.get(name, 0))

    def check(self, *, grows: Sequence[str] = ()) -> None:
        """Print all figures, and fail if one is not flat, unless it may grow: with the state, that is."""
        second, last = self._seen["second"], self._seen["last"]
        told = [f"  {name:<16}{second[name]:>14,}{last[name]:>14,}" for name in second]
        print("", f"of {self.epochs} epochs        second tenth    last tenth", *told, sep="\n")
        steep = [
            f"{name}: {second[name]:,} in the second tenth, {last[name]:,} in the last"
            for name, (factor, more) in MARGINS.items()
            if name in second and name not in grows and last[name] > factor * second[name] + more
        ]
        assert not steep, "; ".join(steep)
