"""The chart in ``k8s/chart`` is what the manifests say, its version is that of the release, and it leaves nothing out.

Excluded: what Helm makes of it, which ``tests/kube/test_chart.py`` compares with kustomize.
"""

import copy
import functools
import json
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.chart.files import BY_HAND, FOLDER, alone, present
from tests.chart.files import forms as forms_of_files
from tests.chart.files import wanted as wanted_now
from tests.chart.manifests import ChartError, Form, Manifests, difference
from tests.chart.places import ENVIRONMENT
from tests.chart.settings import SETTINGS
from tests.chart.templates import chart_of
from tests.chart.text import Block, Given, Items, Tree, Value, template
from tests.support.kustomize import pod_spec
from tests.support.pods import WORKLOADS

ROOT: Final = Path(__file__).parents[2]
DISPATCHER: Final = ("Deployment", "berth-system", "dispatcher")


def forms() -> dict[Form, Manifests]:
    return copy.deepcopy(forms_of_files())


@functools.cache
def wanted() -> dict[str, str]:
    return wanted_now()


def test_no_file_of_the_chart_is_missing_and_none_is_surplus() -> None:
    assert sorted(present()) == sorted(wanted())
    assert [name for name in sorted(BY_HAND) if not (FOLDER / name).is_file()] == []


@pytest.mark.parametrize("name", sorted(present()))
def test_a_file_of_the_chart_says_what_the_manifests_say(name: str) -> None:
    assert present()[name] == wanted().get(name), "run `make chart`, and look at the difference"


def test_one_version_of_the_image_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+(\.dev[0-9]+)?", version)
    chart = yaml.safe_load((FOLDER / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (version.replace(".dev", "-dev"), version)
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    images = {service["image"] for service in compose["services"].values()}
    nats = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))["nats"]["image"]
    ours = {f"berth:{version}", f"berth-lab:{version}", f"{nats['repository']}:{nats['tag']}"}
    assert {image for image in images if image.partition(":")[0] in {"berth", "berth-lab", nats["repository"]}} == ours
    tagged = [
        path for path in ROOT.glob("k8s/**/kustomization.yaml") if re.search("name: berth\n *newTag", path.read_text())
    ]
    assert tagged == [ROOT / "k8s" / "image" / "kustomization.yaml"]
    (lab,) = yaml.safe_load((ROOT / "k8s" / "overlays" / "dev" / "kustomization.yaml").read_text("utf-8"))["images"]
    assert lab == {"name": "berth-lab", "newTag": version}


def test_every_value_is_used_by_a_template() -> None:
    texts = "\n".join(path.read_text("utf-8") for path in (FOLDER / "templates").iterdir())
    used = set(re.findall(r"\.Values\.([A-Za-z.]+[A-Za-z])", texts))
    assert {one.path for one in SETTINGS} == used


def test_variables_that_values_set_are_refused_in_the_environment() -> None:
    text = (FOLDER / "templates" / "checks.yaml").read_text("utf-8")
    named = dict(re.findall(r'"(BERTH_\w+)" "([^"]+)"', text))
    assert set(named) == ENVIRONMENT
    assert {value for value in named.values() if value != "the template"} <= {one.path for one in SETTINGS}


def test_values_have_a_schema_that_knows_all_of_them() -> None:
    schema = json.loads((FOLDER / "values.schema.json").read_text("utf-8"))
    values = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))

    def unknown(tree: Tree, known: Tree, at: str = "") -> list[str]:
        if known.get("additionalProperties") is not False or "properties" not in known:
            return []
        return [
            path
            for name, value in tree.items()
            for path in (
                unknown(value, known["properties"][name], f"{at}/{name}")
                if name in known["properties"] and isinstance(value, dict)
                else []
                if name in known["properties"]
                else [f"{at}/{name}"]
            )
        ]

    assert unknown(values, schema) == []
    assert unknown(values | {"replicas": 1}, schema) == ["/replicas"]


def test_a_difference_of_an_overlay_without_a_value_is_an_error() -> None:
    changed = forms()
    pod_spec(changed["trial"].objects[DISPATCHER])["terminationGracePeriodSeconds"] = 5
    with pytest.raises(ChartError, match="Deployment dispatcher: spec template spec terminationGracePeriodSeconds is"):
        chart_of(changed, alone())


def test_an_addition_of_an_overlay_without_a_value_is_an_error() -> None:
    changed = forms()
    pod_spec(changed["production"].objects[DISPATCHER])["containers"][0]["env"].append({"name": "LANG", "value": "C"})
    with pytest.raises(ChartError, match="containers dispatcher env LANG is not in all manifests"):
        chart_of(changed, alone())
    changed = forms()
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api", "labels": {}}}
    changed["production"].objects["Service", "berth-system", "api"] = service
    with pytest.raises(ChartError, match="Service berth-system api is not in all manifests"):
        chart_of(changed, alone())


def test_a_value_that_is_something_else_in_another_place_is_an_error() -> None:
    changed = forms()
    for form in ("base", "trial", "production"):
        pod_spec(changed[form].objects[DISPATCHER])["tolerations"] = []
    with pytest.raises(ChartError, match=r"tolerations is .* expected the same everywhere"):
        chart_of(changed, alone())


def test_text_of_a_template() -> None:
    tree = {
        "a": Value(".Values.a"),
        "b": Given("if .Values.b", {"c": [1, "two", Items(".Values.more")], "d": Block("toYaml .Values.d")}),
        "e": Given("if .Values.b", "yes"),
        "f": [Given("if .Values.f", {"g": "", "h": "8080"}), {"i": {}}],
    }
    assert template(tree).splitlines() == [
        "a: {{ .Values.a }}",
        "{{- if .Values.b }}",
        "b:",
        "  c:",
        "    - 1",
        "    - two",
        "    {{- with .Values.more }}",
        "    {{- toYaml . | nindent 4 }}",
        "    {{- end }}",
        "  d:",
        "    {{- toYaml .Values.d | nindent 4 }}",
        "e: 'yes'",
        "{{- end }}",
        "f:",
        "  {{- if .Values.f }}",
        '  - g: ""',
        "    h: '8080'",
        "  {{- end }}",
        "  - i: {}",
    ]
    with pytest.raises(TypeError, match="cannot be written"):
        template({"a": 1.5})


def test_the_difference_of_trees_is_what_helm_has_to_merge() -> None:
    assert difference({"a": 1, "b": {"c": 2, "d": 3}, "e": [1]}, {"a": 1, "b": {"c": 1, "d": 3}, "f": 4, "e": []}) == {
        "b": {"c": 2},
        "e": [1],
        "f": None,
    }


def test_the_pod_monitor_selects_every_service_and_names_its_port() -> None:
    (monitor,) = alone().objects.values()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    labels = monitor["spec"]["selector"]["matchLabels"]
    for one in forms()["production"].objects.values():
        if one["kind"] in WORKLOADS and one["metadata"]["name"] != "nats":
            assert labels.items() <= one["spec"]["template"]["metadata"]["labels"].items()
            (container,) = pod_spec(one)["containers"]
            assert endpoint["port"] in {port["name"] for port in container["ports"]}
