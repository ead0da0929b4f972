"""A manifest whose checksum is right may still be wrong: whatever stands in it, it is refused in words, or it is used
as it is; and no name in it leads out of its folder."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.state.test_format_1 import CASES, old_value
from tests.unit.state.test_manifest_json import full
from watersmeet.errors import CheckpointError
from watersmeet.state.damage import Damage
from watersmeet.state.manifest import Manifest
from watersmeet.state.manifest_json import from_value, read_value, to_json
from watersmeet.state.sealed_json import sealed

ODD: tuple[Any, ...] = ("x", "", "../../x", -1, 1 << 70, 10**30, 1.5, True, None, [], {}, [[]], {"a": 1}, ["x"], [None])


def value_of() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(to_json(full()))
    del value["crc"]
    return value


def read(value: dict[str, Any]) -> Manifest:
    return from_value(read_value(sealed(json.dumps(value).encode())))


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value within."""
    if at:
        yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from places(inner, (*at, name))


def changed(value: dict[str, Any], at: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    found = inner = copy.deepcopy(value)
    for name in at[:-1]:
        inner = inner[name]
    change(inner, at[-1])
    return found


def test_every_value_may_be_odd_or_missing():
    """Refused, or a manifest: never anything else. Most are refused."""
    value, tried, refused = value_of(), 0, 0
    for at in places(value):
        changes = [lambda inner, name, odd=odd: inner.__setitem__(name, odd) for odd in ODD]
        changes.append(lambda inner, name: inner.__delitem__(name))
        for change in changes:
            tried += 1
            try:
                read(changed(value, at, change))
            except (Damage, CheckpointError):
                refused += 1
    assert tried > 3000
    assert refused > 0.8 * tried


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.folder)
def test_so_may_those_of_format_1(case, tmp_path):
    value = old_value(case.copied(tmp_path))
    value["totals"] = dict(list(value["totals"].items())[:2])
    value["extents"] = [[slot[:1] for slot in stage] for stage in value["extents"]]
    for at in places(value):
        for odd in ODD:
            data = json.dumps(changed(value, at, lambda inner, name, odd=odd: inner.__setitem__(name, odd))).encode()
            try:
                found = read_value(data)
            except (Damage, CheckpointError):
                continue
            assert found["epoch"] >= -1


def replaced(*at: Any, by: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda value: changed(value, at, lambda inner, name: inner.__setitem__(name, by))


def shortened(*at: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda value: changed(value, at, lambda inner, name: inner[name].pop())


NAME = "4-0-0-abc-0.seg"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (replaced("segments", "name", by="../../../x"), "'../../../x', not the name of a segment"),
        (replaced("segments", "name", by="/etc/passwd"), "'/etc/passwd', not the name of a segment"),
        (replaced("segments", "name", by=f"{NAME}\n"), "not the name of a segment"),
        (replaced("segments", "name", by=f"{NAME}\0"), "not the name of a segment"),
        (replaced("segments", "name", by=f"{NAME} {NAME}"), "segments.name has a name twice"),
        (replaced("segments", "name", by=f"{NAME}  {NAME}"), "segments.name[1] is '', not the name of a segment"),
        (replaced("outbox", "files", 0, 0, by="../part-0.parquet"), "not the name of a file of results"),
        (replaced("outbox", "place", by="elsewhere"), "outbox.place is 'elsewhere', not one of sink, checkpoint"),
        (shortened("segments", "crc"), "segments.crc has another length than segments.name"),
        (shortened("extents", "rows"), "extents.rows has another length than the columns beside it"),
        (shortened("closed", "since"), "closed.since has another length than the columns beside it"),
        (replaced("extents", "segment", 0, by=99), "extents.segment names something that does not exist"),
        (replaced("extents", "segment", 0, by=-1), "extents.segment[0] is -1, not a whole number from 0"),
        (replaced("pieces", by=[999]), "pieces names something that does not exist"),
        (replaced("closed", "extent", 0, by=999), "closed.extent names something that does not exist"),
        (shortened("held"), "held is of 2 slots, placement of 3"),
        (replaced("held", 0, 0, 0, by=99), "held names something that does not exist"),
        (replaced("held", 0, 0, 1, by=99), "held has another number of extents"),
        (replaced("groups", "of", 0, 0, by=99), "groups.of names something that does not exist"),
        (replaced("groups", "of", 0, 1, by=1 << 40), "groups.of has another number of extents"),
        (replaced("groups", "edges", 0, by=[3, 1]), "groups.edges[0] is not a list of ranges"),
        (replaced("groups", "edges", 0, by=[3]), "groups.edges[0] is not a list of ranges"),
        (replaced("stores", 0, 1, by="other"), "stores names keys that placement does not have: other"),
        (replaced("placement", "slots", by=1), "names something that does not exist"),
        (replaced("epoch", by=1 << 50), "epoch is 1125899906842624, not a whole number from -1 to 999999999999"),
        (replaced("features", by="checked"), "features is 'checked', not a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(change, says):
    with pytest.raises(Damage) as refused:
        read(change(value_of()))
    assert says in str(refused.value)


def test_a_placement_cannot_fill_the_memory():
    value = value_of()
    key = next(iter(value["placement"]["keys"]))
    for pairs in ([[0, 1 << 60]], [[0, 1 << 16]] * 100_000):
        value["placement"]["keys"][key] = pairs
        with pytest.raises(Damage):
            read(value)


def test_manifests_without_a_checksum_still_open():
    """Of a build before there were any; one that says that it has one must have it."""
    value = value_of() | {"features": []}
    assert from_value(read_value(json.dumps(value).encode())) == full()
    with pytest.raises(Damage, match="its checksum is missing"):
        read_value(json.dumps(value_of()).encode())
