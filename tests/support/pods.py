"""Pods of manifests: what a kubelet would make of their environment, their files and their commands."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.support.kustomize import Tree, pod_spec

WORKLOADS: Final = ("Deployment", "StatefulSet")
_VARIABLE: Final = re.compile(r"\$\((?P<name>[A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True)
class Pod:
    """A pod with one container.

    Attributes:
        workload: Name of what makes it.
        files: Content by path, of all ConfigMaps and Secrets that are mounted.
        grace_s: How long it may take to end when asked.
    """

    name: str
    workload: str
    container: Tree
    command: tuple[str, ...]
    environment: dict[str, str]
    files: dict[str, str]
    grace_s: float


def workloads(objects: list[Tree]) -> dict[str, Tree]:
    """Deployments and StatefulSets by name."""
    return {one["metadata"]["name"]: one for one in objects if one["kind"] in WORKLOADS}


def pods_of(
    objects: list[Tree], name: str, *, secrets: Mapping[str, Mapping[str, str]] | None = None, first: bool = False
) -> list[Pod]:
    """All pods of a workload; those of a StatefulSet have its ordinals.

    Args:
        objects: All objects that are there.
        name: Of the workload.
        secrets: Content of each Secret that is there.
        first: Whether the container is meant that runs before the other one; ``first-`` is before the names.

    Raises:
        KeyError: Something that is not there is named.
    """
    one = workloads(objects)[name]
    maps = {made["metadata"]["name"]: made["data"] for made in objects if made["kind"] == "ConfigMap"}
    found = [_pod(one, number, maps, secrets or {}, first=first) for number in range(one["spec"].get("replicas", 1))]
    return [replace(pod, name=f"first-{pod.name}") for pod in found] if first else found


def _pod(
    one: Tree,
    number: int,
    maps: Mapping[str, Mapping[str, str]],
    secrets: Mapping[str, Mapping[str, str]],
    *,
    first: bool,
) -> Pod:
    workload = one["metadata"]["name"]
    name = f"{workload}-{number}" if one["kind"] == "StatefulSet" else f"{workload}-5d9c7b6f4-{number}"
    spec = pod_spec(one)
    (container,) = spec["initContainers" if first else "containers"]
    environment: dict[str, str] = {}
    for source in container.get("envFrom", []):
        environment |= maps[source["configMapRef"]["name"]]
    for variable in container.get("env", []):
        environment[variable["name"]] = _value(variable, name, secrets, environment)
    words = [*container["command"], *container.get("args", [])]
    return Pod(
        name=name,
        workload=workload,
        container=container,
        command=tuple(_expanded(word, environment) for word in words),
        environment=environment,
        files=_files(spec, container, maps, secrets),
        grace_s=spec["terminationGracePeriodSeconds"],
    )


def _value(variable: Tree, pod: str, secrets: Mapping[str, Mapping[str, str]], environment: Mapping[str, str]) -> str:
    match variable:
        case {"value": str(text)}:
            return _expanded(text, environment)
        case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
            return pod
        case {"valueFrom": {"secretKeyRef": {"name": name, "key": key}}}:
            return secrets[name][key]
        case _:
            raise KeyError(f"variable {variable}")


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """Text with the values of variables that stand before it.

    Raises:
        KeyError: There is no such variable, and a kubelet would leave the text as it is.
    """
    return _VARIABLE.sub(lambda match: environment[match["name"]], text)


def _files(
    spec: Tree, container: Tree, maps: Mapping[str, Mapping[str, str]], secrets: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    found: dict[str, str] = {}
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        for name, content in _content(volumes.get(mount["name"], {}), maps, secrets).items():
            found[f"{mount['mountPath']}/{name}"] = content
    return found


def _content(
    volume: Any,  # noqa: ANN401 - a tree of YAML
    maps: Mapping[str, Mapping[str, str]],
    secrets: Mapping[str, Mapping[str, str]],
) -> Mapping[str, str]:
    """Files of a volume; those of an empty one and of a claim are made by the program."""
    match volume:
        case {"configMap": {"name": name}}:
            return maps[name]
        case {"secret": {"secretName": name, "items": items}}:
            return {item["path"]: secrets[name][item["key"]] for item in items}
        case {"secret": {"secretName": name}}:
            return secrets[name]
        case _:
            return {}
