"""What tests cost: the plug-in that notes it, and the table."""

import subprocess
import sys
from pathlib import Path

from tests.support.compiled_files import COMPILED_FILES
from tests.support.costs import Cost, folder_of, read, table_of

ROOT = Path(__file__).parents[3]
CONFTEST = """
from pathlib import Path
from tests.support.costs import CostPlugin

def pytest_configure(config):
    config.pluginmanager.register(CostPlugin(Path("costs")))
"""
TESTS = """
import subprocess, sys

def test_that_starts_a_process():
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)

def test_that_computes():
    assert sum(range(3_000_000))
"""


def test_each_test_is_noted_with_the_time_of_its_processes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_two.py").write_text(TESTS)
    subprocess.run(  # noqa: S603  # our own interpreter and text
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        env={**COMPILED_FILES, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    noted = {cost.name: cost for cost in read([tmp_path / "costs"])}
    with_process = noted["test_two.py::test_that_starts_a_process"]
    computes = noted["test_two.py::test_that_computes"]
    assert set(noted) == {"collection", with_process.name, computes.name}
    assert with_process.children_s > with_process.own_s
    assert computes.own_s > computes.children_s == 0


def test_a_folder_is_the_first_three_parts_of_a_path() -> None:
    assert folder_of("tests/unit/core/state/test_cell.py::test_x") == "tests/unit/core"
    assert folder_of("tests/e2e/test_client.py::test_x[a/b]") == "tests/e2e"
    assert folder_of("collection") == "collection"


def test_the_table_has_the_slowest_first_and_sums_by_folder() -> None:
    costs = [
        Cost("tests/a/test_x.py::test_quick", 1.0, 1.0, 0.0),
        Cost("tests/a/test_x.py::test_slow", 5.0, 0.5, 2.0),
        Cost("collection", 2.0, 2.0, 0.0),
    ]
    assert table_of(costs).splitlines() == [
        "slowest 2 of 2 tests",
        "   wall s     CPU s    pytest  children  test",
        "      5.0       2.5       0.5       2.0  tests/a/test_x.py::test_slow",
        "      1.0       1.0       1.0       0.0  tests/a/test_x.py::test_quick",
        "",
        "sum of each folder",
        "   wall s     CPU s    pytest  children   tests  folder",
        "      6.0       3.5       1.5       2.0       2  tests/a",
        "      2.0       2.0       2.0       0.0       1  collection",
        "      8.0       5.5       3.5       2.0       2  all",
    ]
