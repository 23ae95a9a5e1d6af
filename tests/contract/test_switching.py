"""The guide for switching names what exists: settings, keys of objects, Events, refusals, commands and decisions.

It has a row for each action, plug-in and parameter of the shipped configuration, and for each label and annotation of
which the reference pages say that the reference reads or writes it.
"""

import ast
import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, get_args

import msgspec
import pytest

import berth.formats
import berth.schemas
from berth.runtime.config import ServiceConfig
from berth.schemas.refusal import Code
from tests.contract.reference_pages import settings_of
from tests.contract.test_docs import fields
from tests.support.services import SERVICES

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGE: Final = (DOCS / "switching.md").read_text("utf-8")
VERDICTS: Final = ("same", "different", "not there")
OF_THE_SCHEDULER: Final = ("Actions and plug-ins", "Parameters of `init-params`", "Flags and deployment")
"""Sections whose first column has names of the other scheduler alone."""
SHIPPED: Final = (
    *("enqueue", "allocate", "backfill", "priority", "gang", "conformance", "volcano-npu"),
    *("drf", "predicates", "proportion", "nodeorder", "binpack"),
)
"""Actions and plug-ins of the shipped configuration."""
WITHOUT_EFFECT: Final = {
    "NodePredicateFailed": "a reason that is not used",
    "BatchOrderFailed": "a reason that is not used",
    "rdma/...": "an example",
    "job-summary-<job>": "a pattern",
    "volcano_": "a prefix of other metrics",
}
"""Names that no text of the product has, and why the page has them."""


class Row(NamedTuple):
    """A row of a table of the page."""

    section: str
    feature: str
    verdict: str
    remark: str

    @property
    def decisions(self) -> list[str]:
        """Pages of decisions that it links."""
        return re.findall(r"\]\(decisions/([\w.-]+\.md)\)", self.remark)


def rows() -> list[Row]:
    """Rows of all tables."""
    found, section = [], ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "feature of the shipped configuration":
            found.append(Row(section, *cells))
    return found


ROWS: Final = rows()
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.feature)


def named(text: str) -> list[str]:
    """Names in back quotes, those of links left out."""
    return re.findall(r"`([^`]+)`", re.sub(r"\[[^]]*\]\([^)]*\)", "", text))


def literals() -> set[str]:
    """Texts in the modules of the product."""
    found = set()
    for folder in ("berth", "schemas", "services"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.resolve() == path:
                tree = ast.parse(path.read_text("utf-8"))
                nodes = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
                found |= {value for value in nodes if isinstance(value, str)}
    return found


def encoded() -> Iterator[str]:
    """Fields of objects and messages, as they are written there."""
    for package in (berth.formats, berth.schemas):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, msgspec.Struct):
                    yield from value.__struct_encode_fields__


@functools.cache
def settings() -> set[str]:
    """Settings of all services, by path and by their last name."""
    paths = {path for service in SERVICES for path in fields(settings_of(service), "")} | set(fields(ServiceConfig, ""))
    return paths | {path.rpartition(".")[2] for path in paths}


@functools.cache
def known() -> set[str]:
    """All names that the product has in its texts, and those of the fields that it writes."""
    return literals() | set(encoded()) | set(get_args(Code))


def exists(name: str) -> bool:
    """Whether the product has a name: a setting, a key, a value, a reason, a command, a folder."""
    key, _, value = name.partition(" = ")
    if value:
        return key in settings() and value.strip('"') in known()
    if name.startswith("berth "):
        return name.split()[1] in known() and all(flag == "--json" for flag in name.split()[2:])
    if name.startswith("k8s/"):
        return (ROOT / name).exists()
    if re.match(r"(decisions|gangs|kube|bus)\.", name):
        return name in settings()
    return name in settings() or name in known()


@each_row
def test_a_row_has_a_verdict_and_what_follows_from_it(row: Row) -> None:
    assert row.verdict in VERDICTS
    assert row.remark
    assert bool(row.decisions) == (row.verdict == "different"), "a difference, and no other row, links its decisions"
    if row.verdict == "not there":
        assert re.search(r"Instead: \w|Instead: `|\(#faults\)", row.remark), "what is not there has a substitute"


@each_row
def test_what_berth_does_names_what_exists(row: Row) -> None:
    assert [name for name in named(row.remark) if not exists(name) and name not in WITHOUT_EFFECT] == []


@each_row
def test_keys_that_count_in_both_are_in_the_code(row: Row) -> None:
    if row.section not in OF_THE_SCHEDULER and row.verdict == "same":
        assert [name for name in named(row.feature) if not exists(name) and name not in WITHOUT_EFFECT] == []


def test_names_without_effect_are_in_no_text_of_the_product() -> None:
    assert {name for name in WITHOUT_EFFECT if name in known()} == set()
    assert {name for name in WITHOUT_EFFECT if f"`{name}`" not in PAGE} == set()


def section(page: str, heading: str) -> str:
    """Text below a heading of a page of the reference, up to the next heading."""
    text = (DOCS / "reference" / page).read_text("utf-8")
    assert f"\n## {heading}\n" in text or f"\n### {heading}\n" in text
    return re.split(r"\n##+ ", re.split(rf"\n##+ {heading}\n", text)[1])[0]


def first_cells(page: str, heading: str) -> list[str]:
    """Names in the first column of a table."""
    lines = section(page, heading).splitlines()
    return [name for line in lines if line.startswith("| `") for name in named(line.split(" | ")[0])]


def wanted() -> dict[str, list[str]]:
    """Names that need a row, by where they come from."""
    copied = section("nodes-and-chips.md", "Selection of the form").partition("These annotations are copied")[2]
    labels = section("kubernetes.md", "Labels of jobs").split("\n\n")[1]
    return {
        "shipped": list(SHIPPED),
        "parameters": first_cells("kubernetes.md", "Scheduler parameters"),
        "faults": first_cells("faults.md", "Switches of jobs"),
        "labels": [name for name in named(labels) if not name.endswith("...")],
        "annotations": named(copied),
        "pods": first_cells("kubernetes.md", "Pod annotations"),
        "chips": first_cells("nodes-and-chips.md", "Pod annotations of chips"),
        "superpods": [
            name
            for line in section("superpods.md", "Keys of SuperPoDs").splitlines()
            if line.startswith(("| annotations of jobs", "| labels of jobs", "| pods"))
            for name in named(line)
        ],
    }


WANTED: Final = wanted()


@pytest.mark.parametrize("source", WANTED)
def test_every_name_of_the_other_scheduler_has_a_row(source: str) -> None:
    assert len(WANTED[source]) > 2, f"nothing is read from {source}"
    features = {name for row in ROWS for name in named(row.feature)}
    assert [name for name in WANTED[source] if name not in features] == []


def test_settings_and_events_of_the_steps_exist() -> None:
    steps = (DOCS / "howto" / "switch-over.md").read_text("utf-8")
    names = [name for name in named(steps) if re.fullmatch(r"[a-z_]+\.[a-z_.]+|[A-Z]\w+(?:Invalid|Scheduling)", name)]
    assert {"gangs.scheduler_names", "NodeInvalid"} <= set(names)
    assert [name for name in names if not exists(name) and not name.endswith(".conf")] == []
