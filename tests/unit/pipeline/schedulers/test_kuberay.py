"""RayJobs against KubeRay's schema, unknown keys refused; the image's file."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.folder.recipe import load_run_config

ROOT = Path(__file__).parents[4]
_SMALL = (
    "--recipe",
    "smoke",
    "--image",
    "permcode:cpu",
    "--volume-claim",
    "shared",
    "--out",
    "/shared/runs/one",
)


def closed(schema: Any) -> Any:
    """The schema with unknown keys refused, which a server of Kubernetes drops in silence."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("anyOf", None)
        made["type"] = ["integer", "string"]
    is_object = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    if is_object and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    packed = (ROOT / "tests/schemas/ray.io_rayjobs.yaml.gz").read_bytes()
    definition = yaml.load(gzip.decompress(packed), yaml.CSafeLoader)
    version = next(one for one in definition["spec"]["versions"] if one["name"] == "v1")
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return Draft202012Validator(closed(schema))


def printed(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["kuberay", *arguments])
    assert result.exit_code == 0, result.output
    document = yaml.safe_load(result.stdout)
    assert isinstance(document, dict)
    return document


def pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = document["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


@pytest.mark.parametrize("extra", [(), ("--min-nodes", "1"), ("--gpus-per-node", "1")])
def test_it_is_valid(validator: Draft202012Validator, extra: tuple[str, ...]) -> None:
    assert list(validator.iter_errors(printed(*_SMALL, "--nodes", "2", *extra))) == []


def test_the_check_sees_an_unknown_key(validator: Draft202012Validator) -> None:
    document = printed(*_SMALL, "--nodes", "2")
    document["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    assert list(validator.iter_errors(document))


def test_the_head_has_no_work_and_the_workers_have_the_gpus() -> None:
    document = printed(*_SMALL, "--nodes", "2", "--min-nodes", "1", "--gpus-per-node", "1")
    cluster = document["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0", "num-gpus": "0"}
    (group,) = cluster["workerGroupSpecs"]
    assert (group["minReplicas"], group["replicas"], group["maxReplicas"]) == (1, 2, 2)
    head, worker = pods(document)
    assert worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in head["containers"][0]["resources"]["limits"]
    recipe = yaml.safe_load(head["containers"][0]["env"][-1]["value"])
    assert recipe["pretrain"]["num_workers"] == {"min": 1, "max": 2}
    assert cluster["authOptions"] == {"mode": "token"}


def test_pods_have_no_privileges_and_see_the_volume() -> None:
    for pod in pods(printed(*_SMALL, "--nodes", "2")):
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]


def test_the_entrypoint_gives_the_recipe_to_permcode(tmp_path: Path) -> None:
    odd = 'prep.source.path=/shared/it\'s $HOME `x` "q"'
    document = printed(*_SMALL, "--nodes", "2", odd)
    (head, _) = pods(document)
    fake = tmp_path / "permcode"
    fake.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\ncat "$4"\n')
    fake.chmod(0o755)
    entrypoint = document["spec"]["entrypoint"].replace("/tmp/recipe.yaml", str(tmp_path / "recipe.yaml"))
    variable = head["containers"][0]["env"][-1]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", variable["name"]: variable["value"]}
    done = subprocess.run(entrypoint, shell=True, env=environment, capture_output=True, text=True, check=True)
    words = ["run", "--keep-alive", "--recipe", str(tmp_path / "recipe.yaml"), "--out", "/shared/runs/one"]
    assert done.stdout.splitlines()[:6] == words
    recipe = yaml.safe_load(done.stdout.split("\n", 6)[6])
    assert recipe == load_run_config("smoke", [odd]).model_dump(mode="json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes", "2", "--min-nodes", "3"), "--min-nodes 3 is more than --nodes 2"),
        (("--nodes", "2", "--out", "runs/one"), "below the volume's mount"),
        (("--nodes", "2", "--out", "/shared/$(id)"), "below the volume's mount"),
        (("--nodes", "2", "--volume-claim", "My_Claim"), "--volume-claim"),
        (("--nodes", "2", "--image", "a b"), "--image"),
        (("--nodes", "2", "--memory-per-node", "lots"), "--memory-per-node"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["kuberay", *_SMALL, *arguments], env={**os.environ, "COLUMNS": "200"})
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_hadolint_accepts_the_image_s_file() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_gets_every_package() -> None:
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    for package in ("cluster", "data_prep", "pretrain", "finetune", "pipeline"):
        assert f"!{package}" in kept
