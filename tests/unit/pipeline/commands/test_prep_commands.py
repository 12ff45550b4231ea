"""inspect, trace and forget from the command line, on a run folder with a finished prep stage."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.storage import sha256_file
from data_prep.finished.prepared import open_prepared
from pipeline.cli import app
from pipeline.folder.graph import Stage, plan
from pipeline.folder.recipe import load_run_config
from pipeline.folder.run_folder import config_text
from pipeline.folder.stage_record import StageRecord, hash_outputs, read_record, verify_outputs, write_record
from pretrain.data.lanes import LaneReader
from tests.killed_writes import Killed, kill_at
from tests.unit.data_prep.finished.written import Document, write_prepared

SEED, LANES, SEGMENT_TOKENS, NUM_STEPS = 5, 2, 16, 60


def document(repository: str, number: int) -> Document:
    lines = [f"def f{number}_{k}(value):\n    return value + {k} * {number}\n" for k in range(6)]
    return Document(repository, f"src/m{number}.py", "\n".join(lines))


TRAIN = [
    [[document("alpha", 0), document("alpha", 1)], [document("beta", 2)]],
    [[document("beta", 3), document("gamma", 4)]],
]
SETS = {"kept_out": ["mine"], "missing": []}
LAYOUT = {"train": TRAIN, "validation": [[[document("delta", 5)]]], "test": [[[document("zeta", 6)]]]}


def prep_stage() -> Stage:
    return Stage("prep", config={"seed": SEED}, run=lambda context: {})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder whose prep stage is finished."""
    out = tmp_path / "run"
    out.mkdir()
    sizes = [f"pretrain.lanes={LANES}", f"pretrain.segment_tokens={SEGMENT_TOKENS}", f"seed={SEED}"]
    more = ["pretrain.micro_batch_lanes=1", "pretrain.num_workers=1", f"pretrain.num_steps={NUM_STEPS}"]
    config = load_run_config("smoke", [*sizes, *more, "prep.source.path=corpus"])
    (out / "config.yaml").write_text(config_text(config.model_dump(mode="json")))
    step = plan([prep_stage()], out)[0]
    prep = write_prepared(step.folder, LAYOUT)
    record = StageRecord(
        stage="prep",
        key=step.key,
        version=1,
        config={"seed": SEED},
        inputs={},
        signature="",
        files=hash_outputs(prep),
        summary={"evaluation_sets": SETS},
        wall_s=1.0,
    )
    write_record(prep, record)
    return out


def prep_of(run: Path) -> Path:
    return next(run.glob("prep-*"))


