"""The drive: an interpreter carries out the protocol, with one handler per command, one command at a time.

A driver stops between two commands, never within one: `is_stopped` is called before each. `Acknowledge` is still
carried out, or the sink would get the same results again. An exception in a handler becomes a `Failed` event; `GiveUp`
raises it again to the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from watersmeet.epoch import protocol
from watersmeet.epoch.protocol import Acknowledge, Command, Event, Failed, GiveUp, State, Stopped, advance

Handlers = Mapping[type, Callable[[Any], Event | None]]
"""The handlers by type of command. `GiveUp` needs none."""

CARRIED_OUT = (
    protocol.Decide,
    protocol.Run,
    protocol.Commit,
    protocol.Send,
    protocol.Acknowledge,
    protocol.Discard,
    protocol.Look,
    protocol.Sweep,
    protocol.Tell,
)


def handlers_of(interpreter: object) -> Handlers:
    """The methods of an interpreter that carry out commands: `_decide` for `Decide`, and so on."""
    return {command: getattr(interpreter, f"_{command.__name__.lower()}") for command in CARRIED_OUT}


class Drive:
    """The protocol with its state, and the handlers of an interpreter."""

    def __init__(self, handlers: Handlers, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self.state = State()
        self._handlers, self._is_stopped = handlers, is_stopped

    def play(self, event: Event) -> None:
        """Carry out all commands that follow from an event. If the driver gives up, its error is raised."""
        deque(self.steps(event), maxlen=0)

    def steps(self, event: Event) -> Iterator[Command]:
        """The same, step by step: each command is yielded before it is carried out."""
        pending = deque(self._advance(event))
        while pending:
            command = pending.popleft()
            yield command
            if isinstance(command, GiveUp):
                raise command.error
            if self._is_stopped() and not isinstance(command, Acknowledge):
                answer: Event | None = Stopped()
            else:
                try:
                    answer = self._handlers[type(command)](command)
                except Exception as error:
                    answer = Failed(error)
            if answer is not None:
                following = self._advance(answer)
                if self.state.is_closed:
                    pending.clear()
                pending.extendleft(reversed(following))

    def _advance(self, event: Event) -> tuple[Command, ...]:
        self.state, commands = advance(self.state, event)
        return commands
