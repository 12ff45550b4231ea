"""A run on a cluster as it is seen from outside: metrics, the dashboard, structured logs, status."""

import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.metrics_export import METRICS
from tests.integration.conftest import RayHead, free_ports
from tests.integration.smoke_run import command, copy_corpus, only, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "docs" / "grafana_dashboard.json").read_text(encoding="utf-8"))
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
VARIABLE_QUERIES = [one["definition"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
NUM_STEPS = 400
_METRIC = re.compile(r"\bray_permcode_\w+")
_SAMPLE = re.compile(r"^(ray_permcode_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass
class SeenRun:
    """What was seen of a run while it went on, and its folder."""

    out: Path
    labels: dict[str, set[str]] = field(default_factory=dict)
    """The names of the labels of every metric of ours."""
    values: dict[str, list[float]] = field(default_factory=dict)
    stages: set[tuple[str, str]] = field(default_factory=set)
    """Run and stage of all samples."""
    statuses: list[dict[str, Any]] = field(default_factory=list)
    prometheus: str = ""
    """Its address; "" where the machine has no Prometheus."""
    began_s: float = 0.0

    def scrape(self, address: str) -> None:
        with suppress(OSError):
            text = urllib.request.urlopen(f"http://{address}/metrics", timeout=5).read().decode()
            for name, labels, value in _SAMPLE.findall(text):
                found = dict(_LABEL.findall(labels))
                self.labels.setdefault(name, set()).update(found)
                self.values.setdefault(name, []).append(float(value))
                self.stages.add((found["run"], found["stage"]))

    def ask_status(self) -> None:
        asked = subprocess.run(
            [sys.executable, "-m", "pipeline.cli", "status", str(self.out), "--json"],
            capture_output=True,
            text=True,
        )
        if asked.returncode == 0:
            self.statuses.append(json.loads(asked.stdout))


@pytest.fixture(scope="module")
def seen(ray_head: RayHead, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeenRun]:
    """A submitted run of prep and pretraining, looked at all along."""
    folder = tmp_path_factory.mktemp("seen")
    seen = SeenRun(folder / "run", began_s=time.time())
    settings = (
        *(f"pretrain.num_steps={NUM_STEPS}", "pretrain.checkpoint.every_steps=100"),
        *("pretrain.validation.every_steps=200", "finetune.completion=null", "finetune.search=null"),
    )
    arguments = command("submit", seen.out, copy_corpus(folder / "corpus"), *settings)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(1.0):
            seen.scrape(ray_head.metrics)
            if len(seen.statuses) < 8:
                seen.ask_status()

    with pytest.MonkeyPatch.context() as patch, prometheus(ray_head.metrics, folder) as address:
        patch.setenv("RAY_AUTH_TOKEN", ray_head.token)
        seen.prometheus = address
        thread = threading.Thread(target=look)
        thread.start()
        try:
            run([*arguments, "--address", ray_head.address])
        finally:
            ended.set()
            thread.join()
        seen.ask_status()
        yield seen


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[str]:
    """A Prometheus that reads the target's metrics every second; yields "" where there is none to start."""
    program = shutil.which("prometheus")
    if program is None:
        yield ""
        return
    config, address = folder / "prometheus.yml", f"127.0.0.1:{free_ports(1)[0]}"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: ray, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    arguments = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        started = subprocess.Popen([program, *arguments], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield address
    finally:
        started.kill()
        started.wait()


def test_every_metric_of_ours_is_at_ray_s_endpoint_with_its_tags(seen: SeenRun) -> None:
    assert set(seen.labels) == {metric.exposed_name for metric in METRICS}
    for name, labels in seen.labels.items():
        assert labels >= {"run", "stage", "job", "system", "NodeAddress"}, name
    assert seen.stages == {(str(seen.out), "prep"), (str(seen.out), "pretrain")}


def test_the_metrics_say_what_the_run_did(seen: SeenRun) -> None:
    values = seen.values
    assert set(values["ray_permcode_num_steps"]) == {NUM_STEPS}
    assert values["ray_permcode_step"] == sorted(values["ray_permcode_step"])
    assert 0 < max(values["ray_permcode_step"]) <= NUM_STEPS
    assert max(values["ray_permcode_committed_step"]) >= 100
    assert max(values["ray_permcode_tokens_per_second"]) > 0
    assert 0 < min(values["ray_permcode_loss"]) < 10
    assert 0 < max(values["ray_permcode_goodput"]) <= 1
    assert max(values["ray_permcode_data_wait_seconds_total"]) > 0
    assert set(values["ray_permcode_attempt"]) == {1}
    # It is set once, before the first step, and must be there as long as steps are made.
    assert len(values["ray_permcode_attempt"]) >= 0.8 * len(values["ray_permcode_loss"]) > 4
    assert max(values["ray_permcode_workers"]) == 2
    assert set(values["ray_permcode_lost_nodes"]) == {0}
    assert values["ray_permcode_queue_left"][-1] == 0


def test_the_dashboard_names_only_metrics_and_labels_that_exist(seen: SeenRun) -> None:
    queries = EXPRESSIONS + VARIABLE_QUERIES
    named = {name for query in queries for name in _METRIC.findall(query)}
    assert named <= set(seen.labels), "the dashboard names metrics that the endpoint does not have"
    assert named == {metric.exposed_name for metric in METRICS}
    for query in queries:
        grouped = re.findall(r"by \(([^)]*)\)", query)
        used = {word.strip() for group in grouped for word in group.split(",")}
        used |= set(re.findall(r"(\w+)=~", query))
        for name in _METRIC.findall(query):
            assert used <= seen.labels[name], query


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_prometheus_answers_every_expression_of_the_dashboard(seen: SeenRun, expression: str) -> None:
    if not seen.prometheus:
        pytest.skip("no program prometheus on the PATH")
    query = expression.replace("$run", str(seen.out)).replace("$stage", ".*")
    parameters = {"query": query, "start": seen.began_s, "end": time.time(), "step": 1}
    address = f"http://{seen.prometheus}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
    try:
        answer = json.loads(urllib.request.urlopen(address, timeout=30).read())
    except urllib.error.HTTPError as error:
        pytest.fail(f"{query}: {error.read().decode()}")
    assert answer["status"] == "success"
    points = [float(value) for series in answer["data"]["result"] for _, value in series["values"]]
    assert points, query


def test_every_process_has_a_structured_log_of_its_own(seen: SeenRun) -> None:
    events = seen.out / "logs" / "events"
    command_lines = lines_of(only(events, "command-*.jsonl"))
    job = command_lines[0]["job"]
    assert re.fullmatch(r"permcode-\w+-1", job)
    said = [line["message"] for line in command_lines]
    assert any(text.startswith("pretrain: finished in") for text in said)
    assert {line["stage"] for line in command_lines} >= {"prep", "pretrain"}
    for rank in (0, 1):
        lines = lines_of(only(events, f"pretrain-*/attempt-0001/rank-{rank:05d}.jsonl"))
        places = {(one["run"], one["job"], one["stage"], one["rank"], one["attempt"]) for one in lines}
        assert places == {(str(seen.out), job, "pretrain", rank, 1)}
        assert lines[0]["message"] == f"worker {rank} of 2 begins"
        assert (lines[-1]["message"], lines[-1]["step"]) == (f"worker {rank} ends", NUM_STEPS)
    texts = [one["message"] for one in lines_of(only(events, "pretrain-*/attempt-0001/rank-00000.jsonl"))]
    assert any(text.startswith("starting at step 0") for text in texts)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_status_follows_the_run_to_its_end(seen: SeenRun) -> None:
    commands = [one["run"] for one in seen.statuses if one["run"] is not None]
    assert "running" in {one["state"] for one in commands}
    last = commands[-1]
    assert (last["state"], last["lease"]["state"], last["command"]["ended"]) == (
        "finished",
        "released",
        "finished",
    )
    assert seen.statuses[-1]["step"] == NUM_STEPS
