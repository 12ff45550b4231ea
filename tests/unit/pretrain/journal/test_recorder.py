"""An attempt leaves its beginning in the journal and beats while it lasts."""

import time
from pathlib import Path

from cluster.heartbeat import last_beat_s, process_started_s
from cluster.journal import Journal, read_journal
from pretrain.files import PretrainFiles
from pretrain.journal.recorder import recorded_attempt


def test_every_attempt_says_when_its_process_began_and_when_the_one_before_was_last_seen(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    with recorded_attempt(journal, tmp_path):
        pass
    beat_s = last_beat_s(tmp_path / PretrainFiles.HEARTBEAT)
    with recorded_attempt(journal, tmp_path):
        assert last_beat_s(tmp_path / PretrainFiles.HEARTBEAT) != beat_s
    first, second = read_journal(tmp_path / "journal.jsonl")
    assert first.name == second.name == "attempt"
    assert first.facts["process_started_s"] == process_started_s() < time.time()
    assert (first.facts["previous_beat_s"], second.facts["previous_beat_s"]) == (None, beat_s)
