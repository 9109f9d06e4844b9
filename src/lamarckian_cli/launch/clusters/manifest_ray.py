"""A manifest for Ray's own cluster launcher, `ray up`: machines of one's own, or a cloud's."""

from __future__ import annotations

import shlex
from typing import Any

from lamarckian_cli.launch.clusters.manifest import Sizes
from lamarckian_cli.launch.clusters.secrets import EXPORTS

SECRETS = "~/.lamarck/manifest/secrets"  # on every machine
OWN = "~/.lamarck/manifest/own"  # what a machine makes of them
PORT = 6379
INSTANCES = {4: "xlarge", 8: "2xlarge", 16: "4xlarge", 32: "8xlarge", 48: "12xlarge", 64: "16xlarge"}
LARGEST = "48xlarge"


def launcher(sizes: Sizes) -> tuple[dict[str, Any], str]:
    """The document of the launcher, and what is said above it."""
    place = _own_machines(sizes) if sizes.hosts else _cloud(sizes)
    certificate = f"python -m lamarckian_cli.launch.clusters.secrets {SECRETS} {OWN} $(hostname -I)"
    ray = f". {OWN}/{EXPORTS}; ulimit -n 65536; ray start --disable-usage-stats"
    start = "--head --include-dashboard=false --autoscaling-config=~/ray_bootstrap_config.yaml"
    tree = {
        "cluster_name": sizes.name,
        "max_workers": sizes.workers,
        **place,
        "file_mounts": {SECRETS: str(sizes.secrets)},
        "setup_commands": [certificate],
        "head_start_ray_commands": ["ray stop", f"{ray} {start} --port={PORT}"],
        "worker_start_ray_commands": ["ray stop", f"{ray} --address=$RAY_HEAD_IP:{PORT}"],
    }
    return tree, _head(sizes)


def _own_machines(sizes: Sizes) -> dict[str, Any]:
    return {
        "provider": {"type": "local", "head_ip": sizes.hosts[0], "worker_ips": list(sizes.hosts[1:])},
        "auth": {"ssh_user": sizes.user} if sizes.user else {},
    }


def _cloud(sizes: Sizes) -> dict[str, Any]:
    """Machines of AWS, in containers of our images."""
    fits = (size for cores, size in INSTANCES.items() if cores >= sizes.cores_per_machine)
    worker = f"c7i.{next(fits, LARGEST)}"
    learner = "g5.4xlarge" if sizes.learner_gpus else "c7i.4xlarge"
    gpus = {"GPU": sizes.learner_gpus} if sizes.learner_gpus else {}
    return {
        "provider": {"type": "aws", "region": "us-west-2", "cache_stopped_nodes": False},
        "auth": {"ssh_user": sizes.user or "ubuntu"},
        "docker": {
            "container_name": "lamarck",
            "head_image": sizes.image("learner"),
            "worker_image": sizes.image("worker"),
            "run_options": ["--ulimit nofile=65536:65536", f"--shm-size={sizes.shared_gib + 1}g"],
        },
        "head_node_type": "learner",
        "available_node_types": {
            "learner": {
                "node_config": {"InstanceType": learner},
                "resources": {"CPU": 0, **gpus},
                "min_workers": 0,
                "max_workers": 0,
            },
            "worker": {
                "node_config": {"InstanceType": worker},
                "resources": {"CPU": sizes.cores_per_machine},
                "min_workers": sizes.workers,
                "max_workers": sizes.workers,
            },
        },
        "idle_timeout_minutes": 60,
    }


def _head(sizes: Sizes) -> str:
    train = f". {OWN}/{EXPORTS}; {shlex.join(sizes.command)}"
    lines = [
        f"The cluster {sizes.name}: {sizes.actors} actors on {sizes.workers} machines of "
        f"{sizes.cores_per_machine} cores, and the learner's.",
        "Ray's token and TLS are on. Each machine makes its certificate of the secrets in file_mounts.",
        "",
        "    ray up FILE",
        f"    ray exec FILE {shlex.quote(train)}",
        "    ray down FILE",
        "",
        "The launcher ends what Ray already runs on these machines for this user (ray stop). There,",
        "`python` and `ray` must be those that lamarckian-cli is installed with.",
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines)
