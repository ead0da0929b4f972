"""mjoin, binary join tree and hybrid on workloads where each should win (O7; dissertation ch. 8, Table 8.1).

| setting | what it is                                                        | the theory says                       |
|---------|-------------------------------------------------------------------|---------------------------------------|
| set1    | Table 8.1, set 1: A, B, C at 20/s; sigma 0.05, 0.5; W = 5 s       | bjtree has less CPU, mjoin less state |
| set2    | Table 8.1, set 2: 20, 20, 50/s; sigma 0.02, 0.5; W = 15 s         | bjtree 2x faster: mjoin recomputes AB |
| rare    | ours: A, B at 100/s make a huge AB, C at 1/s needs little of it   | mjoin has less CPU and less state     |
| five    | ours, after set 4: AB is small but dear; C, D and E each multiply | hybrid: less CPU than mjoin, less     |
|         |                                                                   | state than bjtree, which is fastest   |

Deviations from the dissertation. All streams share one key, so that every shape is one stage of indexed nodes: sigma_BC
is the share of equal keys, and sigma_AB that times the share of pairs that pass a further predicate, a.u < b.u. Its
rates are of 2006 (60 rows a second): several copies of an experiment run side by side, told apart by the key, which
changes no count per row. It limited the memory and measured throughput; we limit nothing and measure CPU and state.

The in-process runner, one slot, all shapes fed each micro-batch (one second of event time) in turn. Asserted for every
shape: the intended tree, number of nodes and stores; for every micro-batch: equal results, as count and checksum.
Measured once the windows are full: process CPU seconds per epoch, and bytes of the segments in the manifest; medians,
told as ratios to the mjoin. `confirmed` says whether the theory was, and nothing is asserted of it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import save
from benchmarks.state_growth import mixed
from watersmeet.observe.explain import explain_text
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64()), ("u", pa.float64())])
START_US = 1_700_000_000_000_000
FULL = 1.25
"""Windows after which the state no longer grows: one, and the time buckets that straddle its end."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload: rows per second of each stream and copy, key values per copy, share of AB pairs that a.u < b.u."""

    rates: Mapping[str, float]
    keys: int
    passing: float
    window_s: int
    copies: int
    plans: Mapping[str, str]
    claims: tuple[tuple[str, str, str, float], ...]
    """(measure, shape, other, factor): the shape's measure is at most `factor` of the other's."""


BINARY = {"mjoin": "(a b c)", "bjtree": "((a b) c)"}
SETTINGS = {
    "set1": Setting(
        {"a": 20, "b": 20, "c": 20}, 2, 0.1, 5, 20, BINARY,
        (("cpu", "bjtree", "mjoin", 1.0), ("state", "mjoin", "bjtree", 1.0)),
    ),
    "set2": Setting({"a": 20, "b": 20, "c": 50}, 2, 0.04, 15, 1, BINARY, (("cpu", "bjtree", "mjoin", 0.5),)),
    "rare": Setting(
        {"a": 100, "b": 100, "c": 1}, 20, 1.0, 15, 2, BINARY,
        (("cpu", "mjoin", "bjtree", 1.0), ("state", "mjoin", "bjtree", 1.0)),
    ),
    "five": Setting(
        {"a": 80, "b": 80, "c": 8, "d": 8, "e": 2}, 20, 0.005, 10, 30,
        {"mjoin": "(a b c d e)", "bjtree": "((((a b) c) d) e)", "hybrid": "((a b) c d e)"},
        (("cpu", "hybrid", "mjoin", 1.0), ("state", "hybrid", "bjtree", 1.0), ("cpu", "bjtree", "hybrid", 1.0)),
    ),
}  # fmt: skip


def query_of(setting: Setting) -> JoinQuery:
    names = list(setting.rates)
    return build_query(
        [Stream(name, SCHEMA, event_time="ts") for name in names],
        where=[f"a.k = {name}.k" for name in names[1:]] + ["a.u < b.u"],
        within=f"{setting.window_s} seconds",
        windows={},
        select=[f"{name}.n AS {name}n" for name in names],
    )


