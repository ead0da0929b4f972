"""The items of a select list over groups, before anything in them is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from watersmeet.errors import QueryError
from watersmeet.query.expression_words import parsed
from watersmeet.query.fragments import Fragment
from watersmeet.query.selection import cannot_select, without_alias


@dataclass(frozen=True, slots=True)
class SelectText:
    """An item of the select list: its whole text, the expression in it, and the alias."""

    fragment: Fragment
    expression: str
    alias: str | None


def select_text(fragment: Fragment) -> SelectText:
    fragment = fragment.stripped()
    with fragment.drawn():
        tree: Any = parsed(fragment.text)
        inner = tree.this if isinstance(tree, exp.Alias) else tree
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            raise QueryError(
                f"'{fragment.text}' cannot be selected from groups",
                hint="name the columns of GROUP BY and the aggregates",
                error_class="UNGROUPED_COLUMN",
            )
        if not isinstance(inner, exp.Condition | exp.Paren | exp.Filter | exp.WithinGroup | exp.IgnoreNulls):
            raise cannot_select(fragment.text)
    return SelectText(fragment, without_alias(fragment.text, tree), tree.alias if inner is not tree else None)
