"""The public names: a user can import the types, and every public method has a docstring with an example."""

import inspect

import pytest
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import watersmeet
from watersmeet import JoinQueryHandle, JoinStreamWriter, StreamJoin

CLASSES = (StreamJoin, JoinStreamWriter, JoinQueryHandle)
METHODS = [(kind, name) for kind in CLASSES for name in vars(kind) if not name.startswith("_")]
INTERNAL = {"build", "planner", "frames", "attach", "note", "epochs", "pieces"}
"""Names that are for this package alone."""


ABSENT = {"foreach", "clusterBy"}
"""Calls of Spark's writer that ours does not have (docs/from_spark.md)."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(public(DataStreamWriter) - ABSENT))
def test_the_writer_takes_what_spark_takes_in_the_same_order(name):
    theirs, ours = (inspect.signature(getattr(kind, name)) for kind in (DataStreamWriter, JoinStreamWriter))
    assert list(ours.parameters) == list(theirs.parameters)


def test_the_handle_has_the_surface_of_spark():
    assert public(StreamingQuery) <= public(JoinQueryHandle)


def test_what_the_package_exports_is_there():
    assert {getattr(watersmeet, name).__name__ for name in watersmeet.__all__ if name != "__version__"} == {
        *(kind.__name__ for kind in CLASSES),
        "WatersmeetError",
        "sql",
    }
    with pytest.raises(AttributeError, match="has no attribute 'Join'"):
        watersmeet.Join  # noqa: B018


@pytest.mark.parametrize(("kind", "name"), METHODS, ids=[f"{kind.__name__}.{name}" for kind, name in METHODS])
def test_every_public_method_has_a_docstring_with_one_example(kind, name):
    text = inspect.getdoc(getattr(kind, name))
    assert text is not None
    assert text.count(">>>") == 1
    assert name not in INTERNAL
