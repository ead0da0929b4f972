"""How often the intervals of running aggregates hold the final value, against the formula for independent draws.

Three finite streams are joined, rows arrive in random order, and SUM(a.price * b.qty), AVG of the same and COUNT(*) are
looked at when a share of each stream has arrived. A 95 % interval should hold the final value in 95 % of the runs;
aimed at: 93-97 % for SUM and AVG at 10, 30 and 60 %. *Naive* is the formula for independent draws, with each result
as a draw: it is what one gets who forgets that results share rows.

| population    | join                    | keys                    | price of a                              |
|---------------|-------------------------|-------------------------|-----------------------------------------|
| zipf 0.5-1.1  | a.k = b.k = c.k         | Zipf, 0.5, 0.8 and 1.1  | uniform in 1 .. 100                     |
| chain         | a.k = b.k and b.j = c.j | Zipf 0.8                | uniform in 1 .. 100                     |
| unequal       | as chain                | Zipf 0.8                | uniform in 1 .. 100                     |
| gains         | a.k = b.k = c.k         | Zipf 0.8                | normal, mean 20, deviation 50           |
| heavy tail    | a.k = b.k = c.k         | Zipf 0.8                | log-normal, sigma 1                     |
| one to one    | a.k = b.k = c.k         | every key once          | uniform in 1 .. 100                     |
| foreign keys  | a.k = b.id, b.j = c.id  | Zipf 0.8, and uniform   | uniform in 1 .. 100                     |

qty is uniform in 1 .. 10. The streams are seen to 10, 30 and 60 %; in *unequal*, to 5/10/30, 10/30/60 and 30/60/100 %.
Populations are drawn anew after some runs. Reported are the share of runs whose interval holds the truth, and its width
as the median of (high - low) / 2 |truth|. Runs without an interval (no result yet) are not counted, but their number is
reported. `--buckets 8192` shows what the noise of sketches does: almost none is left. Figures that miss the aim are
marked in the table.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.machine import save
from watersmeet.engine.intervals import Arrivals, Intervals, Running, final_average, final_count, final_sum
from watersmeet.engine.sketch import BUCKETS, Floats, Ints, sketch, subset_count

AIM = 93.0, 97.0
EVEN = tuple((share,) * 3 for share in (0.1, 0.3, 0.6))
UNEVEN = ((0.05, 0.1, 0.3), (0.1, 0.3, 0.6), (0.3, 0.6, 1.0))

Random = np.random.Generator
Draw = Callable[[int, Random], npt.NDArray[Any]]
Seen = Sequence[tuple[int, ...]]
"""Rows of each stream, per look."""


def zipf(keys: int, exponent: float) -> Draw:
    weights = np.arange(1, keys + 1) ** -exponent
    return lambda rows, rng: rng.choice(keys, rows, p=weights / weights.sum())


def uniform_price(rows: int, rng: Random) -> Floats:
    return rng.uniform(1, 100, rows)


def gain(rows: int, rng: Random) -> Floats:
    return rng.normal(20, 50, rows)


def heavy_price(rows: int, rng: Random) -> Floats:
    return rng.lognormal(0, 1, rows)


def each_once(rows: int, rng: Random) -> Ints:
    return rng.permutation(rows)


@dataclass(frozen=True, slots=True)
class Setting:
    """Populations of one kind, and the shares of their streams at which they are looked at."""

    rows: tuple[int, int, int]
    key: Draw
    price: Draw = uniform_price
    is_chain: bool = False
    foreign: bool = False
    """Each row of a refers to one of b, and each of b to one of c."""
    looks: Sequence[tuple[float, ...]] = EVEN


SETTINGS = {
    "zipf 0.5": Setting((1500, 1500, 1500), zipf(300, 0.5)),
    "zipf 0.8": Setting((1000, 800, 600), zipf(300, 0.8)),
    "zipf 1.1": Setting((600, 500, 400), zipf(300, 1.1)),
    "chain": Setting((1500, 1000, 1000), zipf(300, 0.8), is_chain=True),
    "unequal": Setting((1500, 1000, 1000), zipf(300, 0.8), is_chain=True, looks=UNEVEN),
    "gains": Setting((1000, 800, 600), zipf(300, 0.8), gain),
    "heavy tail": Setting((1000, 800, 600), zipf(300, 0.8), heavy_price),
    "one to one": Setting((20_000, 20_000, 20_000), each_once),
    "foreign keys, few": Setting((2000, 500, 200), zipf(500, 0.8), foreign=True),
    "foreign keys, many": Setting((20_000, 5000, 2000), zipf(5000, 0.8), foreign=True),
}


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """All results of a join: the row of each stream in each, and its value."""

    sizes: tuple[int, ...]
    rows: tuple[Ints, ...]
    values: Floats

    @property
    def finals(self) -> dict[str, float]:
        total, count = float(self.values.sum()), len(self.values)
        return {"SUM": total, "AVG": total / count, "COUNT": count}


def draw(setting: Setting, rng: Random) -> Population:
    if setting.foreign:
        return draw_foreign(setting, rng)
    a, b, c = (setting.key(rows, rng) for rows in setting.rows)
    b_to_c = setting.key(len(b), rng) if setting.is_chain else b
    of_a, of_b = equal_pairs(a, b)
    pair, of_c = equal_pairs(b_to_c[of_b], c)
    rows = of_a[pair], of_b[pair], of_c
    price, quantity = setting.price(len(a), rng), rng.integers(1, 11, len(b))
    return Population(setting.rows, rows, price[rows[0]] * quantity[rows[1]])


def draw_foreign(setting: Setting, rng: Random) -> Population:
    a, b, c = setting.rows
    to_b, to_c = setting.key(a, rng), rng.integers(0, c, b)
    price, quantity = setting.price(a, rng), rng.integers(1, 11, b)
    return Population(setting.rows, (np.arange(a), to_b, to_c[to_b]), price * quantity[to_b])


def equal_pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(right, kind="stable")
    start, stop = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    count = stop - start
    first = np.repeat(start - np.cumsum(count) + count, count)
    return np.repeat(np.arange(len(left)), count), order[first + np.arange(len(first))]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What is known when some share of the rows has arrived, in each of several runs."""

    arrivals: Arrivals
    sums: Floats
    """[of 1, y, |y| and y * y; run]"""
    sketches: Floats
    """[of y and 1; run; set of streams; bucket]"""


