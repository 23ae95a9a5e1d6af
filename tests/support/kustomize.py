"""Objects of a kustomization, for machines without ``kubectl``: as much of kustomize as ``k8s/`` uses, and no more.

Fields: resources, components, configMapGenerator (files, literals, behavior merge, options with labels), patches
(strategic, JSON 6902, or of an object that is deleted, by path or inline), labels (of objects alone) and images
(newName, newTag). Anything else is an error, so that nothing is left out in silence.
"""

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

Tree = dict[str, Any]

_HEAD: Final = {"apiVersion", "kind"}
_FIELDS: Final = _HEAD | {"resources", "components", "configMapGenerator", "patches", "labels", "images"}
_KEY_OF_LIST: Final = {
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), "name"),
    "volumeMounts": "mountPath",
}
_HASH_LENGTH: Final = 10
_HASH_LETTERS: Final = str.maketrans({"0": "g", "1": "h", "3": "k", "a": "m", "e": "t"})
_HTML: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class KustomizeError(Exception):
    """A kustomization that cannot be read, or that uses what is not read here."""


def render(folder: Path, components: Sequence[Path] = ()) -> list[Tree]:
    """Objects of the kustomization in ``folder``, in order of kind, namespace and name.

    Args:
        folder: The kustomization.
        components: As for :func:`objects_of`.

    Raises:
        KustomizeError: It is wrong, or uses more than this reader knows.
    """
    objects, generated = objects_of(folder, components)
    names = {one["metadata"]["name"]: f"{one['metadata']['name']}-{sum_of(one)}" for one in generated}
    for one in objects:
        for reference in _references(one):
            reference["name"] = names.get(reference["name"], reference["name"])
    for one in generated:
        one["metadata"]["name"] = names[one["metadata"]["name"]]
    found = {identity(one): one for one in objects}
    if len(found) != len(objects):
        raise KustomizeError(f"{folder}: two objects have one name")
    return [found[key] for key in sorted(found)]


def identity(one: Tree) -> tuple[str, str, str]:
    """Kind, namespace and name of an object; the namespace is empty where it has none."""
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def sum_of(config_map: Tree) -> str:
    """End of the name of a generated ConfigMap; its own name does not count, as in kustomize."""
    about = {"data": config_map["data"], "kind": "ConfigMap", "name": ""}
    text = json.dumps(about, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for letter, escaped in _HTML.items():
        text = text.replace(letter, escaped)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH].translate(_HASH_LETTERS)


def objects_of(folder: Path, components: Sequence[Path] = ()) -> tuple[list[Tree], list[Tree]]:
    """All objects of a kustomization, and those among them that are generated, before their names get their ends.

    Args:
        folder: The kustomization.
        components: Components that a kustomization with it as its only resource has.

    Raises:
        KustomizeError: As :func:`render`.
    """
    objects: list[Tree] = []
    generated: list[Tree] = []
    for one in (folder, *components):
        _apply(one, objects, generated)
    return objects, generated


def _apply(folder: Path, objects: list[Tree], generated: list[Tree]) -> None:
    """Add the objects of a kustomization to others, and let it change all of them.

    Raises:
        KustomizeError: As :func:`render`.
    """
    tree = _kustomization(folder, _FIELDS)
    for name in tree.get("resources", []):
        path = folder / name
        if path.is_dir():
            inner, made = objects_of(path)
            objects += inner
            generated += made
        else:
            objects += read(path)
    for name in tree.get("components", []):
        _apply(folder / name, objects, generated)
    for spec in tree.get("configMapGenerator", []):
        _generate(folder, spec, objects, generated)
    for patch in tree.get("patches", []):
        _patch(folder, patch, objects, generated)
    for one in objects:
        for labels in tree.get("labels", []):
            if set(labels) != {"pairs"}:
                raise KustomizeError(f"{folder}: labels are given to objects alone")
            one["metadata"].setdefault("labels", {}).update(labels["pairs"])
    _set_images(objects, tree)


def _kustomization(folder: Path, fields: set[str]) -> Tree:
    tree: Tree = _load((folder / "kustomization.yaml").read_text("utf-8"))
    if unknown := set(tree) - fields:
        raise KustomizeError(f"{folder}: {', '.join(sorted(unknown))} is not read here")
    return tree


def _load(text: str) -> Any:  # noqa: ANN401  # a document
    """A document, by the parser in C: in Python it takes seven times as long."""
    return yaml.load(text, yaml.CSafeLoader)


def read(path: Path) -> list[Tree]:
    """Objects of a file."""
    return [one for one in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader) if one is not None]


