"""Templates and values of the chart, made of the objects of the base, of a trial, of production and of a small cell.

Where these are the same, so is the chart. Where they differ, or where a cluster may want something else, there is a
value: :mod:`tests.chart.places` says which. A difference without a value is an error, so that nothing is left out.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from tests.chart import config_maps
from tests.chart.manifests import NAMESPACE, ChartError, Form, Key, Manifests, Met, There
from tests.chart.places import ADDED, CONDITIONS, FIELDS, OBJECTS, OF_A_FORM, ONE
from tests.chart.text import Given, Node, Tree, Value, template

HEAD: Final = "{{- /* Written by make chart from the manifests in k8s/; change those. */ -}}\n"
_LAB: Final = "berth-lab"
"""Image of the simulated cluster; with a registry, its name too is that of Berth with ``-lab`` after it."""
KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
}
"""What an item of a list is known by."""
GROUPS: Final = {
    "Namespace": "namespaces",
    "NetworkPolicy": "network-policies",
    "PodMonitor": "pod-monitor",
    "PriorityClass": "priority-class",
}
"""Template of a kind; other objects are with their component."""

Path = tuple[str, ...]


@dataclass(frozen=True)
class Chart:
    """What is written.

    Attributes:
        version: Tag of the image, which is the version of the chart too.
        templates: Text of each template by its name.
        files: Text of each file that templates read, by its name.
        values: Those of production, which are the defaults.
        trial: Those that a trial has instead.
        small: Those that a small cell has instead.
    """

    version: str
    templates: dict[str, str]
    files: dict[str, str]
    values: Tree
    trial: Tree
    small: Tree


def chart_of(forms: dict[Form, Manifests], alone: Manifests) -> Chart:
    """The chart.

    Args:
        forms: Manifests of the base and of all overlays.
        alone: Objects that are in no overlay.

    Raises:
        ChartError: The manifests differ where the chart has no value.
    """
    met = Met()
    files: dict[str, str] = {}
    texts: dict[str, list[tuple[str, str]]] = {}
    for name in dict.fromkeys(name for one in forms.values() for name in one.maps):
        group = name.removeprefix("berth-")
        there = {form: one.maps[name] for form, one in forms.items() if name in one.maps}
        data, document = config_maps.document(name, there, met, files)
        texts[group] = [("", data), (_condition("ConfigMap", name), f"---\n{document}")]
    names = {name for one in forms.values() for name in one.maps}
    for key in dict.fromkeys(key for one in (*forms.values(), alone) for key in one.objects):
        node = _Object(key, met, names).node(_there(key, forms, alone))
        texts.setdefault(_group(node), []).append((_condition(key[0], key[2]), f"---\n{template(node)}"))
    values, trial, small = met.trees()
    templates = {f"{group}.yaml": HEAD + _guarded(parts) for group, parts in texts.items()}
    return Chart(met.tag, templates, files, values, trial, small)


def _there(key: Key, forms: dict[Form, Manifests], alone: Manifests) -> There:
    if key in alone.objects:
        return {"production": alone.objects[key]}
    there: There = {form: one.objects[key] for form, one in forms.items() if key in one.objects}
    condition = _condition(key[0], key[2])
    is_known = there.keys() == forms.keys() - {"small"} if condition == f"not {ONE}" else bool(condition)
    if len(there) < len(forms) and not is_known:
        raise ChartError(f"{' '.join(key)} is not in all manifests: expected a value of the chart for it")
    return there


def _condition(kind: str, name: str) -> str:
    return next((text for place, text in OBJECTS if place.meets(kind, name, ())), "")


def _guarded(parts: list[tuple[str, str]]) -> str:
    """Parts of a template, each with its condition; neighbours with one condition have it once."""
    found = []
    for condition, neighbours in groupby(parts, lambda part: part[0]):
        text = "".join(text for _, text in neighbours)
        found.append(f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text)
    return "".join(found)


def _group(node: Tree) -> str:
    labels = node["metadata"]["labels"]
    component = labels.get("app.kubernetes.io/component") or labels.get("app.kubernetes.io/name")
    return str(GROUPS.get(node["kind"], component))


class _Object:
    """One object: joins what it is in all forms.

    Args:
        key: Its identity.
        met: Gets the values.
        maps: Names of all ConfigMaps.
    """

    def __init__(self, key: Key, met: Met, maps: set[str]) -> None:
        self._kind, _, self._name = key
        self._met = met
        self._maps = maps

    def node(self, there: There, path: Path = ()) -> Node:
        """What stands in the template for a field.

        Args:
            there: What it is in each form that has it; one at least.
            path: Keys above it.

        Raises:
            ChartError: The forms differ, and there is no value for it.
        """
        for one in FIELDS:
            if one.place.meets(self._kind, self._name, path):
                self._met.note(one.value_of(self._name), there)
                return one.node(self._name)
        first, *others = there.values()
        if isinstance(first, dict):
            return self._members(there, path) | dict(self._added(path))
        if isinstance(first, list):
            items = {form: _named(one, KEYS.get(path[-1])) for form, one in there.items()}
            return [*self._members(items, path).values(), *(node for _, node in self._added(path))]
        if any(other != first for other in others):
            for place, form, condition in OF_A_FORM:
                if place.meets(self._kind, self._name, path):
                    return _of_a_form(there, form, condition)
            raise ChartError(f"{self._at(path)} is {dict(there)}: expected a value of the chart for it")
        return self._leaf(first, path)

    def _members(self, there: There, path: Path) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key in _joined([list(one) for one in there.values()]):
            inner = {form: one[key] for form, one in there.items() if key in one}
            here = (*path, key)
            found[key] = self.node(inner, here)
            if len(inner) < len(there):
                found[key] = Given(f"if {self._condition(here)}", found[key])
        return found

    def _condition(self, path: Path) -> str:
        for place, condition in CONDITIONS:
            if place.meets(self._kind, self._name, path):
                return condition
        raise ChartError(f"{self._at(path)} is not in all manifests: expected a value of the chart for it")

    def _added(self, path: Path) -> Iterator[tuple[str, Node]]:
        return ((key, node) for place, key, node in ADDED if place.meets(self._kind, self._name, path))

    def _leaf(self, value: Any, path: Path) -> Node:  # noqa: ANN401  # of YAML
        if value == NAMESPACE:
            return Value('include "berth.namespace" .')
        if isinstance(value, str) and f":{NAMESPACE}:" in value:  # an account, in an expression
            return Value(
                f'replace ":{NAMESPACE}:" (printf ":%s:" (include "berth.namespace" .)) {json.dumps(value)} | toJson'
            )
        if path[-1] == "image":
            return self._image(value)
        if path[-2:] in {("configMap", "name"), ("configMapRef", "name")}:
            if value not in self._maps:
                raise ChartError(f"{self._at(path)} is {value}: expected one of {', '.join(sorted(self._maps))}")
            return Value(f'include "berth.configMap" (list . "{value}")')
        return value

    def _image(self, image: str) -> Node:
        repository, _, tag = image.rpartition(":")
        if self._name == "nats":
            self._met.note("nats.image.repository", {"production": repository})
            self._met.note("nats.image.tag", {"production": tag})
            return Value('printf "%s:%s" .Values.nats.image.repository .Values.nats.image.tag')
        self._met.note_tag(tag)
        if repository == _LAB:
            return Value('include "berth.labImage" .')
        self._met.note("image.repository", {"production": repository})
        return Value('include "berth.image" .')

    def _at(self, path: Path) -> str:
        return f"{self._kind} {self._name}: {' '.join(path)}"


def _of_a_form(there: There, form: Form, condition: str) -> Value:
    """What a field is in a form, where a condition holds, and otherwise.

    Raises:
        ChartError: The other forms differ.
    """
    others = {json.dumps(value) for other, value in there.items() if other != form}
    if len(others) != 1:
        raise ChartError(f"{dict(there)}: expected the same in all forms but {form}")
    return Value(f"ternary {json.dumps(there[form])} {others.pop()} {condition}")


def _named(items: list[Any], key: str | None) -> Tree:
    """Items by their name, or by their number."""
    return {str(one[key]) if key else str(number): one for number, one in enumerate(items)}


def _joined(lists: list[list[str]]) -> list[str]:
    """All names, in an order that agrees with each of the lists."""
    found = list(lists[0])
    for other in lists[1:]:
        for number, name in enumerate(other):
            if name not in found:
                after = next((one for one in other[number + 1 :] if one in found), None)
                found.insert(len(found) if after is None else found.index(after), name)
    return found