def looks_of(population: Population, setting: Setting, runs: int, rng: Random, buckets: int) -> Iterator[Look]:
    """Rows arrive in random order, anew in each run."""
    seen = [tuple(round(f * size) for f, size in zip(fs, population.sizes, strict=True)) for fs in setting.looks]
    found = [run(population, seen, rng, buckets) for _ in range(runs)]
    for number, rows in enumerate(seen):
        sums = np.stack([sums for sums, _ in (of_run[number] for of_run in found)], axis=1)
        sketches = np.concatenate([sketches for _, sketches in (of_run[number] for of_run in found)], axis=1)
        yield Look(Arrivals(rows, population.sizes), sums, sketches)


def run(population: Population, seen: Seen, rng: Random, buckets: int) -> list[tuple[Floats, Floats]]:
    """The sums and sketches at each look, added up from one to the next."""
    places = [rng.permutation(size) for size in population.sizes]
    ids = [rng.integers(0, 1 << 63, size).astype(np.uint64) for size in population.sizes]
    sums, sketches = np.zeros(4), np.zeros((2, 1, subset_count(3), buckets))
    found = []
    for new in new_at_looks(population, seen, places):
        y = population.values[new]
        sums = sums + np.array([len(y), y.sum(), np.abs(y).sum(), (y * y).sum()])
        which = [stream[rows[new]] for stream, rows in zip(ids, population.rows, strict=True)]
        sketches = sketches + sketch(which, [y, np.ones(len(y))], np.zeros(len(y), dtype=np.int64), 1, buckets)
        found.append((sums, sketches))
    return found


def new_at_looks(population: Population, seen: Seen, places: Sequence[Ints]) -> Iterator[Ints]:
    """Per look the results that it sees first: those whose last row has arrived since the look before."""
    first = np.zeros(len(population.values), dtype=np.int8)
    for place, counts, rows in zip(places, zip(*seen, strict=True), population.rows, strict=True):
        np.maximum(first, np.searchsorted(counts, place, side="right").astype(np.int8)[rows], out=first)
    for look in range(len(seen)):
        yield np.flatnonzero(first == look)


def ours(look: Look, level: float) -> dict[str, Intervals]:
    count, total, magnitude, _ = look.sums
    values = Running(total, magnitude, look.sketches[0])
    ones = Running(count, count, look.sketches[1])
    return {
        "SUM": final_sum(values, look.arrivals, level),
        "AVG": final_average(values, ones, look.arrivals, level),
        "COUNT": final_count(ones, look.arrivals, level),
    }


