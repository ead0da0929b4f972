"""Functions that a streaming join refuses: they need many rows, make many rows, or are not deterministic.

A row may be computed again after a failure, so a predicate or result column must give the same answer each time. The
names are those of Spark's function registry (groups `agg_funcs`, `window_funcs`, `generator_funcs`, and the expressions
that are not deterministic or depend on the clock, the session or the task). All others are checked by Spark.

The aggregates that the engine computes (`query/aggregates.py`) may be used in the select list and in HAVING.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlglot
from sqlglot.tokens import TokenType

from watersmeet.errors import QueryError
from watersmeet.query.fragments import at


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES = words(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr count count_if count_min_sketch
    covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg
    hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean measure median
    min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev
    stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg
    try_sum tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance
    """
)
SUPPORTED_AGGREGATES = frozenset({"count", "sum", "min", "max", "avg", "mean"})
WINDOW_FUNCTIONS = words(
    """
    counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    """
)
GENERATORS = words(
    """
    explode explode_outer inline inline_outer posexplode posexplode_outer stack
    """
)
NOT_DETERMINISTIC = words(
    """
    rand random randn randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id
    input_file_name input_file_block_start input_file_block_length now current_timestamp current_date
    current_time curdate localtimestamp current_user session_user user current_catalog current_database
    current_schema current_path reflect java_method try_reflect
    """
)
# Spark takes these without parentheses too.
_BARE = words(
    """
    current_timestamp current_date current_time localtimestamp current_user session_user
    """
)
# With no argument these read the clock.
_CLOCK_WITHOUT_ARGUMENTS = frozenset({"unix_timestamp", "to_unix_timestamp"})


def refuse_unfit_functions(tokens: Sequence[Any], *, aggregates: bool = False) -> None:
    """Raise QueryError for the first function that a join refuses, by name. Aggregates pass only where they are
    allowed. Works on tokens, because the parser may rename a function."""
    for index, token in enumerate(tokens):
        with at(token.start):
            _check_function(tokens, index, aggregates)


def calls_aggregate(text: str) -> bool:
    """Whether a text calls a supported aggregate."""
    tokens = sqlglot.tokenize(text, dialect="spark")
    return any(
        token.text.lower() in SUPPORTED_AGGREGATES
        and token.token_type != TokenType.STRING
        and _is(tokens, index + 1, TokenType.L_PAREN)
        and not _is(tokens, index - 1, TokenType.DOT)
        for index, token in enumerate(tokens)
    )


def _check_function(tokens: Sequence[Any], index: int, aggregates: bool) -> None:
    token, name = tokens[index], tokens[index].text.lower()
    called = _is(tokens, index + 1, TokenType.L_PAREN)
    is_qualified = _is(tokens, index - 1, TokenType.DOT)
    is_name = not called and (is_qualified or token.token_type == TokenType.IDENTIFIER)
    if is_name or token.token_type == TokenType.STRING:
        return
    if called and is_qualified and name in SUPPORTED_AGGREGATES:
        raise _refused("qualified aggregate function", name, f"write {name}(...) without what is before the dot")
    if called and name in ("any", "some") and _is(tokens, index - 1, TokenType.LIKE, TokenType.ILIKE):
        return
    if token.token_type == TokenType.OVER or (called and name in WINDOW_FUNCTIONS):
        raise _refused("window function", name, "rank or number the output of the join instead")
    if called and name in AGGREGATES:
        _check_aggregate(name, aggregates)
    if called and name in GENERATORS:
        raise _refused("generator", name, "explode the stream's DataFrame, or the output of the join")
    if _is_not_deterministic(tokens, index, name, called):
        hint = "its value changes when a row is computed again: add it as a column of the stream's DataFrame"
        raise _refused("non-deterministic function", name, hint)


def _check_aggregate(name: str, allowed: bool) -> None:
    if name not in SUPPORTED_AGGREGATES:
        hint = "there are count, count(DISTINCT ...), sum, min, max and avg: compute others from the output of the join"
        raise _refused("aggregate function", name, hint)
    if not allowed:
        raise QueryError(
            f"aggregate function {name}() cannot be used here",
            hint="aggregates belong in the select list and in HAVING, and not inside one another",
            error_class="UNSUPPORTED_FUNCTION",
        )


def _is_not_deterministic(tokens: Sequence[Any], index: int, name: str, called: bool) -> bool:
    if called and name in _CLOCK_WITHOUT_ARGUMENTS:
        return _is(tokens, index + 2, TokenType.R_PAREN)
    # A bare word can be a column; those the tokenizer knows as functions cannot.
    bare = name in _BARE and tokens[index].token_type != TokenType.VAR
    return bare or (called and name in NOT_DETERMINISTIC)


def _is(tokens: Sequence[Any], index: int, *kinds: Any) -> bool:
    return 0 <= index < len(tokens) and tokens[index].token_type in kinds


def _refused(kind: str, name: str, hint: str) -> QueryError:
    what = f"{kind} {name}() cannot be used in a join" if name != "over" else "OVER (...) cannot be used in a join"
    return QueryError(what, hint=hint, error_class="UNSUPPORTED_FUNCTION")
