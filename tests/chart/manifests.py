"""Manifests of which the chart is made, and the values that are met in them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tests.chart.settings import FROM_MANIFESTS, SETTINGS, put
from tests.chart.text import Tree
from tests.support.kustomize import identity

NAMESPACE: Final = "berth-system"

Form = Literal["base", "trial", "production", "small"]
Key = tuple[str, str, str]
"""Kind, namespace and name."""
There = Mapping[Form, Any]
"""A field in each form that has it."""


class ChartError(Exception):
    """The manifests have something that the chart cannot express."""


@dataclass(frozen=True)
class Manifests:
    """Objects of a kustomization, the names of generated ones without their ends.

    Attributes:
        objects: Those that are not generated.
        maps: Content of the generated ConfigMaps, by name.
    """

    objects: dict[Key, Tree]
    maps: dict[str, dict[str, str]]

    @classmethod
    def of(cls, objects: Iterable[Tree], generated: Iterable[Tree]) -> "Manifests":
        """Manifests of what a kustomization has."""
        maps = {one["metadata"]["name"]: one["data"] for one in generated}
        kept = (one for one in objects if one["kind"] != "ConfigMap" or one["metadata"]["name"] not in maps)
        return cls({identity(one): one for one in kept}, maps)


@dataclass
class Met:
    """Values that were met, each in a trial, in production and in a small cell.

    Attributes:
        tag: Of the image; empty while none was met.
    """

    values: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    tag: str = ""

    def note(self, path: str, there: There) -> None:
        """Keep what a value is; a form that lacks it has that of another.

        Raises:
            ChartError: It is something else in another place.
        """
        some = next(there[form] for form in ("production", "trial", "small") if form in there)
        each = (there.get("trial", some), there.get("production", some), there.get("small", some))
        if self.values.setdefault(path, each) != each:
            raise ChartError(f"{path} is {self.values[path]} and {each}: expected the same everywhere")

    def note_tag(self, tag: str) -> None:
        """Keep the tag of the image.

        Raises:
            ChartError: Another one was met.
        """
        self.tag = self.tag or tag
        if tag != self.tag:
            raise ChartError(f"the image has the tags {self.tag} and {tag}: expected one")

    def trees(self) -> tuple[Tree, Tree, Tree]:
        """Values of production, what a trial has instead, and what a small cell has, in the order of the settings.

        Raises:
            ChartError: A setting is not in the manifests, or a value of them is no setting.
        """
        wanted = {one.path for one in SETTINGS if one.default is FROM_MANIFESTS}
        if wanted != set(self.values):
            raise ChartError(f"settings and manifests differ: {', '.join(sorted(wanted ^ set(self.values)))}")
        values: Tree = {}
        trial: Tree = {}
        small: Tree = {}
        for one in SETTINGS:
            of_trial, default, of_small = self.values.get(one.path, (one.trial, one.default, one.small))
            put(values, one.path, default)
            for tree, its in ((trial, of_trial), (small, of_small)):
                if its is not None and its != default:
                    put(tree, one.path, difference(its, default))
        return values, trial, small


def difference(new: Any, old: Any) -> Any:  # noqa: ANN401  # trees of YAML
    """What Helm has to merge into the old tree to make it the new one; null removes a member."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    changed = {
        key: difference(value, old.get(key)) for key, value in new.items() if key not in old or old[key] != value
    }
    return changed | dict.fromkeys(key for key in old if key not in new)
