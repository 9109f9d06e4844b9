"""Manifests: Ray's launcher takes them by its own schema, a RayJob holds together, secrets are kept."""

from __future__ import annotations

import functools
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters.manifest import write_manifest
from lamarckian_cli.launch.clusters.secrets import new_secrets
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.wiring import job_of

PAPER = ("env=pong", "cluster=6000cores", "seed=3")
ODD_HOSTS = ("", " ", "a b", "-oProxyCommand=x", "a;b", "a\n", "$(x)", "x" * 254)
ODD_USERS = ("", "-oProxyCommand=x", "a b", "a;b", "a\n")
ODD_IMAGES = ("Team/", "a b/", "-x/", "here//", "https://registry/", "x/:", "a\n/", "x" * 250 + "/")
ODD_NAMES = ("", "-a", "a-", "1a", "A", "a_b", "a.b", "a b", "a" * 41, "a\n")


@functools.cache
def job_called(*overrides: str) -> Job:
    return job_of(overrides)


def written(tmp_path: Path, *overrides: str, **keys: Any) -> dict[str, Any]:
    out = tmp_path / "cluster.yaml"
    write_manifest(job_called(*(overrides or PAPER), "algo.unroll=32"), out=out, **keys)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cluster.yaml", "cluster.yaml.secrets"]
    tree: dict[str, Any] = yaml.safe_load(out.read_text())
    return tree


