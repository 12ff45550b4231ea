"""permcode finetune --from, and all that is done with what it leaves: a small translation task, real processes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cluster.journal import read_journal
from cluster.storage import read_json, sha256_file
from finetune.modalities.writing import Pair
from finetune.tasks.translation import Translation, TranslationConfig
from tests.integration.translation_run import finetune_words, write_base, write_pairs

pytestmark = [
    # Of what MLflow uses.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_PERMCODE = [sys.executable, "-m", "pipeline.cli"]
_REPOSITORY = Path(__file__).parents[2]


def permcode(*arguments: str, **kwargs: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*_PERMCODE, *arguments],
        capture_output=True,
        text=True,
        cwd=_REPOSITORY,
        timeout=500,
        check=False,
        **kwargs,
    )  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def experiment(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("experiment") / "out"
    done = permcode(*finetune_words(model, data, out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bleu against copy" in done.stdout
    assert "now its champion" in done.stdout
    return out


def stage(out: Path) -> Path:
    (folder,) = out.glob("translation-*")
    return folder


def test_the_table_can_be_computed_again_from_the_predictions(experiment: Path) -> None:
    task = Translation(TranslationConfig(folder=Path("nowhere")))
    summary = read_json(stage(experiment) / "result.json")
    assert set(summary["systems"]) == {"copy", "pretrained", "rnn"}
    for name, found in summary["systems"].items():
        lines = (stage(experiment) / name / "seed-0" / "predictions.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        items = [Pair(row["key"], row["source"], tuple(row["references"])) for row in rows]
        assert len(items) == 12
        bleu = task.evaluate_headline(items, [row["written"] for row in rows])
        assert found["metrics"]["bleu"]["value"] == pytest.approx(bleu.value)
        assert found["metrics"]["bleu"]["num_items"] == 12
    against = summary["systems"]["rnn"]["against_baseline"]
    assert against["low"] <= against["difference"] <= against["high"]


def test_the_learning_rate_that_did_best_on_the_validation_split_is_kept(experiment: Path) -> None:
    job = stage(experiment) / "rnn" / "seed-0"
    found = read_json(stage(experiment) / "result.json")["systems"]
    assert found["pretrained"]["learning_rate"] == 0.001
    assert "learning_rates_tried" not in found["pretrained"]
    tried = {one["learning_rate"]: one["valid"] for one in found["rnn"]["learning_rates_tried"]}
    valid = {
        rate: max(
            record.metrics["valid"]
            for record in read_journal(job / f"rate-{rate}" / "journal.jsonl")
            if "valid" in record.metrics
        )
        for rate in (0.001, 0.004)
    }
    assert tried == valid
    assert valid[found["rnn"]["learning_rate"]] == max(valid.values())
    expected = f"learning rate of rnn, by bleu on 8 items of the validation split: 0.001 {tried[0.001]:.4g}"
    assert expected in (experiment / "report.html").read_text()


def test_the_report_shows_what_the_recurrent_network_looked_at(experiment: Path) -> None:
    pictures = sorted(
        path.stem for path in (stage(experiment) / "rnn" / "seed-0" / "alignments").glob("*.svg")
    )
    assert pictures == [f"{number}-test-{number}" for number in range(1, 9)]
    page = (experiment / "report.html").read_text()
    assert [f"alignment of {key}" in page for key in pictures] == [True] * 8
    assert not list(stage(experiment).glob("pretrained/seed-0/alignments"))


def test_a_finished_experiment_is_not_done_again(model: Path, data: Path, experiment: Path) -> None:
    done = permcode(*finetune_words(model, data, experiment))
    assert done.returncode == 0
    assert "translation: skipped" in done.stdout
    assert "registry" not in done.stdout


@pytest.mark.slow
def test_other_systems_and_more_seeds_cost_only_themselves(
    model: Path, data: Path, experiment: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(experiment, out)
    weights = {
        name: sha256_file(stage(out) / name / "seed-0" / "best.safetensors") for name in ("pretrained", "rnn")
    }

    def systems(*overrides: str) -> list[str]:
        done = permcode(*finetune_words(model, data, out, *overrides))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "translation: resumes" in done.stdout
        return list(read_json(stage(out) / "result.json")["systems"])

    def num_starts(job: str) -> int:
        return sum(record.name == "start" for record in read_journal(stage(out) / job / "journal.jsonl"))

    assert systems("systems.rnn=null", "num_seeds=2") == ["copy", "pretrained"]
    assert not (stage(out) / "rnn").exists()
    assert (num_starts("pretrained/seed-0"), num_starts("pretrained/seed-1")) == (1, 1)
    assert sha256_file(stage(out) / "pretrained" / "seed-1" / "best.safetensors") != weights["pretrained"]
    assert systems() == ["copy", "pretrained", "rnn"]
    assert (num_starts("pretrained/seed-0"), num_starts("rnn/seed-0")) == (1, 1)
    for name, expected in weights.items():
        assert sha256_file(stage(out) / name / "seed-0" / "best.safetensors") == expected
    done = permcode(*finetune_words(model, data, out, "training.steps=13"))
    assert done.returncode == 2
    assert "belongs to another config: training.steps (12 there, 13 here)" in done.stderr


@pytest.mark.slow
def test_workers_that_are_killed_resume_and_end_with_the_same_weights_and_predictions(
    model: Path, data: Path, experiment: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    # The rate that the experiment's search kept, by itself: the search changes nothing of a training.
    kept = read_json(stage(experiment) / "rnn" / "seed-0" / "result.json")["learning_rate"]
    alone = f"training_of.rnn={{learning_rate: {kept}}}"
    # Every process dies at its tenth step, and Ray Train starts another one, as often as it may; then we do.
    environment = {**os.environ, "PERMCODE_FAULT": "step.recorded:10"}
    for _ in range(5):
        done = permcode(*finetune_words(model, data, out, alone), env=environment)
        if done.returncode == 0:
            break
        assert done.returncode == 2, done.stdout + done.stderr
        assert "workers failed" in done.stderr, done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("pretrained", "rnn"):
        journal = read_journal(stage(out) / name / "seed-0" / "journal.jsonl")
        starts = [record.text for record in journal if record.name == "start"]
        assert len(starts) > 1
        assert starts[0] == "starting at step 0"
        for file in ("best.safetensors", "predictions.jsonl"):
            killed, whole = (stage(folder) / name / "seed-0" / file for folder in (out, experiment))
            assert sha256_file(killed) == sha256_file(whole), (name, file)


def test_predict_and_evaluate_use_the_best_system(experiment: Path, data: Path, tmp_path: Path) -> None:
    lines = (data / "test.old").read_text().splitlines()
    rows = [{"id": number, "text": line} for number, line in enumerate(lines)]
    given, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = permcode("predict", str(experiment), "--input", str(given), "--output", str(output))
    assert done.returncode == 0, done.stderr
    answered = [json.loads(line) for line in output.read_text().splitlines()]
    written = [row.pop("prediction") for row in answered]
    assert answered == rows
    summary = read_json(stage(experiment) / "result.json")["systems"]
    best = max(("pretrained", "rnn"), key=lambda name: summary[name]["valid"])
    lines = (stage(experiment) / best / "seed-0" / "predictions.jsonl").read_text().splitlines()
    assert written == [json.loads(line)["written"] for line in lines]

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for side in ("old", "new"):
        shutil.copy(data / f"test.{side}", elsewhere / f"held-out.{side}")
    moved = permcode("evaluate", str(experiment), f"folder={elsewhere}", "test=held-out.{side}")
    assert moved.returncode == 0, moved.stderr
    done = permcode("evaluate", str(experiment))
    assert moved.stdout == done.stdout, "only the folder is another"
    assert done.returncode == 0, done.stderr
    bleu = summary[best]["metrics"]["bleu"]["value"]
    assert f"{bleu:.4g} (" in next(line for line in done.stdout.splitlines() if line.startswith("bleu "))


def test_mlflow_has_a_run_per_job_with_every_step_once(experiment: Path) -> None:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{experiment}/mlflow.db")
    experiment_id = client.get_experiment_by_name("permcode-translation").experiment_id
    runs = client.search_runs([experiment_id])
    by_name = {run.info.run_name: run for run in runs}
    assert {"out", "translation", "translation-pretrained-seed-0", "translation-rnn-seed-0"} <= set(by_name)
    assert {run.info.status for run in runs} == {"FINISHED"}
    job = by_name["translation-rnn-seed-0"]
    assert job.data.tags["mlflow.parentRunId"] == by_name["translation"].info.run_id
    assert [m.step for m in client.get_metric_history(job.info.run_id, "loss")] == list(range(1, 13))
    assert [m.step for m in client.get_metric_history(job.info.run_id, "valid")] == [4, 8, 12]


def test_the_champion_answers_in_a_process_that_knows_nothing_of_permcode(
    experiment: Path, tmp_path: Path
) -> None:
    script = """
