"""Errors say what and what to do, and survive the way from a worker to the driver."""

import pickle

import pytest

from watersmeet.errors import (
    CheckpointError,
    CorruptSegmentError,
    FencedError,
    OptionError,
    QueryError,
    SinkError,
    WatersmeetError,
)
from watersmeet.query.fragments import Fragment

KINDS = [WatersmeetError, QueryError, OptionError, CheckpointError, CorruptSegmentError, FencedError, SinkError]


def test_text_has_class_message_and_hint():
    error = QueryError("unknown column 'x'", hint="did you mean 'y'?", error_class="UNKNOWN_COLUMN")
    assert str(error) == "[UNKNOWN_COLUMN] unknown column 'x'. did you mean 'y'?"
    assert error.getErrorClass() == error.getCondition() == error.error_class == "UNKNOWN_COLUMN"
    assert error.getMessage() == error.message == "unknown column 'x'"


def test_text_without_hint_ends_after_the_message():
    assert str(FencedError("epoch 7 exists")) == "[FENCED] epoch 7 exists"


def test_hint_stands_below_a_drawing():
    assert str(QueryError("no\n  a\n  ^", hint="try b")) == "[INVALID_QUERY] no\n  a\n  ^\ntry b"


@pytest.mark.parametrize("kind", KINDS)
def test_pickle_keeps_everything(kind):
    error = pickle.loads(pickle.dumps(kind("what", hint="do", error_class="SOME_CLASS")))
    assert (type(error), str(error), error.hint) == (kind, "[SOME_CLASS] what. do", "do")


def test_an_error_with_a_drawing_survives_pickling():
    with pytest.raises(QueryError) as caught, Fragment("x", "a =\n  x", 6).drawn():
        raise QueryError("what", hint="do", error_class="SOME_CLASS", position=0)
    assert str(caught.value) == "[SOME_CLASS] what (line 2, column 3)\n    x\n    ^\ndo"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_every_kind_is_caught_as_watersmeet_error_and_has_its_own_class():
    assert all(issubclass(kind, WatersmeetError) for kind in KINDS)
    assert issubclass(CorruptSegmentError, CheckpointError)
    assert len({kind("x").error_class for kind in KINDS}) == len(KINDS)
