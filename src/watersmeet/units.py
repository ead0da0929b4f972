"""Durations and sizes as people write them ("10 minutes", "512m"), and back; moments as ISO 8601 has them.

Durations follow Spark's interval spellings and are counted in microseconds, like Spark's timestamps; sizes follow
Spark's `byteStringAsBytes` (powers of 1024). Months and years are refused: they have no fixed length.
"""

from __future__ import annotations

import re
from datetime import date

from watersmeet.errors import OptionError

_UNIT_US: dict[str, int] = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "hr": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
    "w": 604_800_000_000,
}
_PLURALS = ("microsecond", "millisecond", "second", "sec", "minute", "min", "hour", "hr", "day", "week")
_UNIT_US |= {f"{unit}s": _UNIT_US[unit] for unit in _PLURALS}
_CALENDAR_UNITS = frozenset(
    {"month", "months", "mon", "mons", "year", "years", "y", "yr", "yrs", "quarter", "quarters"}
)

# What `format_duration` writes: each is read back by `parse_duration_us`.
_NAMED_US = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
)

_TERM = re.compile(r"\s*([+-]?)\s*(\d+)(?:\.(\d+))?\s*([A-Za-z]+)\s*(?:,|$|(?=[\s\d+-]))")
_INT64_MAX = 2**63 - 1
_MARCH_2000 = date(2000, 3, 1).toordinal()

_BYTES = re.compile(r"\s*(\d+)\s*([kmgtp]?)(i?b)?\s*", re.IGNORECASE)
_BYTE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def parse_duration_us(text: str, *, allow_zero: bool = False, allow_negative: bool = False) -> int:
    """Microseconds in an interval text; zero and negative totals only on request."""
    total = _sum_of_terms(text)
    if total < 0 and not allow_negative:
        raise _bad_duration(text, "it is negative")
    if total == 0 and not (allow_zero or allow_negative):
        raise _bad_duration(text, "it is zero")
    if abs(total) > _INT64_MAX:
        raise _bad_duration(text, "it is longer than a timestamp can express")
    return total


def _sum_of_terms(text: str) -> int:
    body = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE).strip()
    if not body:
        raise _bad_duration(text, "it is empty")
    total, position = 0, 0
    while position < len(body):
        term = _TERM.match(body, position)
        if term is None:
            raise _bad_duration(text, f"'{body[position:].strip()}' is not a number with a unit")
        total += _term_us(text, *term.groups())
        position = term.end()
    return total


def _term_us(text: str, sign: str, whole: str, fraction: str | None, unit: str) -> int:
    word = unit.lower()
    if word in _CALENDAR_UNITS:
        raise _bad_duration(text, f"a {word.rstrip('s')} has no fixed length, use days")
    if word not in _UNIT_US:
        raise _bad_duration(text, f"'{unit}' is not a unit of time")
    size = _UNIT_US[word]
    micros = int(whole) * size
    if fraction is not None:
        part, rest = divmod(int(fraction) * size, 10 ** len(fraction))
        if rest:
            raise _bad_duration(text, "it is finer than a microsecond")
        micros += part
    return -micros if sign == "-" else micros


def _bad_duration(text: str, reason: str) -> OptionError:
    return OptionError(
        f"cannot use '{text}' as a duration: {reason}",
        hint="write it like '10 minutes', '1 hour 30 minutes' or '500 ms'",
        error_class="INVALID_DURATION",
    )


def format_duration(us: int) -> str:
    """The shortest exact spelling: 5400000000 -> '1 hour 30 minutes'."""
    if us == 0:
        return "0 seconds"
    sign, rest, terms = ("-" if us < 0 else ""), abs(us), []
    for name, size in _NAMED_US:
        count, rest = divmod(rest, size)
        if count:
            terms.append(f"{sign}{count} {name}{'' if count == 1 else 's'}")
    return " ".join(terms)


def iso_time(micros: int) -> str:
    """Microseconds since 1970 in the form Spark's progress uses: whole milliseconds in UTC, and years of more than four
    digits with their sign. Years before the first are 0000, -0001 and so on, as ISO 8601 counts them."""
    days, ms = divmod(micros // 1000, 86_400_000)
    # 400 years have 146,097 days, so any day lies in a cycle that starts on 1 March of a year that Python knows.
    cycles, day = divmod(days + 719_468, 146_097)
    known = date.fromordinal(_MARCH_2000 + day)
    year = known.year - 2000 + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    (minutes, ms), day_text = divmod(ms, 60_000), f"{known:%m-%d}"
    return f"{sign}{abs(year):04d}-{day_text}T{minutes // 60:02d}:{minutes % 60:02d}:{ms // 1000:02d}.{ms % 1000:03d}Z"


def parse_bytes(text: str) -> int:
    """Bytes in a size text: '512m', '1g', '64kb', '2GiB' or a plain number of bytes."""
    size = _BYTES.fullmatch(text)
    if size is None:
        raise OptionError(
            f"cannot use '{text}' as a size in bytes",
            hint="write a whole number with an optional unit k, m, g or t, like '512m' or '2g'",
            error_class="INVALID_SIZE",
        )
    return int(size[1]) << _BYTE_SHIFT[size[2].lower()]


def format_bytes(count: int) -> str:
    """A size for people, rounded to a tenth: 1610612736 -> '1.5 GiB'."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(size) < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} EiB" if abs(size) < 1024 else "over 1024 EiB"


def format_times(factor: float) -> str:
    """A ratio for people, in three digits at least: 2.5 -> '2.50x'."""
    if factor < 0.01:
        return "<0.01x"
    if factor >= 1e6:
        return ">1,000,000x"
    return f"{factor:.2f}x" if factor < 10 else f"{factor:.1f}x" if factor < 100 else f"{factor:,.0f}x"
