"""What the papers claim of the figures, judged by the traces: a ratio per seed, and whether it is on the right side.

`confirmed` means: for every seed. Nothing is asserted of it; README.md explains what was not confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.figures import r6_three_way as r6
from benchmarks.figures import s5_five_streams as s5
from benchmarks.figures.running import Setting, Trace

Figure = Callable[[Trace], float]
Traces = s5.Traces


def judged(workload: str, text: str, ratios: Sequence[float], least: float, *, is_strict: bool) -> dict[str, Any]:
    """A claim that a ratio is at least, or more than, `least`; confirmed if it is for every seed."""
    holds = [ratio > least if is_strict else ratio >= least for ratio in ratios]
    return {
        "claim": text,
        "workload": workload,
        "ratio_mean": round(fmean(ratios), 3),
        "ratio_by_seed": [round(ratio, 3) for ratio in ratios],
        "confirmed": all(holds),
    }


@dataclass(frozen=True, slots=True)
class Claim:
    """Of two settings on one workload: a figure of the first is at least `least` times that of the second."""

    text: str
    workload: str
    first: Setting
    second: Setting
    figure: Figure
    least: float = 1.0
    is_strict: bool = False

    def judged(self, traces: Traces) -> dict[str, Any]:
        pairs = zip(traces[self.workload, self.first], traces[self.workload, self.second], strict=True)
        ratios = [self.figure(one) / max(1e-9, self.figure(other)) for one, other in pairs]
        return judged(self.workload, self.text, ratios, self.least, is_strict=self.is_strict)


def results(trace: Trace) -> float:
    return trace.run_results


def spills(trace: Trace) -> float:
    return trace.spills


def clean_up_results(trace: Trace) -> float:
    return trace.clean_up_results


def clean_up_cpu(trace: Trace) -> float:
    return trace.clean_up_cpu_s


def claims() -> list[Claim]:
    return [*(claim for ratios in s5.RATIOS for claim in _of_s5(ratios)), *_of_r6()]


def _of_s5(ratios: str) -> list[Claim]:
    penalty, plain, local, bottom_up = (s5.setting(p) for p in (s5.PENALTY, s5.GLOBAL, s5.LOCAL, s5.BOTTOM_UP))
    found = [Claim("results: penalty >= global", ratios, penalty, plain, results)]
    for name, one in (("penalty", penalty), ("global", plain)):
        found.append(Claim(f"results: {name} > local", ratios, one, local, results, is_strict=True))
        found.append(Claim(f"results: {name} > bottom-up", ratios, one, bottom_up, results, is_strict=True))
    found.append(Claim("spills: global > penalty", ratios, plain, penalty, spills, is_strict=True))
    found.append(Claim("spills: penalty > bottom-up", ratios, penalty, bottom_up, spills, is_strict=True))
    found.append(Claim("clean-up CPU: bottom-up > global", ratios, bottom_up, plain, clean_up_cpu, is_strict=True))
    found.append(Claim("clean-up CPU: bottom-up > penalty", ratios, bottom_up, penalty, clean_up_cpu, is_strict=True))
    return found


def _of_r6() -> list[Claim]:
    less, more = r6.setting(r6.LESS), r6.setting(r6.MORE)
    found = []
    for smaller, larger in zip(r6.PUSHES, r6.PUSHES[1:], strict=False):
        one, other = r6.setting("random", smaller), r6.setting("random", larger)
        names = f"{smaller:.0%}-push >= {larger:.0%}-push"
        found.append(Claim(f"results: {names}", r6.EVEN_RATES, one, other, results))
        found.append(Claim(f"spills: {names}", r6.EVEN_RATES, one, other, spills))
    uneven = r6.UNEVEN_RATES
    found.append(Claim("results: push-less >= 1.5 push-more", uneven, less, more, results, 1.5))
    found.append(Claim("clean-up results: push-more >= 3 push-less", uneven, more, less, clean_up_results, 3.0))
    found.append(Claim("clean-up CPU: push-more >= 3 push-less", uneven, more, less, clean_up_cpu, 3.0))
    return found


def print_claims(judged: Sequence[dict[str, Any]]) -> None:
    print(f"\n{'workload':<20}{'claim':<46}{'ratio':>7}  {'by seed':<24}confirmed")
    for one in judged:
        seeds = " ".join(f"{ratio:.2f}" for ratio in one["ratio_by_seed"])
        line = f"{one['workload']:<20}{one['claim']:<46}{one['ratio_mean']:>7.2f}  {seeds:<24}"
        print(line + ("yes" if one["confirmed"] else "NO"))
