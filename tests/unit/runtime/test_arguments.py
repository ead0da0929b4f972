"""What the builder, the writer and the command line take, and what of it they take for text. What they refuse:
tests/golden/mistakes."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from watersmeet.cli.before_spark import MASTER
from watersmeet.errors import OptionError, SinkError
from watersmeet.runtime.spark import arguments
from watersmeet.runtime.spark.option_places import require_option_of_join, require_options_of_writer
from watersmeet.runtime.spark.options import KNOWN
from watersmeet.runtime.spark.session_settings import options_in
from watersmeet.runtime.spark.sink_places import differences, writing_results
from watersmeet.runtime.spark.sink_tables import Table, require_same_table


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("x", "x"),
        (3, "3"),
        (0.5, "0.5"),
        (True, "true"),
        (Path("a/b"), "a/b"),
        (timedelta(seconds=2), "2 seconds"),
    ],
)
def test_values_of_options(given, taken):
    assert arguments.option_value("name", given) == taken


def test_functions_of_two_arguments():
    class Sender:
        def send(self, results, epoch): ...

    def with_default(results, epoch, more=1): ...

    for function in (lambda results, epoch: None, lambda *given: None, Sender().send, with_default, max):
        assert arguments.batch_function(function) is function
    with pytest.raises(SinkError, match="two arguments"):
        arguments.batch_function(Sender.send)


def test_settings_of_the_session_are_compared_without_case():
    settings = {"spark.watersmeet.MEMORYBUDGET": "1g", "spark.app.name": "x"}
    assert options_in(settings, KNOWN) == {"memoryBudget": "1g"}


def test_no_option_of_the_join_is_taken_for_one_of_another_place():
    for name in KNOWN:
        require_option_of_join(name)
    require_options_of_writer(["checkpointLocation", "path", "header", "compression"], KNOWN, are_all_known=True)
    require_options_of_writer(["plan", "delay"], KNOWN, are_all_known=False)  # a format of its own may have these


MASTERS = ["local", "local[*]", "local[2]", "local[*,3]", "local[2, 3]", "local-cluster[2,1,1024]", "yarn"]


@pytest.mark.parametrize("master", [*MASTERS, "spark://a:7077,b:7077", "k8s://https://host:443", "k8s://host"])
def test_masters(master):
    assert MASTER.fullmatch(master)


@pytest.mark.parametrize("master", ["lcoal", "local[]", "local[0]", "local[two]", "local2", "spark", "spark://", ""])
def test_masters_that_are_none(master):
    assert not MASTER.fullmatch(master)


def columns(*named, of=None, nullable=True):
    """A schema of columns like `k int`, and of one that is a list."""
    schema = StructType()
    for each in named:
        schema = schema.add(*each.split(), nullable=nullable)
    return schema if of is None else schema.add("list", ArrayType(of, containsNull=nullable))


def test_columns_are_compared_without_case_order_and_nullability():
    there = columns("v string", "K integer", of=IntegerType(), nullable=False)
    ours = columns("k integer", "v string", of=IntegerType())
    assert differences(there, ours) == []
    ours = columns("k long", "w integer", of=StringType())
    assert differences(there, ours) == [
        "k is int there and bigint in the results",
        "w is only in the results",
        "list is array<int> there and array<string> in the results",
        "v is not in the results",
    ]
    assert differences(there, ours, untyped=["k", "list"])[0] == "w is only in the results"


def test_a_table_of_csv_files_must_have_the_order_of_the_results():
    ours = columns("k integer", "day date", "v string")
    in_order = Table("t", "csv", "/t", ("day",), columns("k integer", "v string", "day date"))
    require_same_table(in_order, None, ours, ("day",))
    otherwise = Table("t", "csv", "/t", ("day",), columns("v string", "k integer", "day date"))
    with pytest.raises(SinkError, match="their order is v, k, day there"):
        require_same_table(otherwise, "csv", ours, ("day",))


def test_what_the_system_has_against_the_folder_of_results_is_told():
    with (
        pytest.raises(SinkError, match="cannot write results to /proc/results: "),
        writing_results(Path("/proc/results")),
    ):
        Path("/proc/results").mkdir()


def test_an_option_that_cannot_be_text():
    for given in (None, [1], {"a": 1}, object):
        with pytest.raises(OptionError, match="option name must be text or a number"):
            arguments.option_value("name", given)
