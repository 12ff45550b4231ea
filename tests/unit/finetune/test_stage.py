"""Both stages on a local Ray with a tiny model: what they leave, what is not done twice."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from cluster.errors import UserError
from cluster.journal import read_journal
from cluster.lineage import counting_steps
from cluster.ray_session import RayConfig, ray_session
from cluster.reporter import Reporter
from data_prep.prepared import PreparedCorpus
from finetune.adapt import initial_model
from finetune.config import CompletionConfig, SearchConfig, TrainingConfig
from finetune.stage import run_completion, run_search
from pretrain.weights import load_pretrained
from tests.example_corpus import stdlib_packages, write_corpus

TRAINING = TrainingConfig(steps=4, warmup_steps=1, learning_rate=1e-3)
COMPLETION = CompletionConfig(
    training=TRAINING, num_lanes=2, segment_tokens=32, max_document_tokens=800, max_eval_tokens=1600
)
SEARCH = SearchConfig(
    training=TRAINING, batch_pairs=4, query_tokens=16, code_tokens=32, num_candidates=20, max_groups=1
)


@pytest.fixture(scope="module")
def _ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with ray_session(RayConfig(num_cpus=2), tmp_path_factory.mktemp("logs")):
        yield


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def reporter(said: io.StringIO) -> Reporter:
    return Reporter(console=Console(file=said, width=200))


@pytest.mark.usefixtures("_ray")
def test_completion_is_done_once_and_a_killed_arm_is_repeated_exactly(
    corpus: PreparedCorpus, pretrain_folder: Path, tmp_path: Path, reporter: Reporter, said: io.StringIO
) -> None:
    inputs = (COMPLETION, 3, corpus.folder, pretrain_folder, tmp_path, reporter)
    summary = run_completion(*inputs)
    assert set(summary) == {
        "pretrained",
        "scratch",
        "baseline_bigram_accuracy",
        "baseline_bigram_mrr",
        "gain",
    }
    assert summary["gain"] == pytest.approx(
        summary["pretrained"]["accuracy"] - summary["scratch"]["accuracy"]
    )
    assert summary["pretrained"]["num_lexemes"] == summary["scratch"]["num_lexemes"] > 100
    assert "completion pretrained: 4/4 steps" in said.getvalue()
    assert "completion scratch: 4/4 steps" in said.getvalue()

    loaded = load_pretrained(tmp_path / "pretrained" / "model")
    assert loaded.vocab_size == corpus.tokenizer.vocab_size
    journal = tmp_path / "scratch" / "journal.jsonl"
    steps = counting_steps(read_journal(journal))
    assert list(steps) == [1, 2, 3, 4]
    assert steps[4]["test_accuracy"] == summary["scratch"]["accuracy"]

    # As after a kill: no result yet, a journal of some steps.
    (tmp_path / "scratch" / "result.json").unlink()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if "pretrained" in path.parts}
    assert run_completion(*inputs) == summary
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    repeated = counting_steps(read_journal(journal))
    assert [one["loss"] for one in repeated.values()] == [one["loss"] for one in steps.values()]


@pytest.mark.usefixtures("_ray")
def test_search_reports_both_arms_beside_tfidf(
    corpus: PreparedCorpus, pretrain_folder: Path, tmp_path: Path, reporter: Reporter, said: io.StringIO
) -> None:
    config = SEARCH.model_copy(update={"num_candidates": 10_000})
    summary = run_search(config, 3, corpus.folder, pretrain_folder, tmp_path, reporter)
    assert set(summary) == {"pretrained", "scratch", "tfidf_mrr", "num_candidates", "gain"}
    assert 60 <= summary["num_candidates"] == summary["pretrained"]["num_queries"] < 10_000
    assert f"only {summary['num_candidates']} documented functions" in said.getvalue()
    assert (tmp_path / "pretrained" / "model" / "model.safetensors").is_file()
    assert not (tmp_path / "scratch" / "model").exists()


@pytest.mark.usefixtures("_ray")
def test_what_the_user_can_mend_comes_out_of_the_task_as_one_line(
    pretrain_folder: Path, tmp_path: Path, reporter: Reporter
) -> None:
    splits = {"validation": stdlib_packages(["calendar"]), "test": {"p": {"f.py": "x = 1\n"}}}
    prep_folder = write_corpus(tmp_path / "prep", splits).folder
    out = tmp_path / "out"
    with pytest.raises(UserError, match="the test split has only 0 documented functions"):
        run_search(SEARCH, 0, prep_folder, pretrain_folder, out, reporter)
    assert not [path for path in out.rglob("*") if path.is_file()]


def test_scratch_has_the_shape_but_not_the_weights(corpus: PreparedCorpus, pretrain_folder: Path) -> None:
    def weights(arm: str, seed: int) -> list[list[float]]:
        model = initial_model(arm, pretrain_folder / "model", corpus.folder / "tokenizer.json", seed)  # type: ignore[arg-type]
        return [parameter.flatten().tolist() for parameter in model.parameters()]

    pretrained, scratch = weights("pretrained", 1), weights("scratch", 1)
    assert list(map(len, pretrained)) == list(map(len, scratch))
    assert pretrained == weights("pretrained", 2)
    assert scratch == weights("scratch", 1)
    assert scratch != weights("scratch", 2)
    assert scratch != pretrained


def test_model_of_another_tokenizer_is_refused(pretrain_folder: Path, tmp_path: Path) -> None:
    other = write_corpus(tmp_path, {"test": stdlib_packages(["heapq"])})
    with pytest.raises(UserError, match="was pretrained with another tokenizer"):
        initial_model("pretrained", pretrain_folder / "model", other.folder / "tokenizer.json", 0)