def pods(tree: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = tree["spec"]["rayClusterSpec"]
    return [g["template"]["spec"] for g in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


# ---------------------------------------------------------------------- Ray's launcher


@pytest.mark.parametrize("hosts", [(), tuple(f"m{i}" for i in range(151))], ids=["cloud", "own"])
def test_the_launcher_takes_it(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    import jsonschema
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    tree = written(tmp_path, kind="ray", hosts=hosts, user="me")
    schema = Path(ray.autoscaler.__file__).with_name("ray-schema.json")
    jsonschema.validate(tree, json.loads(schema.read_text()))
    prepared = prepare_config(tree)
    validate_config(prepared)
    workers = [t for n, t in prepared["available_node_types"].items() if n != "learner"]
    assert sum(t["min_workers"] for t in workers) == prepared["max_workers"] == 150
    assert prepared["auth"]["ssh_user"] == "me"


def test_the_launcher_starts_ray_with_token_and_tls(tmp_path: Path) -> None:
    tree = written(tmp_path, kind="ray", hosts=tuple(f"m{i}" for i in range(151)))
    assert tree["provider"] == {
        "type": "local",
        "head_ip": "m0",
        "worker_ips": [f"m{i}" for i in range(1, 151)],
    }
    assert list(tree["file_mounts"].values()) == [str(tmp_path / "cluster.yaml.secrets")]
    (target,) = tree["file_mounts"]
    assert f"clusters.secrets {target} " in tree["setup_commands"][0]
    for role, address in (("head", "--head"), ("worker", "--address=$RAY_HEAD_IP:6379")):
        *_, start = tree[f"{role}_start_ray_commands"]
        assert start.startswith(". ~/.lamarck/manifest/own/ray.sh; ")
        assert address in start
    head = (tmp_path / "cluster.yaml").read_text().partition("cluster_name")[0]
    assert "lamarck train env=pong seed=3 algo.unroll=32 cluster=auto cluster.actors=6000" in head


def test_a_cloud_s_machines_are_as_large_as_the_cluster_s(tmp_path: Path) -> None:
    tree = written(tmp_path, "cluster=auto", "cluster.cores=30", "cluster.cores_per_machine=10", kind="ray")
    learner, worker = (tree["available_node_types"][n] for n in ("learner", "worker"))
    assert learner["resources"] == {"CPU": 0}
    assert (worker["min_workers"], worker["resources"]) == (3, {"CPU": 10})
    assert worker["node_config"]["InstanceType"] == "c7i.4xlarge"


# ---------------------------------------------------------------------- KubeRay


def test_a_rayjob_of_the_size_asked_for(tmp_path: Path) -> None:
    tree = written(tmp_path, kind="kuberay", name="big")
    assert (tree["apiVersion"], tree["kind"], tree["metadata"]["name"]) == ("ray.io/v1", "RayJob", "big")
    spec = tree["spec"]
    assert spec["entrypoint"] == (
        "lamarck train env=pong seed=3 algo.unroll=32 cluster=auto cluster.actors=6000 "
        "cluster.learner_gpus=1 run.dir=/runs/big"
    )
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token", "secretName": "big-secrets"}
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 150
    assert workers["rayStartParams"] == {"num-cpus": "40"}
    head, worker = (pod["containers"][0]["resources"] for pod in pods(tree))
    assert head["limits"]["nvidia.com/gpu"] == 1
    assert worker["limits"]["cpu"] == 40
    assert head["limits"] == head["requests"]
    assert "nvidia.com/gpu" not in worker["limits"]


def test_a_run_folder_of_ones_own_stays(tmp_path: Path) -> None:
    tree = written(tmp_path, *PAPER, "run.dir=/runs/mine", kind="kuberay")
    assert tree["spec"]["entrypoint"].count("run.dir=") == 1


def test_every_pod_has_tls_shared_memory_and_whole_mounts(tmp_path: Path) -> None:
    for pod in pods(written(tmp_path, kind="kuberay")):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        (certificate,) = pod["initContainers"]
        (ray,) = pod["containers"]
        for container in (certificate, ray):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
        assert certificate["image"] == ray["image"]
        own = next(m["mountPath"] for m in ray["volumeMounts"] if m["name"] == "own")
        environment = {entry["name"]: entry["value"] for entry in ray["env"]}
        assert environment["RAY_USE_TLS"] == "1"
        made = certificate["command"][certificate["command"].index("/etc/lamarck/secrets") + 1]
        assert all(v.startswith(f"{made}/") for n, v in environment.items() if n != "RAY_USE_TLS")
        assert made.startswith(f"{own}/")
        assert volumes["shared-memory"]["emptyDir"]["medium"] == "Memory"
        assert {"name": "shared-memory", "mountPath": "/dev/shm"} in ray["volumeMounts"]
        # The authority's key is there while the certificate is made, and not for Ray.
        assert "secrets" not in {mount["name"] for mount in ray["volumeMounts"]}
        # The shared memory counts as the container's.
        shared = int(volumes["shared-memory"]["emptyDir"]["sizeLimit"].removesuffix("Gi"))
        assert int(ray["resources"]["limits"]["memory"].removesuffix("Gi")) > shared


def test_images_are_those_of_the_docker_folder(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docker" / "README.md").read_text()
    images = {
        pod["containers"][0]["image"] for pod in pods(written(tmp_path, kind="kuberay", images="here/"))
    }
    assert len(images) == 2
    assert all(
        image.startswith("here/") and f"-t {image.removeprefix('here/')} ." in text for image in images
    )


# ---------------------------------------------------------------------- secrets, and what is refused


def test_secrets_are_made_once_and_are_the_owner_s(tmp_path: Path) -> None:
    written(tmp_path, kind="kuberay")
    folder = tmp_path / "cluster.yaml.secrets"
    before = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(before) == set(new_secrets("x"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    written(tmp_path, kind="ray", force=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    assert before["auth_token"] not in (tmp_path / "cluster.yaml").read_text()


@pytest.mark.parametrize(
    ("overrides", "keys", "said"),
    [
        (PAPER, {"kind": "helm"}, "--kind is 'helm'; choose ray or kuberay"),
        (PAPER, {"name": "My_Cluster"}, "--name is 'My_Cluster'; take lower case"),
        (PAPER, {"hosts": ("a", "b")}, "--hosts goes with --kind ray alone"),
        (PAPER, {"hosts": ("a", "b"), "kind": "ray"}, "--hosts has 2 machines, and 6000 actors .* need 151"),
        (PAPER, {"hosts": ("a", "b", "a"), "kind": "ray"}, "--hosts names a twice"),
        *((PAPER, {"hosts": ("a", odd), "kind": "ray"}, "is no name of a machine") for odd in ODD_HOSTS),
        *((PAPER, {"user": odd, "kind": "ray"}, "--user is .* no name of a user") for odd in ODD_USERS),
        (PAPER, {"user": "me"}, "--user goes with --kind ray alone"),
        *(
            (PAPER, {"images": odd, "kind": "ray"}, "--images is .* no name of an image")
            for odd in ODD_IMAGES
        ),
        *((PAPER, {"images": odd}, "--images is .* no name of an image") for odd in ODD_IMAGES),
        *((PAPER, {"name": odd}, "--name is .*; take lower case") for odd in ODD_NAMES),
        (PAPER, {"out": "."}, "which is a folder; give the name of a file"),
        (PAPER, {"out": "x" * 300}, "which cannot be written"),
        (("env=pong",), {}, "cluster.kind is 'local', of one machine"),
        (("cluster=auto",), {}, "cluster.cores is null, so this cluster has no size"),
        (PAPER, {"out": "no/such/folder/x.yaml"}, "x.yaml', which cannot be written"),
    ],
)
def test_what_cannot_be_written(
    tmp_path: Path, overrides: tuple[str, ...], keys: dict[str, Any], said: str
) -> None:
    out = tmp_path / keys.get("out", "x.yaml")
    with pytest.raises(ClusterError, match=said):
        write_manifest(job_called(*overrides), **{"kind": "kuberay", **keys, "out": out})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "images", ["", "here/", "me/my-", "registry.example:5000/team/a__b/", "localhost:5000/", "ghcr.io/me/"]
)
def test_images_of_every_registry(tmp_path: Path, images: str) -> None:
    (image, *_) = {
        pod["containers"][0]["image"] for pod in pods(written(tmp_path, kind="kuberay", images=images))
    }
    assert image.startswith(f"{images}lamarckian-")


def test_a_manifest_is_overwritten_only_where_that_is_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "cluster.yaml"
    out.write_text("mine")
    for kind in ("ray", "kuberay"):
        with pytest.raises(ClusterError, match=r"cluster.yaml', which is there already; .* --force"):
            write_manifest(job_called(*PAPER), out=out, kind=kind)
    assert out.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]
    assert written(tmp_path, kind="kuberay", force=True)["kind"] == "RayJob"


def test_what_is_no_ordinary_file_is_not_replaced(tmp_path: Path) -> None:
    pipe, link, nowhere = tmp_path / "pipe", tmp_path / "link", tmp_path / "nowhere"
    os.mkfifo(pipe)
    link.symlink_to(nowhere)
    for out in (pipe, link):
        with pytest.raises(ClusterError, match="which is no ordinary file"):
            write_manifest(job_called(*PAPER), out=out, kind="ray", force=True)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_a_folder_that_is_no_cluster_s_secrets_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "x.yaml.secrets"
    folder.mkdir()
    (folder / "mine").touch()
    with pytest.raises(ClusterError, match=r"x.yaml.secrets is there, but has no ca.pem and no ca-key.pem"):
        write_manifest(job_called(*PAPER), out=tmp_path / "x.yaml", kind="ray")
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml.secrets"]
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_neither_manifest_nor_secrets_where_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        (tmp_path / "x.yaml.secrets").mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lamarckian_cli.launch.clusters.manifest.write_private", full)
    with pytest.raises(ClusterError, match=r"cannot be written \(No space left on device\)"):
        write_manifest(job_called(*PAPER), out=tmp_path / "x.yaml", kind="ray")
    assert list(tmp_path.iterdir()) == []
