"""The patches of mutants belong to the tree as it is: they apply, their tests exist, and their table is up to date."""

import ast
from functools import cache
from pathlib import Path

from tests.mutants.patches import FOLDER, file_of, mutants_in
from tests.mutants.reports import TABLE, table_of
from tests.mutants.trees import applies

ROOT = Path(__file__).parents[2]
MUTANTS = mutants_in(FOLDER)


@cache
def named_in(name: str) -> frozenset[str]:
    """Tests of a file, those of classes as ``Class::test``."""
    path = ROOT / name
    tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.update(
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            )
    return frozenset(found)


def test_every_patch_applies() -> None:
    found = {mutant.name: applies(ROOT, mutant) for mutant in MUTANTS}
    assert {name: why for name, why in found.items() if why} == {}


def test_every_test_that_kills_exists() -> None:
    named = {test for mutant in MUTANTS for test in mutant.killed_by}
    missing = [
        test for test in sorted(named) if test.partition("::")[2].partition("[")[0] not in named_in(file_of(test))
    ]
    assert missing == []


def test_the_table_is_up_to_date() -> None:
    stored = (FOLDER / TABLE).read_text("utf-8")
    assert stored == table_of(MUTANTS), f"python -m tests.mutants --table > tests/mutants/{TABLE}"