def permcode(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_bad_input(result: Result, message: str) -> None:
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("permcode: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.parametrize("which", ["run", "prep", "shards"])
def test_inspect_counts_and_shows_a_sample(run: Path, which: str) -> None:
    folder = {"run": run, "prep": prep_of(run), "shards": prep_of(run) / "shards"}[which]
    result = permcode("inspect", folder)
    assert result.exit_code == 0, result.stderr
    for text in (
        "revision 1",
        "8 listed",
        "7 kept",
        "train",
        "Python",
        "file_size",
        "src/m0.py",
        "bytes/token",
    ):
        assert text in result.stdout
    assert "return value + 0 *" in result.stdout
    assert "\x1b" not in result.stdout


def test_inspect_shows_one_document_whole(run: Path) -> None:
    wanted = document("gamma", 4)
    result = permcode("inspect", run, "--document", wanted.id)
    assert result.exit_code == 0, result.stderr
    assert "gamma: src/m4.py" in result.stdout
    assert wanted.text in result.stdout


def test_inspect_makes_control_characters_of_a_corpus_visible(tmp_path: Path) -> None:
    evil = Document("evil", "a.py", "x = '\x1b[2J\u202e\r'\ny = 1\n")
    prep = write_prepared(tmp_path / "prep", LAYOUT | {"validation": [[[evil]]]})
    result = permcode("inspect", prep, "--document", evil.id)
    assert "x = '<U+001B>[2J<U+202E><U+000D>'\ny = 1" in result.stdout


def test_inspect_shows_names_as_they_are_and_not_as_markup(tmp_path: Path) -> None:
    odd = Document("a[/b]", "x[red].py", "y = 1\n", language="[/bold]", licence="[/] [link=x]")
    prep = write_prepared(tmp_path / "prep", LAYOUT | {"validation": [[[odd]]]})
    result = permcode("inspect", prep)
    assert result.exit_code == 0, result.stderr
    for name in ("a[/b]", "x[red].py", "[/bold]", "[/] [link=x]"):
        assert name in result.stdout


def test_verify_says_what_is_whole_and_names_what_is_damaged(run: Path) -> None:
    result = permcode("inspect", run, "--verify")
    assert result.exit_code == 0, result.stderr
    assert "4 tars with their indexes, 5 blocks, 15 members; nothing is damaged" in result.stdout
    tar = prep_of(run) / "shards" / "test-00000.tar"
    data = bytearray(tar.read_bytes())
    data[700] ^= 1
    tar.write_bytes(data)
    result = permcode("inspect", run, "--verify")
    assert result.exit_code == 2
    assert "test-00000.tar is damaged in block test-00000-00000" in result.stderr


def test_trace_of_a_token_names_repository_path_line_and_block(run: Path) -> None:
    corpus = open_prepared(prep_of(run))
    first_block = corpus.blocks("train")[0]
    second = corpus.read_block(first_block).doc_starts[1]
    before = corpus.tokenizer.encode(document("alpha", 1).text.partition("return")[0])
    result = permcode("trace", run, "--token", int(second) + len(before))
    assert result.exit_code == 0, result.stderr
    for text in ("repository  alpha", "path        src/m1.py", "line        2, column ", first_block.key):
        assert text in result.stdout
    assert "        return value + 0 * 1\n" in result.stdout


def test_trace_of_steps_covers_what_the_lanes_read(run: Path) -> None:
    """Offset by offset, the token traced is the one that the lane reader hands to training."""
    corpus = open_prepared(prep_of(run))
    reader = LaneReader(corpus, "train", LANES, SEGMENT_TOKENS, SEED)
    starts, position = {}, 0
    for entry in corpus.blocks("train"):
        starts[entry.key] = position
        position += entry.num_tokens
    for step, lane, offset in ((0, 0, 0), (1, 1, 15), (reader.steps_per_epoch + 1, 0, 7)):
        result = permcode("trace", run, "--step", step, "--lane", lane, "--offset", offset)
        assert result.exit_code == 0, result.stderr
        key, token_in_block = _block_and_token(result.stdout)
        entry = next(entry for entry in corpus.blocks("train") if entry.key == key)
        traced = corpus.read_block(entry).tokens[token_in_block]
        assert traced == reader.segment(step, lane).tokens_L[offset]


def _block_and_token(output: str) -> tuple[str, int]:
    line = next(line for line in output.splitlines() if line.startswith("  block "))
    words = line.split()
    return words[1], int(words[words.index("token") + 1])


def test_trace_of_a_whole_segment_names_every_document_in_it(run: Path) -> None:
    result = permcode("trace", run, "--step", 0, "--lane", 1)
    assert result.exit_code == 0, result.stderr
    spans = [line for line in result.stdout.splitlines() if line.startswith("step 0, lane 1, token")]
    assert spans
    assert spans[-1].endswith(f"of {SEGMENT_TOKENS}:")
    assert str(SEGMENT_TOKENS - 1) in spans[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--token", 10**9), "split 'train' has no token 1000000000"),
        (("--token", -1), "split 'train' has no token -1"),
        (("--token", 0, "--split", "dev"), "no split 'dev'"),
        (("--step", NUM_STEPS, "--lane", 0), f"no step {NUM_STEPS}: give one from 0 to {NUM_STEPS - 1}"),
        (("--step", 0, "--lane", LANES), f"no lane {LANES}"),
        (("--step", 0, "--lane", 0, "--offset", SEGMENT_TOKENS), f"no offset {SEGMENT_TOKENS}"),
        (("--step", 0), "give the token to trace"),
        ((), "give the token to trace"),
        (("--token", 0, "--step", 0, "--lane", 0), "give the token to trace"),
    ],
)
def test_places_that_are_not_there_are_bad_input(
    run: Path, arguments: tuple[object, ...], message: str
) -> None:
    assert_bad_input(permcode("trace", run, *arguments), message)


def test_a_prep_folder_of_no_run_has_no_steps(tmp_path: Path) -> None:
    prep = write_prepared(tmp_path / "prep", LAYOUT)
    assert_bad_input(permcode("trace", prep, "--step", 0, "--lane", 0), "belongs to no run")


def test_steps_trained_before_something_was_forgotten_are_not_traced_to_other_files(run: Path) -> None:
    from pretrain.checkpoint.compatibility import RunIdentity

    pretrain = run / "pretrain-0123456789ab"
    config = load_run_config(str(run / "config.yaml"))
    identity = pretrain / "checkpoints" / "step-00000010" / "config.json"
    for is_trained_before in (True, False):
        if not is_trained_before:
            assert_bad_input(permcode("trace", run, "--step", 1, "--lane", 0), "cannot be traced any more")
        identity.parent.mkdir(parents=True, exist_ok=True)
        made_by = RunIdentity(
            config.pretrain, config.seed, open_prepared(prep_of(run)).manifest_sha256, "0" * 64
        )
        identity.write_text(json.dumps(made_by.to_json()))
        assert permcode("trace", run, "--step", 1, "--lane", 0).exit_code == 0
        permcode("forget", run, "--repo", "alpha")


@pytest.mark.parametrize("command", [("inspect",), ("trace", "--token", 0), ("forget", "--repo", "alpha")])
def test_folders_without_a_finished_prep_are_bad_input(command: tuple[object, ...], tmp_path: Path) -> None:
    assert_bad_input(permcode(*command, tmp_path / "none"), "there is no folder")
    assert_bad_input(permcode(*command, tmp_path), "is not a finished prep folder and holds none")


def is_skipped(run: Path) -> bool:
    """Whether `permcode run` would take the prep stage as it is."""
    return plan([prep_stage()], run)[0].action == "skip"


@pytest.mark.parametrize("which", ["run", "prep"])
def test_forget_leaves_a_finished_stage_behind_that_is_not_run_again(run: Path, which: str) -> None:
    assert is_skipped(run)
    result = permcode("forget", run if which == "run" else prep_of(run), "--repo", "alpha")
    assert result.exit_code == 0, result.stderr
    assert "removed 2 documents" in result.stdout
    assert "1 of 4 tars rewritten" in result.stdout
    assert is_skipped(run)
    record = read_record(prep_of(run))
    assert record is not None
    verify_outputs(prep_of(run), record)
    assert record.files == hash_outputs(prep_of(run))
    assert record.summary["dropped_by_rule"] == {"forgotten": 2, "file_size": 1}
    assert record.summary["evaluation_sets"] == SETS
    assert json.loads((run / "forgotten.json").read_text())["requests"] == [{"repository": "alpha"}]


def test_forget_repeated_changes_nothing(run: Path) -> None:
    permcode("forget", run, "--path", "src/m3.py")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = permcode("forget", run, "--path", "src/m3.py")
    assert result.exit_code == 0, result.stderr
    assert "nothing (more) to forget" in result.stdout
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_dry_run_says_the_same_and_changes_nothing(run: Path) -> None:
    before = {path: sha256_file(path) for path in run.rglob("*") if path.is_file()}
    result = permcode("forget", run, "--repo", "alpha", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "would remove 2 documents" in result.stdout
    assert "left of" not in result.stdout
    assert {path: sha256_file(path) for path in run.rglob("*") if path.is_file()} == before


def test_an_emptied_split_is_reported(run: Path) -> None:
    again = (
        "left of validation: to train or evaluate with validation again, use a new --out and a source without"
    )
    for more, verb in (("--dry-run",), "would be"), ((), "is"), ((), "is"), (("--dry-run",), "is"):
        result = permcode("forget", run, "--repo", "delta", *more)
        assert result.exit_code == 0, result.stderr
        (line,) = [line for line in result.stdout.splitlines() if "left of" in line]
        assert f"{prep_of(run).name}: nothing {verb} {again}" in line
    assert_bad_input(permcode("trace", run, "--split", "validation", "--token", 0), "'validation' is empty")


def test_a_name_that_nothing_has_is_bad_input_and_not_written_down(run: Path) -> None:
    for more in ((), ("--dry-run",)):
        assert_bad_input(
            permcode("forget", run, "--repo", "alhpa", *more), "holds no file of repository alhpa"
        )
    assert not (run / "forgotten.json").exists()
    assert_bad_input(permcode("forget", run), "give what to forget")
    assert_bad_input(permcode("forget", run, "--repo", "a", "--path", "b"), "give what to forget")


def test_killed_at_any_write_the_same_command_finishes_and_no_run_takes_it_for_damaged(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = shutil.copytree(run, tmp_path / "wanted")
    assert permcode("forget", wanted, "--repo", "alpha").exit_code == 0
    num_kills = 0
    while True:
        folder = shutil.copytree(run, tmp_path / f"killed{num_kills}")
        with monkeypatch.context() as patched:
            kill_at(patched, num_kills)
            try:
                permcode("forget", folder, "--repo", "alpha")
                break
            except Killed:
                pass
        is_recorded = (folder / "forgotten.json").is_file()
        is_done = open_prepared(prep_of(folder)).manifest.revision == 2
        # A run takes the folder as finished only where that agrees with what is written down.
        assert plan([prep_stage()], folder)[0].action == "resume" or is_recorded == is_done
        assert permcode("forget", folder, "--repo", "alpha").exit_code == 0
        assert is_skipped(folder)
        assert hash_outputs(prep_of(folder)) == hash_outputs(prep_of(wanted))
        assert read_record(prep_of(folder)) == read_record(prep_of(wanted))
        num_kills += 1
    # The record renamed, the request, tar, index, ledger, manifest, the old ones' removal (3), the record (2).
    assert num_kills == 11


def test_a_reader_that_has_seen_enough_is_no_failure(run: Path) -> None:
    command = [sys.executable, "-m", "pipeline.cli", "inspect", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
