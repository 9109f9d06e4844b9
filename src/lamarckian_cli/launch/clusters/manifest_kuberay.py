"""A RayJob for KubeRay: the cluster is made for the job, runs it, and goes away."""

from __future__ import annotations

import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

from lamarckian_cli.launch.clusters.manifest import Sizes
from lamarckian_cli.launch.clusters.secrets import ray_environment
from lamarckian_cli.launch.placement import key_of

MOUNT = "/etc/lamarck/own"
OWN = Path(MOUNT, "ray")  # a machine's files, made when it starts
SECRETS = "/etc/lamarck/secrets"
RUNS = "/runs"
GROUP = 1000  # of the images' user, who must read secrets and write runs
LEARNER_CORES = 4
RAY_GIB = 2  # for Ray's own processes
DONE_S = 300  # that the cluster is kept after the job


def ray_job(sizes: Sizes) -> tuple[dict[str, Any], str]:
    """The RayJob, and what is said above it."""
    tree = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": sizes.name},
        "spec": {
            "entrypoint": shlex.join(_command(sizes)),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": DONE_S,
            "backoffLimit": 0,
            "rayClusterSpec": {
                "rayVersion": metadata.version("ray"),
                "authOptions": {"mode": "token", "secretName": _secret(sizes)},
                "headGroupSpec": _learner(sizes),
                "workerGroupSpecs": [_workers(sizes)],
            },
        },
    }
    return tree, _head(sizes)


def _command(sizes: Sizes) -> list[str]:
    """The command, with its run folder where it outlives the cluster."""
    given = any(key_of(word) == "run.dir" for word in sizes.command)
    return [*sizes.command, *([] if given else [f"run.dir={RUNS}/{sizes.name}"])]


def _learner(sizes: Sizes) -> dict[str, Any]:
    """The head, where the learner is; it offers no cores, so that no actor goes there."""
    gpus = {"nvidia.com/gpu": sizes.learner_gpus} if sizes.learner_gpus else {}
    memory = sizes.learner_gib + sizes.shared_gib + RAY_GIB
    template = _pod(sizes, "learner", {"cpu": LEARNER_CORES, "memory": f"{memory}Gi", **gpus})
    container = template["spec"]["containers"][0]
    container["ports"] = [
        {"containerPort": 6379, "name": "gcs-server"},
        {"containerPort": 8265, "name": "dashboard"},
    ]
    container["volumeMounts"].append({"name": "runs", "mountPath": RUNS})
    claim = {"claimName": f"{sizes.name}-runs"}
    template["spec"]["volumes"].append({"name": "runs", "persistentVolumeClaim": claim})
    return {"rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"}, "template": template}


def _workers(sizes: Sizes) -> dict[str, Any]:
    memory = sizes.worker_gib + sizes.shared_gib + RAY_GIB
    resources = {"cpu": sizes.cores_per_machine, "memory": f"{memory}Gi"}
    return {
        "groupName": "workers",
        "replicas": sizes.workers,
        "minReplicas": sizes.workers,
        "maxReplicas": sizes.workers,
        "rayStartParams": {"num-cpus": str(sizes.cores_per_machine)},
        "template": _pod(sizes, "worker", resources),
    }


def _pod(sizes: Sizes, role: str, resources: dict[str, Any]) -> dict[str, Any]:
    """A machine: its certificate is made before Ray starts, from the secret that it alone mounts then."""
    image = sizes.image(role)
    own = {"name": "own", "mountPath": MOUNT}
    command = ["python", "-m", "lamarckian_cli.launch.clusters.secrets", SECRETS, str(OWN)]
    certificate = {
        "name": "certificate",
        "image": image,
        "command": [*command, "$(POD_IP)", "$(FQ_RAY_IP)"],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "volumeMounts": [own, {"name": "secrets", "mountPath": SECRETS, "readOnly": True}],
    }
    tls = {name: value for name, value in ray_environment(OWN).items() if "TLS" in name}
    ray = {
        "name": f"ray-{role}",
        "image": image,
        "env": [{"name": name, "value": value} for name, value in tls.items()],
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "volumeMounts": [own, {"name": "shared-memory", "mountPath": "/dev/shm"}],
    }
    shared = {"medium": "Memory", "sizeLimit": f"{sizes.shared_gib + 1}Gi"}
    return {
        "spec": {
            "securityContext": {"fsGroup": GROUP},
            "initContainers": [certificate],
            "containers": [ray],
            "volumes": [
                {"name": "own", "emptyDir": {"medium": "Memory"}},
                {"name": "secrets", "secret": {"secretName": _secret(sizes), "defaultMode": 0o440}},
                {"name": "shared-memory", "emptyDir": shared},
            ],
        }
    }


def _secret(sizes: Sizes) -> str:
    return f"{sizes.name}-secrets"


def _head(sizes: Sizes) -> str:
    lines = [
        f"The cluster {sizes.name}: {sizes.actors} actors on {sizes.workers} workers of "
        f"{sizes.cores_per_machine} cores, and the learner's.",
        "For KubeRay 1.6 or newer. Ray's token and TLS are on. Before it is applied:",
        "",
        f"    kubectl create secret generic {_secret(sizes)} --from-file={sizes.secrets}",
        f"    a PersistentVolumeClaim {sizes.name}-runs, which run folders are kept in",
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines)
