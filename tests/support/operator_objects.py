"""Objects of Ray's and Kubeflow's operators, with the shapes of their samples, for nodes with 8 chips."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from tests.support.kube_cells import a_container, a_spec
from tests.support.kustomize import Tree

KINDS: Final = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch"),
    "TFJob": ("tfReplicaSpecs", "tensorflow"),
    "MPIJob": ("mpiReplicaSpecs", "mpi"),
    "MXJob": ("mxReplicaSpecs", "mxnet"),
    "PaddleJob": ("paddleReplicaSpecs", "paddle"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost"),
}
"""Field of the tasks, and name of their container, by kind."""
_HEADS: Final = frozenset({"head", "Launcher", "Scheduler", "PS", "Server", "TunerTracker", "TunerServer"})
"""Tasks that need no accelerator."""


def a_ray_cluster(
    workers: int, *, hosts: int = 1, least: int | None = None, policy: str = "Always", **spec: object
) -> Tree:
    """A RayCluster: a head without chips, and workers with all chips of a node each; more fields of its spec."""
    group = {
        "groupName": "w",
        "replicas": workers,
        "minReplicas": workers if least is None else least,
        "maxReplicas": 6,
        "numOfHosts": hosts,
        "rayStartParams": {},
        "template": {"spec": a_spec(8, policy=policy)},
    }
    head = {"rayStartParams": {}, "template": {"spec": a_spec(0, policy="Always")}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray"},
        "spec": {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [group], **spec},
    }


def resized_cluster(body: Tree, workers: int) -> list[Tree]:
    """Its worker groups with another number of replicas."""
    return [group | {"replicas": workers, "minReplicas": workers} for group in body["spec"]["workerGroupSpecs"]]


def a_kubeflow_job(kind: str = "PyTorchJob", *, policy: str = "OnFailure", run_for: str = "", run: Tree | None = None, **replicas: int | tuple[int, int]) -> Tree:  # fmt: skip
    """A job of tasks of so many pods, with all chips of a node each, or with so many chips."""
    field, container = KINDS[kind]
    notes = {"berth/run-for": run_for} if run_for else {}
    specs = {}
    for task, number in replicas.items():
        count, chips = number if isinstance(number, tuple) else (number, 8)
        spec = a_spec(chips)
        spec["containers"][0]["name"] = container
        del spec["restartPolicy"]
        template = {"metadata": {"annotations": notes}, "spec": spec}
        specs[task] = {"replicas": count, "restartPolicy": policy, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "llm"},
        "spec": {"runPolicy": run or {}, field: specs},
    }


def samples(folder: Path, *kinds: str) -> Iterator[tuple[str, Tree, int]]:
    """Objects of these kinds in the files of a release's samples, with the names of the files, for nodes with 8 chips.

    Their accelerators become chips, workers without any get two, other resources are small, nodes are asked for by the
    kind of their chips alone, and claims become empty folders; all else stays. Objects have names of their own, since
    several samples have the same. With each comes the number of pods that it is to have.
    """
    for number, file in enumerate(sorted(folder.rglob("*.yaml"))):
        for one in yaml.safe_load_all(file.read_text("utf-8")):
            if isinstance(one, dict) and one.get("kind") in kinds:
                pods = 0
                for task, count, template in _tasks(one["spec"]):
                    _dress(template["spec"], 0 if task in _HEADS else 2)
                    pods += count
                yield (
                    str(file.relative_to(folder)),
                    {**one, "metadata": {**one["metadata"], "name": f"s{number}"}},
                    pods,
                )


def _tasks(spec: Tree) -> Iterator[tuple[str, int, Tree]]:
    """Tasks of an object with their pods and templates."""
    if "headGroupSpec" in spec:
        yield "head", 1, spec["headGroupSpec"]["template"]
        for group in spec.get("workerGroupSpecs") or ():
            replicas = group.get("replicas", group.get("minReplicas", 0))
            yield group["groupName"], replicas * group.get("numOfHosts", 1), group["template"]
        return
    (field,) = [name for name in spec if name.endswith("ReplicaSpecs")]
    for task, one in spec[field].items():
        yield task, one.get("replicas", 1), one["template"]


def _dress(spec: Tree, chips: int) -> None:
    """Make the spec of a pod one for the nodes of the test; ``chips`` are for containers that name no accelerator."""
    usual = a_spec(0)
    for field in ("schedulerName", "nodeSelector"):
        spec[field] = usual[field]
    for volume in spec.get("volumes", ()):
        if volume.pop("persistentVolumeClaim", None) is not None:
            volume["emptyDir"] = {}
    for container in spec["containers"]:
        asked = container.get("resources", {})
        limits = {**asked.get("requests", {}), **asked.get("limits", {})}
        own = sum(int(count) for name, count in limits.items() if "/" in name)
        container["resources"] = a_container(min(own or chips, 8))["resources"]
        chips = 0
