"""The chart in ``k8s/chart``: its version is that of the release, and its values are documented, used and checked.

Excluded: what Helm makes of it, which ``tests/kube/test_chart.py`` compares with kustomize.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "k8s" / "chart"
VALUES: Final = (CHART / "values.yaml").read_text("utf-8")
TREE: Final[dict[str, Any]] = yaml.safe_load(VALUES)
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
TEMPLATES: Final = "\n".join(path.read_text("utf-8") for path in sorted((CHART / "templates").iterdir()))
USED: Final = set(re.findall(r"\.Values\.([A-Za-z.]+[A-Za-z])", TEMPLATES))
PLAIN: Final = {"image", "labels", "nodeSelector", "resources", "settings", "tolerations"}
"""Values and sections that mean what they mean in Kubernetes, or whose text says what they are."""


def sections() -> Iterator[tuple[str, Any]]:
    """Each value and each section above a value, by its path; a value is what a template uses as a whole."""
    waiting: list[tuple[str, Any]] = list(TREE.items())
    while waiting:
        path, value = waiting.pop(0)
        yield path, value
        if isinstance(value, dict) and path not in USED:
            waiting += [(f"{path}.{name}", inner) for name, inner in value.items()]


def values() -> set[str]:
    return {path for path, value in sections() if path in USED or not isinstance(value, dict)}


def documented() -> set[str]:
    """Paths with a comment above them."""
    found, names, comment = set(), [""] * 9, False
    for line in VALUES.splitlines():
        match = re.match(r"( *)([A-Za-z]+):", line)
        if match and (depth := len(match[1]) // 2) == len(match[1]) / 2:
            names[depth] = match[2]
            if comment:
                found.add(".".join(names[: depth + 1]))
        comment = line.lstrip().startswith("#")
    return found


def schema_of(path: str) -> dict[str, Any] | None:
    """What the schema says of a value; None if it does not know it."""
    at = SCHEMA
    for name in path.split("."):
        if name not in at.get("properties", {}):
            return None
        at = at["properties"][name]
        if "$ref" in at:
            at = SCHEMA["definitions"][at["$ref"].rpartition("/")[2]]
    return at


def test_one_version_of_the_image_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+(\.dev[0-9]+)?", version)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (version.replace(".dev", "-dev"), version)
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    images = {service["image"] for service in compose["services"].values()}
    nats = TREE["nats"]["image"]
    ours = {f"berth:{version}", f"berth-lab:{version}", f"{nats['repository']}:{nats['tag']}"}
    assert {image for image in images if image.partition(":")[0] in {"berth", "berth-lab", nats["repository"]}} == ours
    tagged = [
        path for path in ROOT.glob("k8s/**/kustomization.yaml") if re.search("name: berth\n *newTag", path.read_text())
    ]
    assert tagged == [ROOT / "k8s" / "image" / "kustomization.yaml"]
    (lab,) = yaml.safe_load((ROOT / "k8s" / "overlays" / "dev" / "kustomization.yaml").read_text("utf-8"))["images"]
    assert lab == {"name": "berth-lab", "newTag": version}


def test_every_value_is_used_by_a_template() -> None:
    assert values() == USED


def test_every_value_has_a_comment() -> None:
    known = documented()

    def is_clear(path: str) -> bool:
        names = path.split(".")
        above = [".".join(names[: depth + 1]) for depth in range(1, len(names))]
        return bool(PLAIN & set(names)) or path in known or any(one in known for one in above)

    assert [path for path in sorted(values()) if not is_clear(path)] == []


def test_every_value_has_a_schema_and_the_schema_knows_no_other() -> None:
    assert [path for path in sorted(values()) if schema_of(path) is None] == []
    assert SCHEMA["additionalProperties"] is False

    def names(at: dict[str, Any], above: str = "") -> Iterator[str]:
        for name, inner in at.get("properties", {}).items():
            path = f"{above}{name}"
            yield from [path] if path in USED or "properties" not in inner else names(inner, f"{path}.")

    assert set(names(SCHEMA)) - {"global"} == values(), "every chart has global"


def test_values_of_a_trial_and_of_a_small_cell_are_values() -> None:
    def unknown(tree: dict[str, Any], above: str = "") -> Iterator[str]:
        for name, value in tree.items():
            path = f"{above}{name}"
            if path not in USED:
                yield from unknown(value, f"{path}.") if isinstance(value, dict) else [path]

    for name in ("values-dev.yaml", "values-small.yaml"):
        assert list(unknown(yaml.safe_load((CHART / name).read_text("utf-8")))) == [], name


def test_variables_that_values_set_are_refused_in_the_environment() -> None:
    checks = (CHART / "templates" / "checks.yaml").read_text("utf-8")
    named = dict(re.findall(r'"(BERTH_\w+)" "([^"]+)"', checks))
    made = re.findall(r"^ *(BERTH_\w+):", (CHART / "templates" / "environment.yaml").read_text("utf-8"), re.MULTILINE)
    assert set(named) == set(made)
    assert {value for value in named.values() if value != "the template"} <= USED