import sys
import mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model("models:/permcode-translation@champion")
import finetune
print(finetune.__file__)
print(list(model.predict(pandas.DataFrame([{"text": "get size_3 end"}])).columns))
"""
    store = f"sqlite:///{experiment}/mlflow.db"
    # -S: without the site's packages' path file that makes this repository importable.
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", script, store],
        capture_output=True, text=True, cwd=tmp_path, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    where, columns = done.stdout.splitlines()[-2:]
    assert where.startswith(str(experiment / "mlartifacts")), "the model must bring its own code"
    assert columns == "['prediction']"


def test_the_leaderboard_names_every_system(experiment: Path, tmp_path: Path) -> None:
    page = tmp_path / "board.html"
    done = permcode("leaderboard", str(experiment.parent), "--html", str(page))
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, page.read_text()):
        assert all(name in text for name in ("copy", "pretrained", "rnn", "bleu"))


@pytest.mark.slow
def test_a_plain_http_client_is_answered(experiment: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [*_PERMCODE, "serve", str(experiment), "--port", str(port)], stdout=log, stderr=log,
            start_new_session=True, cwd=_REPOSITORY,
        )  # fmt: skip
    try:
        body = json.dumps(
            {"dataframe_records": [{"text": "get size_3 end"}, {"text": "get rank_9 end"}]}
        ).encode()
        answer = ask(port, body, server, tmp_path / "log")
        assert len(answer["predictions"]) == 2
        assert all(isinstance(one["prediction"], str) for one in answer["predictions"])
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(port, json.dumps({"dataframe_records": [{"other": "x"}]}).encode(), server, tmp_path / "log")
        assert refused.value.code == 400
        refused.value.close()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def ask(
    port: int, body: bytes, server: "subprocess.Popen[bytes]", log: Path
) -> dict[str, list[dict[str, str]]]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
    )
    deadline_s = time.monotonic() + 120
    while True:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer: dict[str, list[dict[str, str]]] = json.load(response)
                return answer
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.2)
