"""A check of lending: every stage keeps to its share, and the shares on a host add up to what it may hold at most."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.epoch.kinds import Epoch
from watersmeet.epoch.task import SlotReport
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import MEMORY_BYTES


@contextmanager
def shares_checked() -> Iterator[None]:
    """Check all epochs that coordinators note."""
    note = Coordinator.note

    def checked(self: Coordinator, epoch: Epoch, after: Manifest, reports: Sequence[SlotReport]) -> None:
        given = self.memory_for(epoch)
        note(self, epoch, after, reports)
        if given is not None and self.memory is not None and reports:
            _check_kept(given.by_slot, reports)
            _check_promised(self, reports)

    with patch.object(Coordinator, "note", checked):
        yield


def _check_kept(given: Sequence[Sequence[int]], reports: Sequence[SlotReport]) -> None:
    for report in reports:
        held, share = report.counts.of(MEMORY_BYTES), given[report.slot][report.stage]
        assert held <= share, f"stage {report.stage} of slot {report.slot} holds {held}, and its share was {share}"


def _check_promised(coordinator: Coordinator, reports: Sequence[SlotReport]) -> None:
    """Memory is lent within hosts: it is promised once, and its sum is that of the budgets."""
    last = {report.slot: report.worker.host for report in reports}
    promised: defaultdict[str, int] = defaultdict(int)
    held: defaultdict[str, int] = defaultdict(int)
    for report in reports:
        promised[last[report.slot]] += coordinator.memory.by_slot[report.slot][report.stage]
        held[last[report.slot]] += report.counts.of(MEMORY_BYTES)
    for host, promise in promised.items():
        # A slot that comes from elsewhere has told what it holds there.
        budget = coordinator.budget * sum(at == host for at in last.values())
        assert promise <= max(budget, held[host]), f"{promise} bytes of {host} are promised, and it may hold {budget}"