def batches_of(setting: Setting, copies: int, seconds: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """One micro-batch per second of event time; arrivals are Poisson, as in the dissertation."""
    rng = np.random.default_rng(seed)
    seen = 0
    for second in range(seconds):
        batch = {}
        for name, rate in setting.rates.items():
            rows = int(rng.poisson(rate * copies))
            ts = np.sort(rng.integers(0, 1_000_000, rows)) + START_US + second * 1_000_000
            u = rng.random(rows)
            if name == "b":  # a.u is in [0, 1), so P(a.u < b.u) is `passing` (up to a half, or 1)
                u = u * 2 * setting.passing if setting.passing < 1 else u + 1
            columns = [rng.integers(0, setting.keys * copies, rows), ts, np.arange(seen, seen + rows), u]
            batch[name] = pa.table([pa.array(c).cast(t.type) for c, t in zip(columns, SCHEMA, strict=True)], SCHEMA)
            seen += rows
        yield batch


def checksum(results: pa.Table) -> tuple[int, int]:
    """Count and an order-independent sum of mixed rows: equal for equal multisets."""
    mix = np.zeros(results.num_rows, dtype=np.uint64)
    for column in results.columns:
        mix = (mix ^ column.to_numpy().astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mix ^= mix >> np.uint64(32)
    return results.num_rows, int(mix.sum(dtype=np.uint64))


def start(query: JoinQuery, text: str, cleanup: ExitStack) -> InProcessQuery:
    """The query under one tree, with the plan asserted."""
    folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="watersmeet-bench-"))
    memory = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="watersmeet-bench-", dir="/dev/shm"))
    tree = parse_tree(text, [stream.name for stream in query.streams])
    engine = InProcessQuery(query, Path(folder), memory=Path(memory), hash_keys=mixed, trees=[tree])
    (stage,) = engine.plan.stages
    nodes = text.count("(")
    assert f"== Plan {text} ==" in explain_text(query, engine.plan, 1), f"{text} intended"
    assert len(stage.shape(0)) == nodes, f"{nodes} nodes intended"
    assert sum(len(node.inputs) for node in stage.shape(0)) == len(query.streams) + nodes - 1, "a store per input"
    return engine


def measure(setting: Setting, copies: int, epochs: int, seed: int) -> dict[str, Any]:
    """Medians per shape, over the epochs that follow once the windows are full."""
    warm = math.ceil(FULL * setting.window_s)
    cpu: dict[str, list[float]] = {shape: [] for shape in setting.plans}
    size: dict[str, list[int]] = {shape: [] for shape in setting.plans}
    results = 0
    query = query_of(setting)
    with ExitStack() as cleanup:
        engines = {shape: start(query, text, cleanup) for shape, text in setting.plans.items()}
        for number, batch in enumerate(batches_of(setting, copies, warm + epochs, seed)):
            found = {}
            for shape, engine in engines.items():
                began = time.process_time()
                table = engine.run(batch)
                spent = time.process_time() - began
                found[shape] = checksum(table)
                if number >= warm:
                    cpu[shape].append(spent)
                    size[shape].append(sum(segment.bytes for segment in engine.manifest.segments.values()))
            assert len(set(found.values())) == 1, f"shapes disagree in batch {number}: {found}"
            results += found["mjoin"][0] if number >= warm else 0
    return {
        "copies": copies,
        "results_per_epoch": results // epochs,
        "cpu_s": {shape: statistics.median(values) for shape, values in cpu.items()},
        "state_bytes": {shape: round(statistics.median(values)) for shape, values in size.items()},
    }


def judge(name: str, setting: Setting, measured: dict[str, Any]) -> dict[str, Any]:
    """Ratios to the mjoin, the winners, and whether each claim of the theory was confirmed."""
    figures = {"cpu": measured["cpu_s"], "state": measured["state_bytes"]}
    ratios = {m: {s: round(v / values["mjoin"], 2) for s, v in values.items()} for m, values in figures.items()}
    winners = {m: min(values, key=values.__getitem__) for m, values in figures.items()}
    confirmed = {
        f"{measure} {shape} <= {factor} {other}": figures[measure][shape] <= factor * figures[measure][other]
        for measure, shape, other, factor in setting.claims
    }
    print(f"\n{name}: {measured['results_per_epoch']:,} results per epoch, equal for all shapes")
    print(f"  {'shape':<28}{'CPU / mjoin':>12}{'state / mjoin':>15}{'CPU ms':>10}{'state KiB':>12}")
    for shape, text in setting.plans.items():
        bare = f"{figures['cpu'][shape] * 1000:>10.1f}{figures['state'][shape] / 1024:>12,.0f}"
        print(f"  {shape + ' ' + text:<28}{ratios['cpu'][shape]:>12.2f}{ratios['state'][shape]:>15.2f}{bare}")
    for claim, holds in confirmed.items():
        print(f"  {'confirmed' if holds else 'NOT confirmed'}: {claim}", flush=True)
    return {"plans": dict(setting.plans), "over_mjoin": ratios, "winners": winners, "confirmed": confirmed, **measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--epochs", type=int, default=20, help="measured micro-batches, after the windows are full")
    parser.add_argument("--scale", type=float, default=1.0, help="times the copies of each setting")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    judged = {}
    for name in args.settings:
        setting = SETTINGS[name]
        measured = measure(setting, max(1, round(setting.copies * args.scale)), args.epochs, args.seed)
        judged[name] = judge(name, setting, measured)
    print(f"\nwritten to {save('join_shapes', {'workload': vars(args), 'settings': judged}).name}")


if __name__ == "__main__":
    main()
