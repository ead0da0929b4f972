"""The kernels, one by one, on one core, against the naive way and the alternatives that could take their place.

| kernel | ours                                          | rivals                                                   |
|--------|-----------------------------------------------|----------------------------------------------------------|
| probe  | match_keys, rows_between, expand: sorted runs | all rows of the key and a filter; numba                  |
| join   | build_runs of a raw batch, then probe         | Polars and pyarrow joins of raw rows, then the window    |
| group  | group_keys                                    | other sorts in its place; lexsort, unique, hashing       |
| build  | build_runs: group, code, sort, take           | the same; one sort of two columns; hashing first         |
| merge  | merge_runs of sorted runs                     | the same: some sorts profit from what is already sorted  |
| take   | pyarrow's, unchecked: integers at random, in  | NumPy, Polars, numba                                     |
|        | order, and strings                            |                                                          |

Workload: a state of 500,000 rows over two minutes, a batch of 50,000 rows in the next 12 s, a window of 60 s; once with
20,000 keys (25 rows each) and once with 200,000, because the winners differ. Rows arrive in time order. (Key, time) is
unique, so every order is determined, and every rival is asserted to give the same rows in the same order (of a join:
the same pairs) before it is timed. Other sorts stand in for `np.argsort` inside our own code, so that they do all of
its work; the sorts of whole tables do less, building no index. Rivals run in turn, several rounds, least CPU time each.
*Naive* is per-row Python, on a sample and scaled where slow. numba is a rival where it is installed; its compilation is
not timed. Figures are rival / ours: below 1 the rival is faster.
"""

from __future__ import annotations

import argparse
import heapq
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest import mock

os.environ["POLARS_MAX_THREADS"] = "1"
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import numba_kernels as nb
from benchmarks.machine import save
from watersmeet.engine.kernels import all_rows, expand, match_keys, rows_between
from watersmeet.state.run import Ints, Run, build_runs, group_keys, keys_equal, merge_runs, take, take_rows

WINDOW_US = np.int64(60_000_000)
STATE_US = 120_000_000
Argsort = Callable[[npt.NDArray[Any]], Ints]

argsort = np.argsort


def digits_argsort(values: npt.NDArray[Any]) -> Ints:
    """A stable argsort of values that are not negative, by digits of 16 bits, which NumPy sorts by radix."""
    order: Ints = argsort(values.astype(np.uint16), kind="stable")
    for shift in range(16, int(values.max()).bit_length(), 16):
        digits = (values >> values.dtype.type(shift)).astype(np.uint16)
        order = order[argsort(digits[order], kind="stable")]
    return order


SORTS: dict[str, Argsort] = {
    "numpy quicksort": lambda values: argsort(values),
    "numpy stable": lambda values: argsort(values, kind="stable"),
    "numpy 16-bit digits": digits_argsort,
    "pyarrow sort_indices": lambda values: pc.sort_indices(pa.array(values)).to_numpy().astype(np.int64),
    "polars arg_sort": lambda values: pl.Series(values).arg_sort().to_numpy().astype(np.int64),
}
if nb.INSTALLED:
    SORTS |= {"numba radix": nb.radix_argsort, "numba merge": nb.merge_argsort}


