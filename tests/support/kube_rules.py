"""Rules of an API server that need no server: paths, selectors, patches, who may be bound."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from berth.runtime.kube.port import RefusedError

Tree = dict[str, Any]
Test = Callable[[Tree], bool]

_LIST_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "volumes": "name",
}
"""Key of the items of lists that a strategic merge patch merges; all others are replaced."""

_FIELDS = {
    "pods": {"spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "status.phase"},
    "nodes": {"spec.unschedulable"},
    "events": {"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"},
}
_LABEL_TERM = re.compile(r"\s*(!?[\w./-]+)\s*(?:(==|=|!=)\s*([\w.-]*)|(in|notin)\s*\(([^)]*)\))?\s*(?:,|$)")
_FIELD_TERM = re.compile(r"([\w.]+)(==|=|!=)(.*)")


class Place(NamedTuple):
    """What a path means; empty where it does not say."""

    root: str
    namespace: str
    plural: str
    name: str = ""
    sub: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def is_custom(self) -> bool:
        group = self.root.split("/")[2]
        return "." in group and (not group.endswith(".k8s.io") or group.endswith(".x-k8s.io"))


def place_of(path: str) -> Place:
    """What a path means."""
    steps = path.strip("/").split("/")
    head = 2 if steps[0] == "api" else 3
    root, rest = "/" + "/".join(steps[:head]), steps[head:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return Place(root, namespace, *rest)


def refuse(status: int, cause: str, message: str) -> NoReturn:
    """Answer no.

    Raises:
        RefusedError: Always.
    """
    raise RefusedError(message, status=status, cause=cause)


def selector(params: Mapping[str, str], plural: str) -> Test:
    """Test of an object by ``labelSelector`` and ``fieldSelector``."""
    tests = [*_label_tests(params.get("labelSelector", "")), *_field_tests(params.get("fieldSelector", ""), plural)]
    return lambda found: all(test(found) for test in tests)


def _label_tests(text: str) -> list[Test]:
    tests: list[Test] = []
    at = 0
    while at < len(text):
        match = _LABEL_TERM.match(text, at)
        if match is None:
            refuse(400, "BadRequest", f"unable to parse requirement: {text}")
        key, operator, value, among, values = match.groups()
        if operator is not None:
            tests.append(_label_test(key, {value}, wanted=operator != "!="))
        elif among is not None:
            tests.append(_label_test(key, {one.strip() for one in values.split(",")}, wanted=among == "in"))
        else:
            tests.append(_label_presence(key.removeprefix("!"), wanted=not key.startswith("!")))
        at = match.end()
    return tests


def _label_test(key: str, values: set[str], *, wanted: bool) -> Test:
    return lambda found: (_labels(found).get(key) in values) == wanted


def _label_presence(key: str, *, wanted: bool) -> Test:
    return lambda found: (key in _labels(found)) == wanted


def _labels(found: Tree) -> Tree:
    return found["metadata"].get("labels") or {}


def _field_tests(text: str, plural: str) -> list[Test]:
    tests = []
    for term in filter(None, text.split(",")):
        match = _FIELD_TERM.fullmatch(term)
        if match is None or match[1] not in {"metadata.name", "metadata.namespace", *_FIELDS.get(plural, ())}:
            refuse(400, "BadRequest", f"field label not supported: {term}")
        tests.append(_field_test(match[1].split("."), match[3], wanted=match[2] != "!="))
    return tests


def _field_test(steps: list[str], value: str, *, wanted: bool) -> Test:
    def test(found: Tree) -> bool:
        at: Any = found
        for step in steps:
            at = at.get(step) if isinstance(at, dict) else None
        text = str(at).lower() if isinstance(at, bool) else str(at or "")
        return (text == value) == wanted

    return test


def merged(old: Tree, patch: Tree, *, by_key: bool = False) -> Tree:
    """JSON merge patch; ``by_key`` merges some lists, as a strategic one does."""
    new = dict(old)
    for key, value in patch.items():
        was = old.get(key)
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            new[key] = merged(was if isinstance(was, dict) else {}, value, by_key=by_key)
        elif by_key and key in _LIST_KEYS and isinstance(was, list):
            new[key] = _merged_list(was, value, _LIST_KEYS[key])
        else:
            new[key] = value
    return new


def _merged_list(old: list[Tree], patch: list[Tree], key: str) -> list[Tree]:
    new = {item[key]: item for item in old}
    for item in patch:
        if item.get("$patch") == "delete":
            new.pop(item[key], None)
        else:
            new[item[key]] = merged(new.get(item[key], {}), item, by_key=True)
    return list(new.values())


def no_binding(pod: Tree, meta: Tree) -> str:
    """Why a pod cannot be bound; empty if it can."""
    name = pod["metadata"]["name"]
    if meta.get("uid", "") not in {"", pod["metadata"]["uid"]}:
        return f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {pod['metadata']['uid']}"
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if pod["spec"].get("nodeName"):
        return f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""
