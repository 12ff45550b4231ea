"""A finished run whose files were changed or cut: every reader says so in one line, or sees what it saw before."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UserError
from cluster.journal import JOURNAL_NAME
from cluster.storage import write_document
from pipeline.commands.audit import audit_run
from pipeline.folder.config import RunConfig
from pipeline.folder.prep_folder import find_prep_folder
from pipeline.folder.pretrain_folder import find_status_folder, read_shape
from pipeline.folder.recipe import load_run_config
from pipeline.folder.run_folder import check_owner, working_folder
from pipeline.folder.stage_record import StageRecord, hash_outputs, read_record, verify_outputs, write_record
from pipeline.folder.status_facts import read_facts
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.checkpoint.retention import best
from pretrain.checkpoint.verify import newest_valid
from pretrain.files import PretrainFiles
from pretrain.inference.folders import checked_model
from pretrain.stage import summary_of
from tests.distributed.workers import Workers, small_config

_NOW_S = 2e9


def run_config() -> RunConfig:
    config = load_run_config("smoke")
    pretrain = small_config(
        num_workers=1, validation={"every_steps": 4, "during_tokens": 128, "final_tokens": 256}
    )
    return config.model_copy(update={"pretrain": pretrain, "seed": 3})


@pytest.fixture(scope="module")
def finished(prep_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 steps with checkpoints of steps 8 and 12, as `permcode pretrain` leaves it."""
    out, config = tmp_path_factory.mktemp("finished") / "run", run_config()
    prep, folder = out / "prep-0123456789ab", out / "pretrain-0123456789ab"
    with working_folder(out, config.model_dump(mode="json")):
        shutil.copytree(prep_folder, prep)
        Workers(config.pretrain, prep, folder, world_size=1).wait()
        write_document(folder / PretrainFiles.PREP, {"folder": prep.name})
    record = StageRecord(
        stage="pretrain", key="0123456789ab", version=1, config={}, inputs={"prep": prep.name}, signature="",
        files=hash_outputs(folder), summary=summary_of(folder), wall_s=1.5,
    )  # fmt: skip
    write_record(folder, record)
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """To be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def stage(out: Path) -> Path:
    return out / "pretrain-0123456789ab"


def _reported(out: Path) -> Any:
    found = find_status_folder(out)
    return read_facts(stage(out), _NOW_S), read_shape(found), found.finished_stages


def _checked(out: Path) -> Any:
    record = read_record(stage(out))
    assert record is not None
    verify_outputs(stage(out), record)
    return record


def _model(folder: Path) -> Any:
    files, description = checked_model(folder)
    weights = files.build(description).state_dict()
    return description, {name: value.sum().item() for name, value in weights.items()}


def _gone_on_from(out: Path) -> Any:
    checkpoints = stage(out) / "checkpoints"
    found = newest_valid(checkpoints, lambda damaged: None)
    assert found is not None
    return found.name, RunIdentity.read(found)


READERS: dict[str, Callable[[Path], Any]] = {
    "status": _reported,
    "skip": _checked,
    "audit": lambda out: audit_run(out, read=False),
    "report": lambda out: summary_of(stage(out)),
    "complete": lambda out: _model(out),
    "resume": _gone_on_from,
    "best": lambda out: best(stage(out) / "checkpoints"),
    "owner": lambda out: check_owner(out, run_config().model_dump(mode="json")),
    "prep": lambda out: find_prep_folder(out).prep.name,
}
FILES = {
    "pretrain-0123456789ab/STAGE.json": ("status", "skip", "audit"),
    "pretrain-0123456789ab/journal.jsonl": ("status", "skip", "audit", "report"),
    "pretrain-0123456789ab/result.json": ("skip", "audit", "report"),
    "pretrain-0123456789ab/prep.json": ("skip", "audit", "prep"),
    "pretrain-0123456789ab/model/config.json": ("skip", "complete"),
    "pretrain-0123456789ab/model/tokenizer.json": ("skip", "complete"),
    "pretrain-0123456789ab/model/model.safetensors": ("skip", "complete"),
    "pretrain-0123456789ab/checkpoints/step-00000012/config.json": ("skip", "status", "resume", "audit"),
    "pretrain-0123456789ab/checkpoints/step-00000012/state.json": ("skip", "resume", "best", "audit"),
    "pretrain-0123456789ab/checkpoints/step-00000012/COMMIT.json": ("skip", "resume"),
    "config.yaml": ("owner", "audit", "status"),
    "prep-0123456789ab/manifest.json": ("audit",),
}
_OTHER_CHECKPOINT = {"resume": ("step-00000008",), "best": ("step-00000008",)}
"""What may be read in the place of a damaged one."""


def flips(data: bytes, num: int, seed: str) -> Iterator[bytes]:
    """The data with one digit or byte changed: at `num` places."""
    draw = random.Random(seed)
    for place in draw.sample(range(len(data)), min(num, len(data))):
        changed = bytearray(data)
        if 48 <= data[place] < 58:
            changed[place] = 48 + (data[place] - 48 + draw.randrange(1, 10)) % 10
        else:
            changed[place] ^= 1 << draw.randrange(8)
        yield bytes(changed)


def check_flips(out: Path, name: str, num: int) -> None:
    path, whole = out / name, (out / name).read_bytes()
    before = {reader: READERS[reader](out) for reader in FILES[name]}
    refused = 0
    for changed in flips(whole, num, name):
        path.write_bytes(changed)
        for reader in FILES[name]:
            try:
                found = READERS[reader](out)
            except UserError as error:
                refused += 1
                text = str(error)
                assert "\n" not in text, (reader, text)
                assert path.name in text or path.parent.name in text, (reader, text)
                continue
            is_other_checkpoint = any(
                checkpoint in str(found) for checkpoint in _OTHER_CHECKPOINT.get(reader, ())
            )
            assert found == before[reader] or is_other_checkpoint, (name, reader, changed)
    path.write_bytes(whole)
    assert refused > 0


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_is_refused_in_one_line_or_changes_nothing(run: Path, name: str) -> None:
    check_flips(run, name, num=20)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_no_byte_of_many_changes_unnoticed(run: Path, name: str) -> None:
    check_flips(run, name, num=300)


def journal_cuts(data: bytes, num_random: int) -> list[int]:
    """The length at the end of every line but the last, and some in between."""
    ends = [place + 1 for place, byte in enumerate(data[:-1]) if byte == ord("\n")]
    return [0, *ends, *random.Random(0).sample(range(len(data)), num_random)]


def test_the_audit_refuses_every_cut_of_a_finished_journal(run: Path) -> None:
    path = stage(run) / JOURNAL_NAME
    data = path.read_bytes()
    for length in journal_cuts(data, num_random=15):
        path.write_bytes(data[:length])
        with pytest.raises(UserError, match=rf"journal\.jsonl is damaged \({length} bytes, {len(data)} when"):
            audit_run(run, read=False)
    path.unlink()
    with pytest.raises(UserError, match=r"journal\.jsonl is missing"):
        audit_run(run, read=False)


def test_the_audit_refuses_a_cut_below_the_newest_checkpoint_of_an_unfinished_run(run: Path) -> None:
    """Here of step 12: the journal must know step 12."""
    for name in ("STAGE.json", "result.json"):
        (stage(run) / name).unlink()
    path = stage(run) / JOURNAL_NAME
    data = path.read_bytes()
    needed = data.index(b"\n", data.index(b'"step":12,')) + 1
    for length in journal_cuts(data, num_random=15):
        path.write_bytes(data[:length])
        if length >= needed:
            assert audit_run(run, read=False).problems == []
            continue
        try:
            problems = audit_run(run, read=False).problems
        except UserError as error:
            problems = [str(error)]
        assert "cut short" in problems[0], length


def test_the_audit_of_an_unfinished_run_looks_past_a_damaged_checkpoint(run: Path) -> None:
    """Training resumes from the one before it, and repeats the steps after that."""
    for name in ("STAGE.json", "result.json"):
        (stage(run) / name).unlink()
    path = stage(run) / JOURNAL_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: next(n for n, line in enumerate(lines) if b'"step":10,' in line) + 1]))
    assert "there is a checkpoint of step 12, but" in audit_run(run, read=False).problems[0]
    weights = stage(run) / "checkpoints" / "step-00000012" / "weights-00000.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert audit_run(run, read=False).problems == []


def test_a_journal_moved_away_lets_training_continue(run: Path, prep_folder: Path) -> None:
    """As the line about a damaged one says."""
    for name in ("STAGE.json", "result.json"):
        (stage(run) / name).unlink()
    (stage(run) / JOURNAL_NAME).rename(run / "old.jsonl")
    config = run_config().pretrain.model_copy(update={"num_steps": 14})
    workers = Workers(config, prep_folder, stage(run), world_size=1, accepted=("num_steps",))
    workers.wait()
    assert newest_valid(stage(run) / "checkpoints", lambda damaged: None) == (
        stage(run) / "checkpoints" / "step-00000014"
    )
