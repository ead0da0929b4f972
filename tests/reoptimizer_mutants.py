"""Mutants of the run-time optimiser: see `tests/mutants.py`."""

from tests.mutants import Mutant

REOPTIMIZER_MUTANTS = [
    Mutant(
        "the fallback waits like any other plan",
        "adaptation.reoptimizer:decide",
        "and not history.is_fallback:",
        "and True:",
    ),
    Mutant(
        "the fallback is left for any gain",
        "adaptation.reoptimizer:decide",
        "if not look.is_better:",
        "if not (look.is_better or history.is_fallback):",
    ),
    Mutant(
        "the plan that is asked for must save CPU",
        "adaptation.reoptimizer:decide",
        "if look.is_asked_for:",
        "if False:",
    ),
    Mutant(
        "one look is enough",
        "adaptation.reoptimizer:_waits",
        "if history.better != look.best.plan or look.at_s",
        "if False and look.at_s",
    ),
    Mutant(
        "any other plan confirms a look",
        "adaptation.reoptimizer:_waits",
        "if history.better != look.best.plan or",
        "if not history.better or",
    ),
    Mutant(
        "a small gain is enough",
        "adaptation.reoptimizer:decide",
        "if not look.is_better:",
        "if False:",
    ),
    Mutant(
        "the cost of a migration is forgotten",
        "adaptation.reoptimizer:decide",
        "if saved_s <= paid_s and not is_relief:",
        "if False:",
    ),
    Mutant(
        "there is no rest after a migration",
        "adaptation.reoptimizer:_waits",
        "if history.migrated_s is not None and",
        "if False and",
    ),
    Mutant(
        "data that has just changed is trusted at once",
        "adaptation.reoptimizer:_with_favourite",
        "look.at_s - history.favourite_s >= STEADY * history.window_s",
        "True",
    ),
    Mutant(
        "plans never come back",
        "adaptation.reoptimizer:_with_favourite",
        "if away_since is not None:",
        "if False:",
    ),
    Mutant(
        "a jump counts as the best plan so far",
        "adaptation.reoptimizer:noted",
        'better = look.best.plan if look.is_better else ""',
        "better = look.best.plan if look.is_better else history.better",
    ),
    Mutant(
        "old epochs count as much as new ones",
        "adaptation.moving:Moving._age",
        "if factor == 1:",
        "if True:",
    ),
    Mutant(
        "sketches do not age",
        "adaptation.moving:Moving._age",
        "sketch *= factor",
        "sketch *= 1",
    ),
    Mutant(
        "gauges add up",
        "adaptation.moving:Moving.add",
        "value * seconds if figure.measure.is_gauge else value",
        "value",
    ),
    Mutant(
        "keys that collide count as equal",
        "epoch.key_sketch:equal_share",
        "equal = (met - pairs / BUCKETS) / (1 - 1 / BUCKETS)",
        "equal = met",
    ),
    Mutant(
        "rows of one stream are pairs",
        "epoch.key_sketch:equal_share",
        "met = (together @ together - sum(sketch @ sketch for sketch in sketches)) / 2",
        "met = together @ together / 2",
    ),
    Mutant(
        "stores that are shared cost something",
        "adaptation.migration_cost:migration_cost",
        "for layout in [new.layouts(stage, slot)[number] for number in numbers]",
        "for layout in new.layouts(stage, slot)",
    ),
]