def by_other_sorts(ours: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Our own code with another sort in the place of NumPy's."""

    def replaced(sort: Argsort) -> Callable[[], Any]:
        def run() -> Any:
            with mock.patch.object(np, "argsort", lambda values, kind=None: sort(values)):
                return ours()

        return run

    return {name: replaced(sort) for name, sort in SORTS.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Raw rows, as they arrive: in time order, keys at random; n numbers them."""

    k: Ints
    t: Ints
    n: Ints

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        return self.k.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    @property
    def keys(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(self.k)], names=["k"])

    @property
    def payload(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(self.n), pa.array(self.n * 0.5)], names=["n", "v"])

    def run(self) -> Run:
        (run,) = build_runs(self.hashes, self.keys, self.t, self.payload)
        return run

    def part(self, low: int, high: int) -> Rows:
        return Rows(self.k[low:high], self.t[low:high], self.n[low:high])


def rows_of(count: int, keys: int, begin_us: int, end_us: int, rng: np.random.Generator) -> Rows:
    step = (end_us - begin_us) // count
    t = begin_us + np.arange(count, dtype=np.int64) * step + rng.integers(0, step, count)
    return Rows(rng.integers(0, keys, count), t, np.arange(count, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel: ours, its rivals, and what of a result must be equal."""

    ours: Callable[[], Any]
    rivals: dict[str, Callable[[], Any]]
    content: Callable[[Any], npt.NDArray[Any]]
    naive: Callable[[], Any]
    naive_share: float = 1.0
    """The share of the work that `naive` does; its time is scaled, and it is compared only if that is all."""


def probe_with(delta: Run, target: Run, search: Callable[[Run, Ints, Ints], tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    ranks = delta.row_ranks()
    needles, positions = match_keys(delta, target).of_needles(np.arange(len(ranks)), ranks)
    found, rows = search(target, positions, delta.times(delta.rows_slice())[needles])
    return needles[found], rows


def ours_search(target: Run, positions: Ints, t: Ints) -> tuple[Ints, Ints]:
    return expand(rows_between(target, positions, t - WINDOW_US + 1, t + WINDOW_US - 1))


def filter_search(target: Run, positions: Ints, t: Ints) -> tuple[Ints, Ints]:
    needles, rows = expand(all_rows(target, positions))
    near = np.abs(target.times(rows) - t[needles]) < WINDOW_US
    return needles[near], rows[near]


def numba_search(target: Run, positions: Ints, t: Ints) -> tuple[Ints, Ints]:
    times = target.times(slice(None))
    return nb.search(times, target.starts, positions, t - WINDOW_US + 1, t + WINDOW_US)


def pairs(delta: Run, target: Run) -> Callable[[tuple[Ints, Ints]], npt.NDArray[Any]]:
    """Matches as pairs of row numbers, sorted."""
    left, right = delta.payload.column(0).to_numpy(), target.payload.column(0).to_numpy()
    return lambda found: np.sort((left[found[0]] << 32) | right[found[1]])


def probe_case(batch: Rows, state: Rows) -> Case:
    delta, target = batch.run(), state.run()
    rivals = {"all rows, then filter": lambda: probe_with(delta, target, filter_search)}
    if nb.INSTALLED:
        rivals["numba search"] = lambda: probe_with(delta, target, numba_search)
    naive = naive_probe(batch, state, 20)
    return Case(lambda: probe_with(delta, target, ours_search), rivals, pairs(delta, target), naive, 1 / 20)


def naive_probe(batch: Rows, state: Rows, divisor: int) -> Callable[[], Any]:
    index: dict[int, list[tuple[int, int]]] = {}
    for k, t, n in zip(state.k.tolist(), state.t.tolist(), state.n.tolist(), strict=True):
        index.setdefault(k, []).append((t, n))
    sample = list(zip(*(c[::divisor].tolist() for c in (batch.k, batch.t, batch.n)), strict=True))
    window = int(WINDOW_US)
    return lambda: [(n, m) for k, t, n in sample for u, m in index.get(k, ()) if abs(t - u) < window]


def join_case(batch: Rows, state: Rows) -> Case:
    target = state.run()
    left, right = ({"k": r.k, "t": r.t, "n": r.n} for r in (batch, state))
    frames = pl.DataFrame(left), pl.DataFrame(right)
    tables = pa.table(left), pa.table(right)
    near = (pl.col("t") - pl.col("t_right")).abs() < int(WINDOW_US)

    def ours() -> tuple[Ints, Ints]:
        delta = batch.run()
        needles, rows = probe_with(delta, target, ours_search)
        return take(delta.payload.column(0), needles).to_numpy(), take(target.payload.column(0), rows).to_numpy()

    def polars() -> tuple[Ints, Ints]:
        found = frames[0].lazy().join(frames[1].lazy(), on="k").filter(near).select("n", "n_right").collect()
        return found["n"].to_numpy(), found["n_right"].to_numpy()

    def pyarrow() -> tuple[Ints, Ints]:
        found = tables[0].join(tables[1], "k", join_type="inner", right_suffix="_right", use_threads=False)
        gap = pc.abs(pc.subtract(found["t"], found["t_right"]))
        found = found.filter(pc.less(gap, int(WINDOW_US)))
        return found["n"].to_numpy(), found["n_right"].to_numpy()

    rivals = {"polars join": polars, "pyarrow join": pyarrow}
    return Case(ours, rivals, lambda found: np.sort((found[0] << 32) | found[1]), naive_probe(batch, state, 20), 1 / 20)


def ranks_by_hashing(hashes: npt.NDArray[np.uint64], keys: pa.RecordBatch) -> tuple[Ints, Ints]:
    """The first row of each distinct hash, ascending, and the rank of every row: only distinct hashes are sorted.

    Key values are compared, as in `group_keys`; there are no collisions here.
    """
    encoded = pc.dictionary_encode(pa.array(hashes))
    distinct, number = encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
    first = np.empty(len(distinct), dtype=np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    assert keys_equal(keys, np.arange(len(number)), keys, first[number]).all()
    order = argsort(distinct)
    rank_of = np.empty(len(order), dtype=np.int64)
    rank_of[order] = np.arange(len(order))
    return first[order], rank_of[number]


def group_case(state: Rows) -> Case:
    hashes, keys = state.hashes, state.keys

    def marked(order: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        ordered = hashes[order]
        first = np.append(True, ordered[1:] != ordered[:-1])
        repeated = np.flatnonzero(~first)
        assert keys_equal(keys, order[repeated], keys, order[repeated - 1]).all()
        return order, first

    def hashed() -> tuple[Ints, npt.NDArray[np.bool_]]:
        _, ranks = ranks_by_hashing(hashes, keys)
        marks = np.zeros(len(ranks), dtype=np.bool_)
        marks[np.cumsum(np.bincount(ranks))[:-1]] = marks[0] = True
        return digits_argsort(ranks), marks

    def naive() -> tuple[Ints, npt.NDArray[np.bool_]]:
        rows: dict[int, list[int]] = {}
        for i, h in enumerate(hashes.tolist()):
            rows.setdefault(h, []).append(i)
        return marked(np.array([i for h in sorted(rows) for i in rows[h]]))

    def ours() -> tuple[Ints, npt.NDArray[np.bool_]]:
        return group_keys(hashes, keys)

    rivals = by_other_sorts(ours)
    rivals["numpy lexsort"] = lambda: marked(np.lexsort([state.k, hashes]))
    rivals["numpy unique"] = lambda: marked(digits_argsort(np.unique(hashes, return_inverse=True)[1]))
    rivals["hash, 16-bit digits"] = hashed
    return Case(ours, rivals, lambda found: np.concatenate([hashes[found[0]], found[1].astype(np.uint64)]), naive)


def build_case(state: Rows) -> Case:
    hashes, keys, payload, t = state.hashes, state.keys, state.payload, state.t
    columns = {"h": hashes, "k": state.k, "t": t, "n": state.n, "v": state.n * 0.5}
    frame, table = pl.DataFrame(columns), pa.table(columns)

    def ours() -> pa.RecordBatch:
        return build_runs(hashes, keys, t, payload)[0].payload

    def hashed() -> pa.RecordBatch:
        """Ours with distinct keys as candidates, found by hashing instead of sorting."""
        first, ranks = ranks_by_hashing(hashes, keys)
        return build_runs(hashes[first], take_rows(keys, first), t, payload, ranks)[0].payload

    def hashed_in_time_order() -> pa.RecordBatch:
        """Rows that arrive in time order (which is checked) need no sort of codes: a stable one of ranks keeps it."""
        first, ranks = ranks_by_hashing(hashes, keys)
        assert (t[1:] >= t[:-1]).all()
        starts = np.append(0, np.cumsum(np.bincount(ranks)))
        order = digits_argsort(ranks)
        low, high = int(t.min()), int(t.max())
        bits = (high - low + 1).bit_length()
        codes = (ranks[order] << np.int64(bits)) | (t[order] - low)
        run = Run(hashes[first], take_rows(keys, first), starts.astype(np.int32), codes, take_rows(payload, order))
        return run.payload

    def naive() -> pa.RecordBatch:
        order = sorted(range(len(t)), key=list(zip(hashes.tolist(), t.tolist(), strict=True)).__getitem__)
        return take_rows(payload, np.array(order))

    rivals = by_other_sorts(ours)
    rivals["numpy lexsort"] = lambda: take_rows(payload, np.lexsort([t, hashes]))
    rivals["polars sort"] = lambda: frame.sort("h", "t").to_arrow()
    rivals["pyarrow sort_by"] = lambda: table.sort_by([("h", "ascending"), ("t", "ascending")])
    rivals["hash, then ours"] = hashed
    rivals["hash, in time order"] = hashed_in_time_order
    return Case(ours, rivals, numbers, naive)


def numbers(rows: pa.RecordBatch | pa.Table) -> npt.NDArray[Any]:
    return rows.column("n").to_numpy()


def merge_case(state: Rows, parts: int) -> Case:
    cuts = np.linspace(0, len(state.k), parts + 1).astype(int)
    runs = [state.part(low, high).run() for low, high in pairwise(cuts)]
    frames = [
        pl.DataFrame({"h": r.hashes[r.row_ranks()], "t": r.times(r.rows_slice())}).hstack(pl.from_arrow(r.payload))
        for r in runs
    ]
    sample = [frame.select("h", "t", "n").gather_every(20).rows() for frame in frames]

    def ours() -> pa.RecordBatch:
        (run,) = merge_runs(runs)
        return run.payload

    rivals = by_other_sorts(ours)
    rivals["polars sort"] = lambda: pl.concat(frames).sort("h", "t").to_arrow()
    return Case(ours, rivals, numbers, lambda: list(heapq.merge(*sample)), 1 / 20)


def take_case(values: pa.Array, rows: Ints) -> Case:
    series = pl.Series(values)
    listed, sample = values.to_pylist(), rows[::20].tolist()
    rivals: dict[str, Callable[[], Any]] = {
        "pyarrow checked": lambda: values.take(pa.array(rows)),
        "polars gather": lambda: series.gather(rows),
    }
    if pa.types.is_integer(values.type):
        numpy = values.to_numpy()
        rivals["numpy fancy"] = lambda: numpy[rows]
        rivals["numpy take, clipped"] = lambda: numpy.take(rows, mode="clip")
        if nb.INSTALLED:
            rivals["numba loop"] = lambda: nb.take(numpy, rows)
    naive = lambda: [listed[i] for i in sample]  # noqa: E731
    return Case(lambda: take(values, rows), rivals, lambda found: np.asarray(found), naive, 1 / 20)


def timed(case: Case, rounds: int) -> dict[str, float]:
    """CPU seconds of ours and the rivals, the least of several rounds in turn; equal results are asserted first."""
    right = case.content(case.ours())
    for name, rival in case.rivals.items():
        assert np.array_equal(case.content(rival()), right), f"{name}: other results"
    assert case.naive_share < 1 or np.array_equal(case.content(case.naive()), right), "naive: other results"
    best = dict.fromkeys(["ours", *case.rivals], float("inf"))
    for _ in range(rounds):
        for name, run in {"ours": case.ours, **case.rivals}.items():
            best[name] = min(best[name], cpu_seconds(run))
    return {**best, "naive": cpu_seconds(case.naive) / case.naive_share}


def cpu_seconds(run: Callable[[], Any]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def judge(name: str, seconds: dict[str, float]) -> dict[str, Any]:
    ratios = {rival: round(s / seconds["ours"], 2) for rival, s in seconds.items()}
    winner = min(seconds, key=seconds.__getitem__)
    print(f"\n{name}: winner {winner}; ours {seconds['ours'] * 1000:.1f} ms")
    for rival, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        print(f"  {rival:<24}{ratio:>8.2f}", flush=True)
    return {"ours_ms": round(seconds["ours"] * 1000, 2), "over_ours": ratios, "winner": winner}


def keyed_cases(rows: int, keys: int, runs: int, seed: int) -> Sequence[tuple[str, Callable[[], Case]]]:
    rng = np.random.default_rng(seed)
    state = rows_of(rows, keys, 0, STATE_US, rng)
    batch = rows_of(rows // 10, keys, STATE_US, STATE_US + STATE_US // 10, rng)
    return (
        ("probe", lambda: probe_case(batch, state)),
        ("join", lambda: join_case(batch, state)),
        ("group", lambda: group_case(state)),
        ("build", lambda: build_case(state)),
        ("merge", lambda: merge_case(state, runs)),
    )


def take_cases(rows: int, seed: int) -> Sequence[tuple[str, Callable[[], Case]]]:
    index = np.random.default_rng(seed).integers(0, rows, rows)
    numbered = pa.array(np.arange(rows, dtype=np.int64))
    texts = pa.array([f"row number {n}" for n in range(rows)])
    return (
        ("take integers", lambda: take_case(numbered, index)),
        ("take integers in order", lambda: take_case(numbered, np.sort(index))),
        ("take strings", lambda: take_case(texts, index)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the state; a batch has a tenth")
    parser.add_argument("--keys", type=int, nargs="+", default=[20_000, 200_000])
    for name, default in (("--runs", 4), ("--rounds", 7), ("--seed", 1)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    print(f"{args.rows:,} rows, one core; rival / ours; numba: {nb.VERSION or 'not installed'}")
    cases = {keys: keyed_cases(args.rows, keys, args.runs, args.seed) for keys in args.keys}
    named = [(f"{name}, {keys:,} keys", case) for keys, some in cases.items() for name, case in some]
    named += take_cases(args.rows, args.seed)
    judged = {name: judge(name, timed(case(), args.rounds)) for name, case in named}
    versions = {"numba": nb.VERSION, "polars": pl.__version__}
    print(f"\nwritten to {save('kernels', {'workload': vars(args), **versions, 'kernels': judged}).name}")


if __name__ == "__main__":
    main()
