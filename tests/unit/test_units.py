"""Durations and sizes are read as Spark reads them, and refused with the text that was wrong."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import OptionError
from watersmeet.units import format_bytes, format_duration, format_times, iso_time, parse_bytes, parse_duration_us

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 minutes", 600 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("1 hour, 30 minutes", 5400 * SECOND),
        ("5 seconds", 5 * SECOND),
        ("500 milliseconds", 500_000),
        ("2 days", 2 * 86400 * SECOND),
        ("1 week", 7 * 86400 * SECOND),
        ("interval 10 minutes", 600 * SECOND),
        ("INTERVAL 1 Minute", 60 * SECOND),
        ("7 microseconds", 7),
        ("7us", 7),
        ("5ms", 5000),
        ("5s", 5 * SECOND),
        ("5 sec", 5 * SECOND),
        ("5 min", 300 * SECOND),
        ("5m", 300 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1d", 86400 * SECOND),
        ("1.5 seconds", 1_500_000),
        ("1 minute -10 seconds", 50 * SECOND),
    ],
)
def test_durations(text, us):
    assert parse_duration_us(text) == us


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("interval", "it is empty"),
        ("10", "'10' is not a number with a unit"),
        ("minutes", "'minutes' is not a number with a unit"),
        ("10 minutes and", "'and' is not a number with a unit"),
        ("10 parsecs", "'parsecs' is not a unit of time"),
        ("1 month", "a month has no fixed length, use days"),
        ("2 years", "a year has no fixed length, use days"),
        ("0 seconds", "it is zero"),
        ("-1 second", "it is negative"),
        ("0.0000001 seconds", "it is finer than a microsecond"),
        ("999999999999 weeks", "it is longer than a timestamp can express"),
    ],
)
def test_bad_durations_say_why(text, reason):
    with pytest.raises(OptionError) as error:
        parse_duration_us(text)
    assert str(error.value) == (
        f"[INVALID_DURATION] cannot use '{text}' as a duration: {reason}. "
        "write it like '10 minutes', '1 hour 30 minutes' or '500 ms'"
    )


def test_zero_and_negative_on_request():
    assert parse_duration_us("0 seconds", allow_zero=True) == 0
    assert parse_duration_us("-2 seconds", allow_negative=True) == -2 * SECOND
    with pytest.raises(OptionError, match="it is negative"):
        parse_duration_us("-2 seconds", allow_zero=True)


@given(st.integers(min_value=-(10**16), max_value=10**16))
def test_formatted_durations_read_back(us):
    assert parse_duration_us(format_duration(us), allow_zero=True, allow_negative=True) == us


def test_durations_for_people():
    assert format_duration(5400 * SECOND) == "1 hour 30 minutes"
    assert format_duration(0) == "0 seconds"
    assert format_duration(1_500) == "1 millisecond 500 microseconds"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512", 512),
        ("512b", 512),
        ("64k", 64 << 10),
        ("64KB", 64 << 10),
        ("512m", 512 << 20),
        ("2GiB", 2 << 30),
        ("1 g", 1 << 30),
        ("3t", 3 << 40),
    ],
)
def test_sizes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "m", "-1m", "1.5g", "12q", "1 2m"])
def test_bad_sizes_show_the_text_and_an_example(text):
    with pytest.raises(OptionError) as error:
        parse_bytes(text)
    assert str(error.value).startswith(f"[INVALID_SIZE] cannot use '{text}' as a size in bytes. ")
    assert "'512m'" in error.value.hint


def test_sizes_for_people():
    assert [format_bytes(n) for n in (0, 1023, 1536, 3 << 29, 5 << 40, 5 << 50, 5 << 60, 5 << 80)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1.5 GiB",
        "5.0 TiB",
        "5.0 PiB",
        "5.0 EiB",
        "over 1024 EiB",
    ]


def test_ratios_for_people():
    assert [format_times(ratio) for ratio in (0.001, 0.5, 1, 30.44, 1234.5, 1e300)] == [
        "<0.01x",
        "0.50x",
        "1.00x",
        "30.4x",
        "1,234x",
        ">1,000,000x",
    ]


@given(st.datetimes())
def test_moments_of_four_digit_years_are_as_iso_8601_has_them(moment):
    us = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assert iso_time(us) == moment.replace(tzinfo=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (2**63 - 1, "+294247-01-10T04:00:54.775Z"),
        (-(2**63), "-290308-12-21T19:59:05.224Z"),
        (253_402_300_800 * SECOND, "+10000-01-01T00:00:00.000Z"),
        (-62_135_596_800 * SECOND - 1, "0000-12-31T23:59:59.999Z"),
        (-62_167_219_200 * SECOND - 1, "-0001-12-31T23:59:59.999Z"),
    ],
)
def test_moments_of_other_years_have_them_in_full(us, text):
    assert iso_time(us) == text