def _generate(folder: Path, spec: Tree, objects: list[Tree], generated: list[Tree]) -> None:
    if unknown := set(spec) - {"name", "namespace", "behavior", "files", "literals", "options"}:
        raise KustomizeError(f"{folder}: {', '.join(sorted(unknown))} of {spec['name']} is not read here")
    data: dict[str, str] = {}
    for file in spec.get("files", []):
        key, _, path = file.rpartition("=")
        data[key or Path(path).name] = (folder / path).read_text("utf-8")
    for literal in spec.get("literals", []):
        key, _, value = literal.partition("=")
        data[key] = value
    if spec.get("behavior", "create") == "create":
        options = spec.get("options", {"labels": {}})
        if set(options) != {"labels"}:
            raise KustomizeError(f"{folder}: options of {spec['name']} other than labels are not read here")
        metadata = {"name": spec["name"], "namespace": spec["namespace"]}
        if options["labels"]:
            metadata["labels"] = dict(options["labels"])
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        objects.append(made)
        generated.append(made)
        return
    known = [one for one in generated if one["metadata"]["name"] == spec["name"]]
    if spec["behavior"] != "merge" or len(known) != 1:
        raise KustomizeError(f"{folder}: ConfigMap {spec['name']} cannot be merged into one")
    known[0]["data"].update(data)


def _patch(folder: Path, patch: Tree, objects: list[Tree], generated: list[Tree]) -> None:
    text = (folder / patch["path"]).read_text("utf-8") if "path" in patch else patch["patch"]
    change = _load(text)
    target = patch.get("target") or {"kind": change["kind"], "name": change["metadata"]["name"]}
    if unknown := set(target) - {"kind", "name"}:
        raise KustomizeError(f"{folder}: {', '.join(sorted(unknown))} of a patch's target is not read here")
    met = [
        one
        for one in objects
        if one["kind"] == target["kind"] and target.get("name", one["metadata"]["name"]) == one["metadata"]["name"]
    ]
    if not met:
        raise KustomizeError(f"{folder}: a patch of {target} meets no object")
    for one in met:
        if isinstance(change, dict) and change.get("$patch") == "delete":
            for kept in (objects, generated):
                kept[:] = [other for other in kept if other is not one]
        elif isinstance(change, list):
            for step in change:
                _step(one, copy.deepcopy(step))
        else:
            _merge(one, copy.deepcopy(change))


def _step(one: Tree, step: Tree) -> None:
    """One operation of a JSON patch.

    Raises:
        KustomizeError: It has no place in the object, or is no operation that is read here.
    """
    *way, last = step["path"].strip("/").split("/")
    at: Any = one
    for name in way:
        at = at[int(name)] if isinstance(at, list) else at[name]
    match step["op"], at:
        case "add", list() if last == "-":
            at.append(step["value"])
        case "add", dict():
            at[last] = step["value"]
        case "replace", dict() if last in at:
            at[last] = step["value"]
        case "remove", dict() if last in at:
            del at[last]
        case _:
            raise KustomizeError(f"{step['op']} of {step['path']} cannot be done")


def _merge(into: Tree, change: Tree) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, list) and key in _KEY_OF_LIST:
            into[key] = _merged(into.get(key, []), value, _KEY_OF_LIST[key])
        else:
            into[key] = value


def _merged(old: list[Tree], new: list[Tree], key: str) -> list[Tree]:
    """List of things that are known by a name; what was not there goes first, as kustomize does it."""
    known = {one[key]: one for one in old}
    for one in new:
        if one[key] in known:
            _merge(known[one[key]], one)
    return [*(one for one in new if one[key] not in known), *old]


def _set_images(objects: list[Tree], kustomization: Tree) -> None:
    for image in kustomization.get("images", []):
        for one in objects:
            _set_image(one, image)


def _set_image(one: Tree, image: Tree) -> None:
    if unknown := set(image) - {"name", "newName", "newTag"}:
        raise KustomizeError(f"{', '.join(sorted(unknown))} of an image is not read here")
    for container in containers_of(pod_spec(one)):
        name, _, tag = container["image"].partition(":")
        if name == image["name"]:
            container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"


def pod_spec(one: Tree) -> Tree:
    """Spec of the pods that an object makes; empty where it makes none."""
    found = one.get("spec", {}).get("template", {}).get("spec", {})
    assert isinstance(found, dict)
    return found


def containers_of(spec: Tree) -> list[Tree]:
    """Containers of a pod, those first that run before the others."""
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def _references(one: Tree) -> Iterator[Tree]:
    """Places in which an object names a ConfigMap."""
    spec = pod_spec(one)
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            yield volume["configMap"]
    for container in containers_of(spec):
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                yield source["configMapRef"]
