"""JSON objects that end with a checksum of themselves: {..., "crc": CRC-32 of all bytes before its comma}.

Other readers see plain JSON with one more key.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from watersmeet.state.damage import Damage

_SEAL = re.compile(rb',"crc":([0-9]{1,10})\}\Z')
_SEAL_BYTES_MAX = len(b',"crc":4294967295}')


def sealed(text: bytes) -> bytes:
    """A JSON object that is not empty, with its checksum."""
    body = memoryview(text)[:-1]
    return b"".join((body, b',"crc":%d}' % zlib.crc32(body)))


def unsealed(data: bytes) -> tuple[dict[str, Any], bool]:
    """The object, and whether it had a checksum; raises Damage if the checksum is wrong, or if it is not an object."""
    seal = _SEAL.search(data, max(0, len(data) - _SEAL_BYTES_MAX))
    if seal is not None and zlib.crc32(memoryview(data)[: seal.start()]) != int(seal[1]):
        raise Damage("its checksum does not match its bytes")
    try:
        value = json.loads(data)
    except RecursionError:
        raise Damage("it is nested too deeply") from None
    except ValueError:
        raise Damage("it is empty" if not data else "it is not JSON") from None
    if not isinstance(value, dict):
        raise Damage("it is not a JSON object")
    return value, seal is not None
