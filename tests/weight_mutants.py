"""Mutants of rows with weights: see `tests/mutants.py`."""

from tests.mutants import Mutant

WEIGHT_MUTANTS = [
    Mutant(
        "weights are forgotten",
        "engine.combined_rows:_product",
        "found = found * field_of(joined, weight).to_numpy()",
        "pass",
    ),
    Mutant(
        "sums are not multiplied by the weights of others",
        "plan.weights:weighings",
        "tuple(weight for weight in weights if weight.stream != column.stream)",
        "()",
    ),
    Mutant(
        "sums are multiplied by their own weight",
        "plan.weights:weighings",
        "tuple(weight for weight in weights if weight.stream != column.stream)",
        "tuple(weights)",
    ),
    Mutant(
        "rows of different event times are combined",
        "engine.combined_rows:combined_rows",
        "ranks if run.codes is None else run.codes[rows]",
        "ranks",
    ),
    Mutant(
        "a NULL is counted with the combined rows",
        "engine.combined_rows:part_of_rows",
        "None if column is None else 0",
        "None if column is None or part.made == 'known' else 0",
    ),
    Mutant("rows that differ are combined", "engine.combined_rows:combined_rows", ", *others]", "]"),
    Mutant(
        "results of both tracks have the weights of one",
        "plan.weights:_of_both",
        "(*one.weights, *other.weights)",
        "one.weights",
    ),
]
