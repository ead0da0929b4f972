"""The table of options: every entry is a field, has a default that can be read, and is what documents and help say."""

import dataclasses
import re
from pathlib import Path

import pytest

from watersmeet.adaptation.spill_policies import largest, policy_named
from watersmeet.cli.before_spark import check_options
from watersmeet.cli.parser import make_parser
from watersmeet.errors import OptionError
from watersmeet.runtime.spark.options import KNOWN, JoinOptions, option_name, read_options

ROOT = Path(__file__).parents[3]


def test_every_option_is_one_field_and_every_field_one_option():
    fields = sorted(field.name for field in dataclasses.fields(JoinOptions))
    assert sorted(option.field for option in KNOWN.values()) == fields


def test_defaults():
    options = read_options({}, parallelism=3)
    assert (options.slots, options.partitions, options.plan) == (3, 256, "auto")
    assert (options.cpu_budget, options.exploration_s, options.spill_fraction) == (1.0, 0.1, 0.3)
    assert options.spill is policy_named("global-output-penalty")
    assert (options.spill_upkeep, options.memory_location) == ("ewma", "/dev/shm")
    assert (options.confidence, options.expected_rows, options.idle_timeout_ms) == (None, {}, None)


def test_given_values_are_read():
    given = {
        "partitions": "8",
        "memoryBudget": "1m",
        "idleTimeout": "2 seconds",
        "expectedRows": "a=1, b=20",
        "spill": "OFF",
    }
    options = read_options(given, parallelism=100)
    assert (options.slots, options.partitions) == (8, 8)  # no more slots than partition groups
    assert (options.memory_budget_bytes, options.idle_timeout_ms) == (1 << 20, 2000)
    assert (options.expected_rows, options.spill) == ({"a": 1, "b": 20}, None)


def test_a_policy_may_be_a_function():
    assert read_options({"spill": largest}, 1).spill is largest


def test_a_join_with_intervals_takes_no_policy():
    read_options({"confidence": "0.9"}, 1)
    read_options({"confidence": "0.9", "spill": "off"}, 1)
    with pytest.raises(OptionError, match="confidence and spill exclude each other"):
        read_options({"confidence": "0.9", "spill": "largest"}, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slots": "9", "partitions": "8"}, "option slots must be a whole number from 1 to 8, not '9'"),
        ({"slots": "two"}, "option slots must be a whole number from 1 to 256, not 'two'"),
        ({"partitions": "0"}, "option partitions must be a whole number from 1 to 65536, not '0'"),
        ({"cpuBudget": "inf"}, "option cpuBudget must be a number more than 0, not 'inf'"),
        ({"spillFraction": "nan"}, "spillFraction must be a number more than 0 and at most 1, not 'nan'"),
        ({"confidence": "1"}, "option confidence must be a number from 0.5 to 0.999, not '1'"),
        ({"expectedRows": "a=x"}, "option expectedRows cannot be read at 'a=x'"),
        ({"explorationTime": "soon"}, "cannot use 'soon' as a duration"),
        ({"spillUpkeep": "emwa"}, "unknown spill upkeep 'emwa'"),
    ],
)
def test_what_cannot_be_read_is_refused(given, message):
    """Also by the command line, which asks before Spark is started."""
    with pytest.raises(OptionError, match=re.escape(message)):
        read_options(given, 1)
    with pytest.raises(OptionError, match=re.escape(message)):
        check_options(list(given.items()), {})


def test_settings_of_the_session_bound_options_of_the_command_line():
    check_options([("SLOTS", "300")], {"spark.watersmeet.partitions": "512", "spark.ui.enabled": "false"})
    with pytest.raises(OptionError, match="from 1 to 256"):
        check_options([("slots", "300")], {})


def test_names_are_case_insensitive():
    assert option_name("MEMORYBUDGET") == "memoryBudget"
    with pytest.raises(OptionError, match=r"unknown option 'memoryBuget'.*did you mean 'memoryBudget'"):
        option_name("memoryBuget")


@pytest.mark.parametrize(("document", "of"), [("README.md", ""), ("docs/queries.md", " | join")])
def test_documents_have_the_table(document, of):
    text = (ROOT / document).read_text()
    table = text[text.index("\n## Options\n") :].split("\n## ", 2)[1]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    shown = [option for option in KNOWN.values() if of or not option.is_special]
    expected = [f"| `{option.name}`{of} | {option.default_text} | {option.meaning} |" for option in shown]
    assert [row for row in rows if " | writer | " not in row] == expected


@pytest.mark.parametrize("command", ["run", "explain"])
def test_help_has_the_table(command, capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args([command, "--help"])
    text = capsys.readouterr().out
    for option in KNOWN.values():
        assert re.search(rf"^  {option.name} +{re.escape(option.meaning.replace('`', ''))}$", text, re.MULTILINE)
        assert f"default: {option.default_text.replace('`', '')}\n" in text


@pytest.mark.parametrize(
    ("given", "interval_s"), [({}, None), ({"reoptimize": "AUTO"}, None), ({"reoptimize": "30 seconds"}, 30.0)]
)
def test_a_running_query_is_optimised_unless_it_is_off(given, interval_s):
    found = read_options(given, 2).reoptimize
    assert found.interval_s == interval_s
    assert found.is_given == bool(given)
    assert read_options({"reoptimize": "off"}, 2).reoptimize is None


def test_a_tree_that_the_user_names_is_left_alone_unless_asked():
    assert read_options({"plan": "((a b) c)"}, 2).reoptimize is None
    assert read_options({"plan": "((a b) c)", "reoptimize": "auto"}, 2).reoptimize is not None
    assert read_options({"plan": "mjoin"}, 2).reoptimize is not None


def test_wrong_values_of_reoptimize_and_approval_are_refused():
    with pytest.raises(OptionError, match="option reoptimize"):
        read_options({"reoptimize": "sometimes"}, 2)
    with pytest.raises(OptionError, match="approval"):
        read_options({"approval": "maybe"}, 2)
    assert read_options({"approval": "ask"}, 2).approval