def naive(look: Look, level: float) -> dict[str, Intervals]:
    """Each result is a draw of its own, seen with the probability of a result to be seen."""
    count, total, _, squares = look.sums
    share = float(np.prod([n / size for n, size in zip(look.arrivals.seen, look.arrivals.total, strict=True)]))
    z = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(1 - share)
    with np.errstate(divide="ignore", invalid="ignore"):
        average = total / count
        deviation = np.sqrt(np.maximum(squares / count - average**2, 0) / count)
    found = {
        "SUM": (total / share, z * np.sqrt(squares) / share),
        "AVG": (average, z * deviation),
        "COUNT": (count / share, z * np.sqrt(count) / share),
    }
    return {name: Intervals(estimate, estimate - half, estimate + half) for name, (estimate, half) in found.items()}


METHODS = {"ours": ours, "naive": naive}


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What became of intervals: whether the truth was below or above, and half the width, relative to the truth.

    Where there was no interval, the width is NaN.
    """

    is_below: npt.NDArray[np.bool_]
    is_above: npt.NDArray[np.bool_]
    width: Floats

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        return ~np.isnan(self.width)

    @property
    def coverage_percent(self) -> float:
        return 100 * float(np.mean(~(self.is_below | self.is_above)[self.known]))


Judged = dict[tuple[int, str, str], Outcomes]
"""By look, aggregate and method."""


def simulate(setting: Setting, populations: int, runs: int, seed: int, level: float, buckets: int) -> Judged:
    """The outcomes of all runs, each population being used for `runs` of them."""
    rng = np.random.default_rng(seed)
    found: dict[tuple[int, str, str], list[Outcomes]] = defaultdict(list)
    for population in (draw(setting, rng) for _ in range(populations)):
        finals = population.finals
        for number, look in enumerate(looks_of(population, setting, runs, rng, buckets)):
            for method, intervals in METHODS.items():
                for name, interval in intervals(look, level).items():
                    found[number, name, method].append(judge(interval, finals[name]))
    return {key: together(parts) for key, parts in found.items()}


def simulated(name: str, *how: Any) -> Judged:
    """As `simulate`, of a setting that can be named to another process."""
    return simulate(SETTINGS[name], *how)


def judge(intervals: Intervals, truth: float) -> Outcomes:
    width = (intervals.high - intervals.low) / 2 / abs(truth)
    return Outcomes(truth < intervals.low, truth > intervals.high, width)


def together(parts: Sequence[Outcomes]) -> Outcomes:
    return Outcomes(*(np.concatenate([getattr(part, f) for part in parts]) for f in ("is_below", "is_above", "width")))


def summary(outcomes: Outcomes) -> dict[str, float]:
    known = outcomes.known
    return {
        "coverage_percent": round(outcomes.coverage_percent, 2),
        "truth_below_percent": round(100 * float(np.mean(outcomes.is_below[known])), 2),
        "truth_above_percent": round(100 * float(np.mean(outcomes.is_above[known])), 2),
        "relative_half_width_median": round(float(np.median(outcomes.width[known])), 4),
        "runs_without_interval": int(np.sum(~known)),
    }


def report(name: str, setting: Setting, outcomes: Judged) -> list[dict[str, Any]]:
    rows = []
    for (number, aggregate, method), found in outcomes.items():
        if method == "naive":
            continue
        row = {"look": list(setting.looks[number]), "aggregate": aggregate, "ours": summary(found)}
        rows.append(row | {"naive": summary(outcomes[number, aggregate, "naive"])})
        held, half = row["ours"]["coverage_percent"], row["ours"]["relative_half_width_median"]
        shares = "/".join(f"{100 * share:g}" for share in dict.fromkeys(setting.looks[number]))
        mark = "" if AIM[0] <= held <= AIM[1] else "  below the aim" if held < AIM[0] else "  above the aim"
        rival = rows[-1]["naive"]["coverage_percent"]
        print(f"{name:18} {shares:>10} % {aggregate:6} {held:6.1f} % +-{100 * half:5.1f} %  naive {rival:5.1f} %{mark}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--populations", type=int, default=40, help="populations of each kind")
    parser.add_argument("--runs", type=int, default=25, help="runs per population")
    parser.add_argument("--level", type=float, default=0.95)
    parser.add_argument("--buckets", type=int, default=BUCKETS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    args = parser.parse_args()
    began, settings = time.perf_counter(), {}
    how = (args.populations, args.runs, args.seed, args.level, args.buckets)
    with ProcessPoolExecutor() as pool:
        futures = {name: pool.submit(simulated, name, *how) for name in args.only}
        for name, future in futures.items():
            settings[name] = {"rows": SETTINGS[name].rows, "figures": report(name, SETTINGS[name], future.result())}
    result = {"workload": vars(args), "seconds": round(time.perf_counter() - began), "settings": settings}
    if args.only == list(SETTINGS) and args.buckets == BUCKETS:
        print(f"\nwritten to {save('confidence_coverage', result).name}")


if __name__ == "__main__":
    main()
