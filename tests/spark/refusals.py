"""What a user reads when something is refused."""

import re

import pytest

from tests.spark.helpers import start
from watersmeet.errors import QueryError, WatersmeetError
from watersmeet.runtime.spark.stream_join import pieces_of


def refusal(kind, action) -> str:
    with pytest.raises(kind) as caught:
        action()
    assert isinstance(caught.value, WatersmeetError)
    assert not list(re.finditer(r"\bat org\.apache", str(caught.value)))
    return str(caught.value)


def start_refused(join, tmp_path, kind=QueryError) -> str:
    """The error of start(); nothing was left running or made."""
    text = refusal(kind, lambda: start(join, tmp_path / "out", tmp_path / "ck"))
    assert not (tmp_path / "out").exists()
    assert not pieces_of(join).spark.streams.active
    return text
