"""Mutants of the aggregation: see `tests/mutants.py`."""

from tests.mutants import Mutant

AGGREGATE_MUTANTS = [
    # accumulators
    Mutant(
        "NULL arguments are counted",
        "engine.accumulators:make",
        "pc.is_valid(values).cast(pa.int64())",
        "pa.array(np.ones(rows, dtype=np.int64))",
    ),
    Mutant(
        "a sum of nothing is 0", "engine.accumulators:_or_null", "pc.greater(known, 0)", "pc.greater_equal(known, 0)"
    ),
    Mutant(
        "NaN is less than numbers",
        "engine.accumulators:_ordered",
        "np.where(np.isnan(plain), np.nan, plain + 0.0)",
        "np.where(np.isnan(plain), -np.inf, plain + 0.0)",
    ),
    Mutant("-0.0 is a value of its own", "engine.accumulators:make", "values = normalise_key(values)", "pass"),
    Mutant(
        "-0.0 is a group of its own",
        "engine.accumulators:accumulate",
        "[normalise_key(key) for key in keys]",
        "list(keys)",
    ),
    Mutant(
        "values are distinct by layer only",
        "engine.accumulators:_united",
        "_, first = group_numbers([pa.array(parents), elements], len(parents))",
        "first = np.arange(len(parents))",
    ),
    Mutant(
        "groups are numbered by their last key",
        "engine.accumulators:group_numbers",
        "numbers * np.int64(size) + codes, len(first) * size",
        "codes, size",
    ),
    Mutant(
        "reduced values are in the order of arrival",
        "engine.accumulators:reduce",
        'order[found.column("group").to_numpy()] = np.arange(count)',
        "order[:] = np.arange(count)",
    ),
    Mutant("means are cut, not rounded", "engine.accumulators:_decimal_mean", "ROUND_HALF_UP", "'ROUND_DOWN'"),
    # groups
    Mutant("NULL keys are zero", "engine.group_store:decoded_keys", "pc.equal(unknown, 1)", "pc.equal(unknown, 2)"),
    Mutant(
        "NULL keys and zero are one group",
        "engine.group_store:encoded_keys",
        "pc.is_null(key).cast(pa.int8())",
        "pa.array(np.zeros(rows, dtype=np.int8))",
    ),
    Mutant(
        "groups are shown without their past", "engine.aggregate:_shown", "runs = [*held, *delta]", "runs = list(delta)"
    ),
    Mutant(
        "a group is divided",
        "engine.group_store:groups_in_parts",
        "may_split_keys=False",
        "may_split_keys=True",
        crashes="the parts of a group are merged again and again",
    ),
    Mutant(
        "merged groups are not combined",
        "engine.group_store:groups_in_parts",
        "yield combined(plan, run)",
        "yield run",
        crashes="several rows of a group do not fit the one row of its keys",
    ),
    Mutant(
        "merged groups forget the newest rows",
        "engine.group_store:groups_in_parts",
        "merge_in_parts(runs,",
        "merge_in_parts(runs[:-1],",
    ),
    Mutant(
        "the group of no rows is not shown",
        "engine.aggregate:_shown",
        "plan.is_global and 0 in task.groups",
        "False",
    ),
    Mutant(
        "every slot shows the group of no rows",
        "engine.aggregate:_shown",
        " and 0 in task.groups",
        "",
    ),
    # windows
    Mutant(
        "a window has one pane less",
        "engine.panes:_windows",
        "starts + np.int64(plan.window.length_us - 1)",
        "starts + np.int64(plan.window.length_us - 2)",
    ),
    Mutant(
        "what leaves a window is not cancelled",
        "engine.panes:_windows",
        "running[begin + some.count] - running[begin]",
        "running[begin + some.count]",
    ),
    Mutant(
        "only the last window of a pane is touched",
        "engine.panes:_containing",
        "(panes - np.int64(length)) // np.int64(slide) + 1",
        "panes // np.int64(slide)",
    ),
    Mutant(
        "windows take in panes that follow them",
        "engine.panes:_containing",
        "(panes - np.int64(length)) // np.int64(slide) + 1",
        "(panes - np.int64(length)) // np.int64(slide)",
    ),
    Mutant(
        "panes are too long",
        "plan.aggregate:pane_of",
        "math.gcd(window.length_us, window.slide_us)",
        "window.slide_us",
    ),
    Mutant(
        "windows close a moment early",
        "engine.panes:_containing",
        "(until_us - length) // slide",
        "(until_us + 1 - length) // slide",
    ),
    Mutant(
        "windows close twice",
        "engine.panes:_containing",
        "(after_us - length) // slide",
        "(after_us - 1 - length) // slide",
    ),
    Mutant(
        "windows close but are not remembered",
        "epoch.after:_closed",
        "return epoch.until_us",
        "return before.closed_us",
    ),
    Mutant(
        "panes are dropped before their last window closes",
        "plan.aggregate:plan_aggregate",
        "span = aggregation.window.length_us if",
        "span = 1 if",
    ),
    Mutant(
        "groups expire by the watermark of the join",
        "epoch.tasks:_task",
        "before.closed_us if groups else before.watermark_us",
        "before.watermark_us",
    ),
    Mutant(
        "complete results are let go",
        "plan.aggregate:plan_aggregate",
        'aggregation.window is not None and mode != "complete"',
        "aggregation.window is not None",
    ),
]
