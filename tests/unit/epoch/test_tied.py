"""In which words it is said that the state and Spark's log do not belong together."""

from dataclasses import dataclass, replace

import pytest

from watersmeet.epoch.tied import batch_difference, log_difference, refused
from watersmeet.state.spark_log import LogEnd, Offsets


@dataclass(frozen=True)
class Ending:
    batch: int | None
    offsets: Offsets | None = None


def offsets(*sources: str, at: int = 0, query: str = "q1") -> Offsets:
    text = "\n".join(("v1", f'{{"batchTimestampMs":{at}}}', *sources))
    return Offsets(query, text, text)


AT_5 = offsets('{"logOffset":5}', '{"t":{"0":17}}')
LAST = Ending(5, AT_5)
SOUND = LogEnd("q1", planned=5, committed=5, offsets=AT_5)
TOPIC = '{"topic":{' + ",".join(f'"{number}":1000{number}' for number in range(30))


@pytest.mark.parametrize(
    ("last", "log"),
    [
        (None, LogEnd()),
        (None, LogEnd("q1", planned=0)),
        (LAST, SOUND),
        (LAST, replace(SOUND, committed=4)),
        (LAST, replace(SOUND, committed=None)),
        (LAST, replace(SOUND, planned=6)),
        (Ending(5), replace(SOUND, offsets=offsets("other"), query="q2")),
        (Ending(None), LogEnd()),
    ],
    ids=["new", "first-planned", "ended", "repeated", "no-commits", "next-planned", "untied", "no-batch"],
)
def test_a_start_after_any_crash_is_sound(last: Ending | None, log: LogEnd):
    assert log_difference(last, log) is None


@pytest.mark.parametrize(
    ("last", "log", "words"),
    [
        (None, replace(SOUND, committed=4), "there is no state, but Spark has run batch 4"),
        (None, LogEnd("q1", 0, 0), "there is no state, but Spark has run batch 0"),
        (LAST, LogEnd(), "the state ends with batch 5, but Spark's log is empty"),
        (LAST, replace(SOUND, planned=4), "the state ends with batch 5, but Spark's log ends with batch 4"),
        (LAST, replace(SOUND, planned=7), "the state ends with batch 5, but Spark has run batch 6"),
        (LAST, replace(SOUND, planned=6, committed=6), "the state ends with batch 5, but Spark has run batch 6"),
        (Ending(5), replace(SOUND, planned=7), "the state ends with batch 5, but Spark has run batch 6"),
        (LAST, replace(SOUND, query="q2"), "Spark's log is that of query q2, the state was made with query q1"),
        (LAST, replace(SOUND, offsets=None), "Spark's log has no offsets of batch 5, with which the state ends"),
        (
            LAST,
            replace(SOUND, query="", offsets=replace(AT_5, query="")),
            "Spark's log is that of query without an id, the state was made with query q1",
        ),
        (
            LAST,
            replace(SOUND, offsets=offsets('{"logOffset":5}', '{"t":{"0":16}}')),
            'batch 5 ends at {"t":{"0":17}} of source 1 in the state, and at {"t":{"0":16}} in Spark\'s log',
        ),
        (
            LAST,
            replace(SOUND, offsets=offsets('{"logOffset":5}', '{"t":{"0":17}}', at=1)),
            "Spark has made another batch 5 than the one in the state",
        ),
        (LAST, replace(SOUND, short_sources=("1",)), "the log of file source 1 ends before the offsets of batch 5"),
        (None, LogEnd("q1", 0, short_sources=("0",)), "the log of file source 0 ends before the offsets of batch 0"),
    ],
)
def test_what_a_start_finds_wrong(last: Ending | None, log: LogEnd, words: str):
    assert log_difference(last, log) == words


def test_long_offsets_are_shown_where_they_differ():
    ours, theirs = (offsets(f'{TOPIC},"30":{number},"31":7}}}}') for number in (123, 456))
    text = batch_difference(Ending(5, ours), 6, theirs, theirs)
    assert text == (
        'batch 5 ends at ...28,"29":100029,"30":123,"31":7}} of source 0 in the state, '
        'and at ...28,"29":100029,"30":456,"31":7}} in Spark\'s log'
    )


def test_the_error_says_how_to_go_on():
    assert str(refused("this and that", "/data/ck")) == (
        "[DIFFERENT_BATCHES] the state and Spark's log do not belong together: this and that. "
        "what can be done, and what it would lose or repeat, is said by: watersmeet repair /data/ck"
    )
