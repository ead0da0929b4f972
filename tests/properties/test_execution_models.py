"""Results do not depend on the schedule by which nodes run, nor do migrations, thanks to the punctuation (M6)."""

import os

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings

from tests.catching import is_caught
from tests.model_mutants import MODEL_MUTANTS, NOT_SYNCHRONISED
from tests.mutants import Mutant
from tests.queued import EXAMPLES, Case, cases, check, closure, plan_of, query_of
from watersmeet.errors import QueryError
from watersmeet.runtime.execution_models import Model, QueuedJoin, Schedule

DRAWN = max(1, int(os.environ.get("WATERSMEET_EXAMPLES", "60")) // 4)
HOW = settings(max_examples=DRAWN, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
SEARCHED, SEEDS = 12, range(1, 9)
"""In one of twenty drawn cases or so, closure fails without the punctuation. Those of one seed are much alike."""


def each(model: Model) -> str:
    return model.value


@pytest.mark.parametrize("model", Model, ids=each)
def test_results_are_exact_under_any_schedule(model: Model):
    @HOW
    @given(cases(model))
    def exact(case: Case) -> None:
        note(f"{case} {case.query}")
        check(case)

    exact()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_exact(name: str):
    check(EXAMPLES[name])


@pytest.mark.parametrize("mutant", MODEL_MUTANTS, ids=lambda mutant: mutant.name)
def test_mistakes_are_caught(mutant: Mutant):
    assert is_caught(mutant, [lambda case=case: check(case) for case in EXAMPLES.values()])


@pytest.mark.parametrize("model", [Model.SEMI, Model.UN], ids=each)
def test_without_synchronisation_a_result_is_lost(model: Model):
    """The worked example of 15.3.1: a3 b2 c5, by the numbers of the rows."""
    with NOT_SYNCHRONISED.applied(), pytest.raises(AssertionError, match=r"lost .*\(1, 0, 5\)"):
        check(closure(model))


@pytest.mark.parametrize("model", [Model.SEMI, Model.UN], ids=each)
def test_without_synchronisation_some_drawn_case_is_wrong(model: Model):
    assert any(_is_wrong_by_seed(number, model) for number in SEEDS)


def test_totally_synchronised_nodes_need_no_punctuation():
    """Closure holds: nothing waits in a queue."""
    with NOT_SYNCHRONISED.applied():
        check(closure(Model.TOTALLY))


def test_nodes_over_several_keys_are_refused():
    query = query_of(["ab", "bc"], a=4, b=4, c=4)
    with pytest.raises(QueryError, match="one key each"):
        QueuedJoin(query, plan_of(query, "(a b c)"), Schedule(Model.UN))


class _Wrong(Exception):
    pass


def _is_wrong_by_seed(number: int, model: Model) -> bool:
    """Whether closure fails without the punctuation in a drawn case: the same ones in every run."""

    @seed(number)
    @settings(HOW, max_examples=SEARCHED, database=None, phases=[Phase.generate], report_multiple_bugs=False)
    @given(cases(model))
    def search(case: Case) -> None:
        if is_caught(NOT_SYNCHRONISED, [lambda: check(case)]):
            raise _Wrong

    try:
        search()
    except _Wrong:
        return True
    return False
