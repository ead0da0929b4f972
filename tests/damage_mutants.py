"""Mutants of the checks that a checkpoint goes through: see `tests/mutants.py`; and the attack that must show each."""

from tests.mutants import Mutant

DAMAGE_MUTANTS = {
    Mutant("links are followed", "state.plain_files:_opened", "flags | _SAFE", "flags"): (
        "acknowledged", "lock", "link to a file outside",
    ),
    Mutant("files with another name are written to", "state.plain_files:_opened", "status.st_nlink > 1", "False"): (
        "acknowledged", "lock", "hard link to a file outside",
    ),
    Mutant("the log goes on in another's file", "state.event_log:EventLog._mend", "set_aside(self.path)", "pass"): (
        "acknowledged", "events.jsonl", "hard link to a file outside",
    ),
    Mutant("a checksum is not looked at", "state.sealed_json:unsealed", "!= int(seal[1])", "is None"): (
        "acknowledged", "last manifest", "a bit flipped",
    ),
    Mutant("a manifest of another epoch passes", "state.checkpoint:Checkpoint._last_value", '!= last', "== -5"): (
        "unsent", "last manifest", "an older copy",
    ),
    Mutant("a missing manifest goes unnoticed", "state.checkpoint:Checkpoint._last_value", "if sent >", "if -9 >"): (
        "acknowledged", "last manifest", "deleted",
    ),
    Mutant("results are sent unread", "state.outbox:require_whole", "if reads and", "if False and"): (
        "unsent", "results", "a bit flipped",
    ),
    Mutant("an acknowledgement is taken from a link", "state.checkpoint:Checkpoint.acknowledge",
           "plain_status(before)", "pass"): (
        "unsent", "acknowledgement", "link to a file outside",
    ),
}  # fmt: skip
