"""The audit of runs that were killed, resized and rewound, and of tampered journals."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.journal import JournalRecord
from data_prep.finished.prepared import open_prepared
from pipeline.commands.audit import audit_lines
from pretrain.audit import DataHistory, audit, check_digests, read_history, step_digest
from pretrain.data.lanes import LaneReader
from pretrain.health.rewinds import Rewind, Rewinds
from pretrain.journal.replay import SurvivingStep
from tests.unit.data_prep.finished.written import Document, write_prepared

LANES, SEGMENT_TOKENS = 3, 16


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> LaneReader:
    return reader_of(tmp_path_factory.mktemp("prep"), num_lines=3)


def reader_of(folder: Path, num_lines: int) -> LaneReader:
    def document(number: int) -> Document:
        return Document(
            f"r{number % 3}",
            f"m{number}.py",
            f"value_{number} = {number} + {number}\n" * (number + num_lines),
        )

    blocks = [[document(3 * number + k) for k in range(3)] for number in range(4)]
    layout = {"train": [blocks], "validation": [[[document(1)]]], "test": [[[document(2)]]]}
    prep = write_prepared(folder, layout)
    return LaneReader(open_prepared(prep), "train", LANES, SEGMENT_TOKENS, seed=1)


class Training:
    """Writes the journal that a run would write."""

    def __init__(self, reader: LaneReader, every_steps: int) -> None:
        self.reader, self.every_steps = reader, every_steps
        self.records: list[JournalRecord] = []
        self.rewinds = Rewinds()
        self.step, self.cursor, self.attempt, self.corpus = 0, 0, 1, "first"
        self.checkpoints = {0: 0}
        self.start()

    def event(self, name: str, **facts: object) -> None:
        self.records.append(JournalRecord(kind="event", time_s=0.0, name=name, facts=facts))

    def start(self) -> None:
        facts = {"step": self.step, "cursor": self.cursor, "corpus": self.corpus}
        self.event("start", attempt=self.attempt, **facts)

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            facts = {"cursor": self.cursor, "digest": step_digest(self.reader, self.cursor), "applied": True}
            self.step, cursor = self.step + 1, self.cursor
            record = JournalRecord(
                kind="step", time_s=0.0, step=self.step, metrics={"loss": 1.0}, facts=facts
            )
            self.records.append(record)
            self.cursor = self.rewinds.next_cursor(cursor)
            if self.step % self.every_steps == 0:
                self.checkpoints[self.step] = self.cursor
                self.event("checkpoint", step=self.step, cursor=self.cursor)

    def kill(self, forgets_newest: bool) -> None:
        """The newest checkpoint may turn out to be damaged."""
        if forgets_newest and len(self.checkpoints) > 1:
            del self.checkpoints[max(self.checkpoints)]
        self.attempt += 1
        self._back_to(max(self.checkpoints))
        self.start()

    def change_corpus(self, corpus: str, reader: LaneReader) -> None:
        """With the next kill."""
        self.corpus, self.reader = corpus, reader

    def rewind(self, patience_steps: int) -> None:
        first = self.step - patience_steps + 1
        targets = [step for step in self.checkpoints if step < first]
        if first < 1 or not targets:
            return
        made = {record.step: record.facts["cursor"] for record in self.records if record.kind == "step"}
        to_step, window = max(targets), (made[first], made[self.step] + 1)
        self.rewinds = self.rewinds.with_one_more(Rewind(self.step, to_step, *window, "a spike"))
        self.checkpoints = {step: cursor for step, cursor in self.checkpoints.items() if step <= to_step}
        self.event("rewind", to_step=to_step, skipped_from_cursor=window[0], skipped_to_cursor=window[1])
        self._back_to(to_step)

    def _back_to(self, step: int) -> None:
        self.step, self.cursor = step, self.rewinds.first_from(self.checkpoints[step])


actions = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.integers(1, 9)),
        st.tuples(st.just("kill"), st.booleans()),
        st.tuples(st.just("rewind"), st.integers(1, 3)),
    ),
    max_size=10,
)


@settings(max_examples=60)
@given(actions=actions, every_steps=st.integers(1, 5))
def test_whatever_happens_to_a_run_its_books_balance(
    reader: LaneReader, actions: list[tuple[str, int]], every_steps: int
) -> None:
    training = Training(reader, every_steps)
    for name, argument in actions:
        getattr(training, name)(argument)
    training.train(2)
    history = read_history(training.records)
    found = audit(history, reader)
    assert found.problems == []
    assert (found.tokens_lost, found.tokens_repeated) == (0, 0)
    assert found.num_steps == training.step
    assert found.tokens_consumed == training.step * LANES * SEGMENT_TOKENS
    assert list(check_digests(history, reader, list(history.steps))) == []
    read = [made.cursor for made in history.steps.values()]
    passed = {c for start, stop in history.skipped for c in range(start, stop)}
    assert sorted({*read, *(c for c in passed if c < read[-1])}) == list(range(read[-1] + 1))


def tampered(reader: LaneReader) -> Iterator[tuple[str, DataHistory]]:
    """Yield tampered histories with the problem that the audit must report."""

    def honest() -> DataHistory:
        training = Training(reader, every_steps=5)
        training.train(12)
        return read_history(training.records)

    lost = honest()
    for step in range(7, 13):
        lost.steps[step] = at_cursor(lost.steps[step], lost.steps[step].cursor + 1)
    yield "data step 6 was consumed by no step", lost
    twice = honest()
    twice.steps[12] = at_cursor(twice.steps[12], 10)
    yield "data step 10 was consumed more than once", twice
    training = Training(reader, every_steps=5)
    training.train(12)
    yield "step 8 follows step 6", read_history([record for record in training.records if record.step != 7])
    training.event("start", attempt=2, step=14, cursor=14)
    yield "attempt 2 starts after step 14", read_history(training.records)
    again = Training(reader, every_steps=5)
    again.train(7)
    again.kill(forgets_newest=False)
    again.train(3)
    again.records[-1].facts["digest"] += 1
    again.records[-2].facts["digest"] += 1
    yield "step 7 read other tokens when it was repeated", read_history(again.records)
    moved = honest()
    moved.checkpoints[10] = 9
    yield "the checkpoint of step 10 continues at data step 9", moved


def at_cursor(made: SurvivingStep, cursor: int) -> SurvivingStep:
    return replace(made, facts=made.facts | {"cursor": cursor})


def test_what_was_tampered_with_is_reported(reader: LaneReader) -> None:
    for said, history in tampered(reader):
        problems = audit(history, reader).problems
        assert any(said in problem for problem in problems), (said, problems)


def test_a_step_that_read_other_tokens_than_the_shards_hold_is_found(reader: LaneReader) -> None:
    training = Training(reader, every_steps=5)
    training.train(4)
    training.records[3].facts["digest"] ^= 1
    history = read_history(training.records)
    assert audit(history, reader).problems == []
    assert [text[:7] for text in check_digests(history, reader, [1, 2, 3, 4])] == ["step 3:"]


def test_the_tail_of_an_epoch_is_accounted_for(reader: LaneReader) -> None:
    training = Training(reader, every_steps=5)
    training.train(reader.steps_per_epoch + 1)
    found = audit(read_history(training.records), reader)
    assert found.epochs_begun == 2
    assert found.tail_tokens == reader.num_tokens - reader.steps_per_epoch * LANES * SEGMENT_TOKENS > 0


@pytest.fixture(scope="module")
def other_reader(tmp_path_factory: pytest.TempPathFactory) -> LaneReader:
    return reader_of(tmp_path_factory.mktemp("other"), num_lines=4)


def test_after_an_accepted_change_of_the_corpus_the_steps_before_it_cannot_be_read_again(
    reader: LaneReader, other_reader: LaneReader
) -> None:
    training = Training(reader, every_steps=5)
    training.train(8)
    training.change_corpus("other", other_reader)
    training.kill(forgets_newest=False)
    training.train(2)
    training.kill(forgets_newest=False)
    training.train(3)
    history = read_history(training.records)
    found = audit(history, other_reader)
    assert (found.problems, found.num_incomparable_steps) == ([], 5)
    assert history.comparable_steps == [6, 7, 8]
    assert list(check_digests(history, other_reader, history.comparable_steps)) == []
    assert len(list(check_digests(history, other_reader, list(history.steps)))) == 5


@pytest.mark.parametrize("way", ["set back", "further back"])
def test_steps_made_of_another_corpus_than_before_may_read_other_tokens(
    reader: LaneReader, other_reader: LaneReader, way: str
) -> None:
    training = Training(reader, every_steps=3)
    training.train(8)
    training.change_corpus("other", other_reader)
    training.kill(forgets_newest=False)
    training.train(2)
    if way == "set back":
        training.change_corpus("first", reader)
    training.kill(forgets_newest=way == "further back")
    training.train(6)
    history = read_history(training.records)
    assert audit(history, training.reader).problems == []
    assert history.comparable_from_step == (7 if way == "set back" else 4)
    assert list(check_digests(history, training.reader, history.comparable_steps)) == []


def test_a_kill_under_a_changed_corpus_excuses_no_other_tokens(
    reader: LaneReader, other_reader: LaneReader
) -> None:
    training = Training(reader, every_steps=3)
    training.train(4)
    training.change_corpus("other", other_reader)
    training.kill(forgets_newest=False)
    training.train(4)
    training.kill(forgets_newest=False)
    training.train(2)
    training.records[-2].facts["digest"] += 1
    assert read_history(training.records).problems == [
        "step 7 read other tokens when it was repeated after a kill"
    ]


def test_the_audit_says_which_steps_it_cannot_hold_against_the_shards(reader: LaneReader) -> None:
    training = Training(reader, every_steps=5)
    training.train(6)
    training.corpus = "other"
    training.kill(forgets_newest=False)
    training.train(2)
    text = "\n".join(audit_lines(audit(read_history(training.records), reader)))
    assert "other corpus    5 steps" in text
