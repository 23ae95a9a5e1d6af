"""A new product is one entry in one file: the one that the documentation shows, added to a copy of the tree.

A process of its own runs on the copy, so that the catalogue of this process stays as it is.
"""

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CATALOGUE = "berth/products/catalogue.py"
LAST_LINES = ')\n"""Every product form that Berth places.'


def entry() -> str:
    """The entry that the documentation shows."""
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    section = page.partition("## Add a product form\n")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 1
    return textwrap.indent(f"{blocks[0].rstrip()},\n", "    ")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a cell does whose tree has the entry."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "berth", tree / "berth", ignore=shutil.ignore_patterns("__pycache__", "json"))
    catalogue = tree / CATALOGUE
    text = catalogue.read_text("utf-8")
    assert text.count(LAST_LINES) == 1
    catalogue.write_text(text.replace(LAST_LINES, entry() + LAST_LINES), "utf-8")
    code = "import runpy; runpy.run_module('tests.support.new_product_story', run_name='__main__')"
    done = subprocess.run(  # noqa: S603  # our own interpreter and words
        [sys.executable, "-B", "-c", f"import sys; sys.path[:0] = {[str(tree), str(ROOT)]!r}; {code}"],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # log lines come before it
    assert found["tree"] == str(tree)
    return found


def test_its_nodes_are_recognized(told: dict[str, Any]) -> None:
    assert told["products"] == ["module990x12", "module990x12"]


def test_its_jobs_get_chips_by_its_rules(told: dict[str, Any]) -> None:
    assert told["placed"] == {"whole": [["n1"], [list(range(12))]], "pair": [["n2"], [[1, 2]]]}


def test_a_refusal_says_how_its_chips_must_lie(told: dict[str, Any]) -> None:
    assert told["refused"]["ring"].endswith("1 has fewer than 4 free chips in one ring of an Atlas 990")
    assert told["forms"]["ring"] == "chip4-node12"


def test_a_size_that_it_forbids_is_rejected(told: dict[str, Any]) -> None:
    assert "1 to 12 except 3, 5, 6, 7, 8, 9, 10, 11" in told["rejected"]


def test_its_policy_and_switch_affinity_are_known(told: dict[str, Any]) -> None:
    assert told["by policy"] == "chip4-node12"
    assert [bool(reason) for reason in told["switch affinity"]] == [True, False]
    assert told["switch affinity"][0].endswith("not for Atlas 990")


def test_the_tree_itself_has_no_such_product() -> None:
    assert "990" not in (ROOT / CATALOGUE).read_text("utf-8")
