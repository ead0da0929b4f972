"""A checksum as the last key: any damage is seen, and who does not know of it reads plain JSON."""

import json

import pytest

from watersmeet.state.damage import Damage
from watersmeet.state.sealed_json import sealed, unsealed

VALUE = {"a": [1, 2, {"crc": 5}], "b": 'x,"crc":7}', "c": None}
TEXT = json.dumps(VALUE).encode()


def test_what_is_sealed_is_plain_json_with_one_more_key():
    value, is_sealed = unsealed(sealed(TEXT))
    assert is_sealed
    assert value == json.loads(sealed(TEXT)) == VALUE | {"crc": value["crc"]}
    assert unsealed(TEXT) == (VALUE, False)


def test_every_flipped_bit_breaks_the_seal():
    whole = sealed(TEXT)
    for bit in range(len(whole) * 8):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << (bit % 8)
        try:
            _, is_sealed = unsealed(bytes(content))
        except Damage:
            continue
        assert not is_sealed, f"bit {bit}"


def test_every_cut_is_damage():
    whole = sealed(TEXT)
    for size in range(len(whole)):
        with pytest.raises(Damage):
            unsealed(whole[:size])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b"5", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_object_is_named(content, says):
    with pytest.raises(Damage, match=says):
        unsealed(content)
