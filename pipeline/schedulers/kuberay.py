"""A RayJob for KubeRay: a head without work, a group of workers with GPUs, a volume that all of them see."""

from importlib import metadata
from pathlib import PurePosixPath
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, PositiveInt

from pipeline.folder.config import RunConfig
from pipeline.schedulers.recipe import recipe_text

_USER_ID = 1000
"""The user of our image."""
_SECONDS_TO_LEAVE = 600
"""How long a pod that is asked to end may take: a checkpoint, then the workers start elsewhere."""
_NEW_CLUSTERS = 10
"""How often KubeRay makes a new cluster after a lost head."""
_HEAD_CPUS, _HEAD_MEMORY = "4", "16Gi"
_RECIPE_VARIABLE = "PERMCODE_RECIPE"
_HEADER = """\
# Written by `permcode kuberay`: kubectl apply -f FILE
# KubeRay 1.6 or later. The run's folder is on the volume; the same file resumes it. `backoffLimit` makes a new cluster
# when the head is lost; failures that may pass are tried again inside the job, by --keep-alive.
"""


class KubernetesJob(BaseModel):
    """What a RayJob needs besides the recipe."""

    model_config = ConfigDict(frozen=True)

    name: str
    image: str
    volume_claim: str
    """A PersistentVolumeClaim (ReadWriteMany)."""
    mount: PurePosixPath
    """Where the volume is mounted."""
    out: PurePosixPath
    min_nodes: PositiveInt
    nodes: PositiveInt
    gpus_per_node: int
    cpus_per_node: PositiveInt
    memory_per_node: str


class _ReadableDumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_ReadableDumper.add_representer(str, _represent_text)


def ray_job(config: RunConfig, job: KubernetesJob) -> str:
    """Return the RayJob as YAML."""
    # The entrypoint is words for a shell; the recipe comes from the head's environment.
    entrypoint = (
        f'bash -c \'umask 077 && printf %s "${_RECIPE_VARIABLE}" > /tmp/recipe.yaml && '
        f"exec permcode run --keep-alive --recipe /tmp/recipe.yaml --out {job.out}'"
    )
    recipe = {"name": _RECIPE_VARIABLE, "value": recipe_text(config)}
    document = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": job.name},
        "spec": {
            "entrypoint": entrypoint,
            "submissionMode": "K8sJobMode",
            "backoffLimit": _NEW_CLUSTERS,
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": {
                "rayVersion": metadata.version("ray"),
                # KubeRay makes a Secret with a random token and gives it to every pod.
                "authOptions": {"mode": "token"},
                "enableInTreeAutoscaling": job.min_nodes < job.nodes,
                "headGroupSpec": {
                    "rayStartParams": {"num-cpus": "0", "num-gpus": "0"},
                    "template": _pod(job, "ray-head", {"cpu": _HEAD_CPUS, "memory": _HEAD_MEMORY}, [recipe]),
                },
                "workerGroupSpecs": [_workers(job)],
            },
        },
    }
    return _HEADER + yaml.dump(document, Dumper=_ReadableDumper, sort_keys=False, allow_unicode=True)


def _workers(job: KubernetesJob) -> dict[str, Any]:
    amounts = {"cpu": str(job.cpus_per_node), "memory": job.memory_per_node}
    if job.gpus_per_node:
        amounts["nvidia.com/gpu"] = str(job.gpus_per_node)
    template = _pod(job, "ray-worker", amounts, [])
    drain = (
        "ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION --reason-message 'the pod is asked to end' "
        f"--deadline-remaining-seconds {_SECONDS_TO_LEAVE} && sleep {_SECONDS_TO_LEAVE}"
    )
    # Before the pod's processes get SIGTERM: the run writes a checkpoint and leaves this node.
    template["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["bash", "-c", drain]}}}
    template["spec"]["terminationGracePeriodSeconds"] = _SECONDS_TO_LEAVE + 30
    if job.gpus_per_node:
        template["spec"]["tolerations"] = [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        ]
    return {
        "groupName": "workers",
        "replicas": job.nodes,
        "minReplicas": job.min_nodes,
        "maxReplicas": job.nodes,
        "rayStartParams": {},
        "template": template,
    }


def _pod(
    job: KubernetesJob, container: str, amounts: dict[str, str], environment: list[dict[str, str]]
) -> dict[str, Any]:
    return {
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER_ID,
                "runAsGroup": _USER_ID,
                "fsGroup": _USER_ID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": container,
                    "image": job.image,
                    "env": [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}, *environment],
                    "resources": {"requests": dict(amounts), "limits": dict(amounts)},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "shared", "mountPath": str(job.mount)},
                        {"name": "shared-memory", "mountPath": "/dev/shm"},
                    ],
                }
            ],
            "volumes": [
                {"name": "shared", "persistentVolumeClaim": {"claimName": job.volume_claim}},
                {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
            ],
        }
    }
