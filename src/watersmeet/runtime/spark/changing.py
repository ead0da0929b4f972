"""The driver of a query whose checkpoint is of another one: the state is changed first, at once or once approved.

While it waits for an approval, nothing is read or written, and micro-batches wait. A stop ends the wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.outside import Outside, Stopped, plain_errors
from watersmeet.state.requests import APPROVE, take_requests

POLL_S = 0.2


class Question:
    """Whether a query may be changed. The handle answers, or a request in the checkpoint."""

    def __init__(self, reason: str, requests: Path) -> None:
        self._reason, self._requests = reason, requests
        self._answer = threading.Event()

    @property
    def pending(self) -> Mapping[str, Any] | None:
        """What is asked; None once it is approved."""
        return None if self._answer.is_set() else {"kind": "changeQuery", "reason": self._reason}

    def approve(self) -> None:
        self._answer.set()

    def await_answer(self, is_stopped: Callable[[], bool]) -> None:
        """Wait for the approval; raises Stopped if the query is stopped before."""
        while not self._answer.wait(POLL_S):
            if is_stopped():
                raise Stopped()
            if APPROVE in take_requests(self._requests):
                self.approve()


def asked(reason: str, requests: Path) -> Question:
    """A new question. Requests that were made before are no answers to it."""
    take_requests(requests)
    return Question(reason, requests)


class ChangingDriver(EpochDriver):
    """Changes the query of the checkpoint before its first epoch."""

    def __init__(
        self,
        plan: JoinPlan,
        outside: Outside,
        coordinator: Coordinator,
        change: Callable[[], None],
        question: Question | None = None,
    ) -> None:
        """`change` makes the state of the checkpoint that of the new query; it waits for the answer to a question."""
        self._change: Callable[[], None] | None = change
        self._question = question
        super().__init__(plan, outside, coordinator)

    def recover(self) -> None:
        with self.gate:
            self.prepare()
            super().recover()

    def prepare(self) -> None:
        """Change the query, once. After a failure, every later call raises that failure."""
        with self.gate:
            if self._change is None:
                return
            if self.is_stopped:
                raise self._cause or Stopped()
            try:
                if self._question is not None:
                    self._question.await_answer(lambda: self.is_stopped)
                with plain_errors():
                    self._change()
            except Exception as error:
                self._cause, self.is_stopped = error, True
                raise
            self._change = None
            if (kept := self._outside.checkpoint.read_statistics()) is not None:
                self.coordinator.restore(kept)
            self._begin()
