"""Each bench is in the list that ``make bench-check`` goes through, with a small form of its own."""

import ast
from functools import partial
from pathlib import Path
from typing import Any

from bench.catalogue import BENCHES

ROOT = Path(__file__).parents[2]


def parts_of(function: object) -> "partial[Any]":
    assert isinstance(function, partial)
    return function


def modules_with_a_bench() -> set[str]:
    """Modules of ``bench`` with a function ``run`` that returns a report."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "bench").rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == "run" and ast.unparse(node.returns or node) == "Report"
    }


def test_every_bench_is_in_the_catalogue() -> None:
    assert {parts_of(bench.small).func.__module__ for bench in BENCHES.values()} == modules_with_a_bench()


def test_the_small_form_of_a_bench_is_the_same_one_at_another_size() -> None:
    for name, bench in BENCHES.items():
        full, small = parts_of(bench.full), parts_of(bench.small)
        assert full.func is small.func, name
        assert type(full.args[0]) is type(small.args[0]), name
        assert full.args != small.args, name


def test_the_targets_of_the_benches_are_shown_and_run_all_of_them() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "\nbench-check: setup kube-assets page-assets ## " in makefile
    assert "-m bench.check $(BENCHES)\n" in makefile
    assert '-m bench.against --base "$(BASE)"' in makefile
