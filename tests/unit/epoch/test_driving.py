"""A driver is stopped between two commands; what the sink has got is acknowledged all the same."""

from dataclasses import replace

import pytest

from watersmeet.epoch import protocol
from watersmeet.epoch.driving import Drive
from watersmeet.state.manifest import PlanText, before_first_epoch
from watersmeet.state.spark_log import LogEnd

UNSENT = replace(before_first_epoch(PlanText("(a b)"), 2, ["k"], 8, 2), epoch=3)


class Interpreter:
    """Carries out what a driver does that finds an epoch which is not acknowledged, and is stopped after a command."""

    def __init__(self, stopped_after: type | None = None) -> None:
        self.done: list[type] = []
        self.stopped_after = stopped_after
        answers = {
            protocol.Send: protocol.Sent(),
            protocol.Acknowledge: protocol.Acknowledged(),
            protocol.Look: protocol.Looked(frozenset()),
            protocol.Run: protocol.JobDone(replace(UNSENT, epoch=4)),
            protocol.Commit: protocol.Fenced(),
        }
        self.drive = Drive({kind: self._handler(answer) for kind, answer in answers.items()}, self.is_stopped)

    def _handler(self, answer):
        def carry_out(command):
            self.done.append(type(command))
            return answer

        return carry_out

    def is_stopped(self) -> bool:
        return self.stopped_after in self.done


@pytest.mark.parametrize(
    ("stopped_after", "done"),
    [
        (protocol.Send, [protocol.Send, protocol.Acknowledge]),
        (protocol.Acknowledge, [protocol.Send, protocol.Acknowledge]),
        (protocol.Look, [protocol.Send, protocol.Acknowledge, protocol.Look]),
        (protocol.Run, [protocol.Send, protocol.Acknowledge, protocol.Look, protocol.Run]),
    ],
)
def test_a_stop_comes_before_the_next_command_unless_the_sink_waits_for_its_acknowledgement(stopped_after, done):
    interpreter = Interpreter(stopped_after)
    interpreter.drive.play(protocol.Started(UNSENT, is_acknowledged=False, log=LogEnd()))
    assert interpreter.done == done
    assert interpreter.drive.state.is_closed
