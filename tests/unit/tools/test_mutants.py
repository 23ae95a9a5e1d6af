"""The runner of mutants, on a tree of one module: killed, surviving, broken, and not tried again."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.mutants.__main__ import main
from tests.mutants.outcomes import Outcome, digest_of, load
from tests.mutants.patches import Mutant, PatchError, mutant_of
from tests.mutants.reports import summary_of, table_of
from tests.mutants.trees import TIMED_OUT, Run, Tree, TreeError, applies
from tests.mutants.trials import check_unchanged, outcome_of, tried

MODULE = """LIMIT = 3


def smaller(one: int, other: int) -> int:
    return one if one < other else other
"""
TESTS = """import time

from area.sums import LIMIT, smaller


def test_smaller():
    assert smaller(1, 2) == 1


def test_limit():
    while LIMIT < 3:
        time.sleep(0.01)


def test_nothing():
    pass
"""
KILLER = "tests/test_sums.py::test_smaller"


def diff(old: str, new: str, *, line: int = 5) -> str:
    """A change of one line of the module; the lines beside it are those of the module."""
    lines = MODULE.splitlines()
    start, end = max(line - 4, 0), line + 3
    body = [f"-{old}\n+{new}" if index == line - 1 else f" {text}" for index, text in enumerate(lines)][start:end]
    return (
        f"--- a/area/sums.py\n+++ b/area/sums.py\n@@ -{start + 1},{len(body)} +{start + 1},{len(body)} @@\n"
        + "".join(f"{text}\n" for text in body)
    )


SWAPPED = diff("    return one if one < other else other", "    return one if one > other else other")


def a_patch(change: str = SWAPPED, *killers: str, head: str = "") -> str:
    ending = head or "".join(f"Killed-by: {killer}\n" for killer in killers or (KILLER,))
    return f"Mutant: the larger one is taken\n{ending}\n{change}"


class Tiny:
    """A tree of one module and its tests, and patches of it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "tree"
        self.folder = self.root / "patches"
        for name, text in (("area/__init__.py", ""), ("area/sums.py", MODULE), ("tests/test_sums.py", TESTS)):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.folder.mkdir()
        subprocess.run(["git", "init", "--quiet"], cwd=self.root, check=True)  # noqa: S607  # whichever the user has

    def add(self, name: str, patch: str) -> None:
        (self.folder / f"{name}.patch").write_text(patch)

    def run(self, *words: str) -> int:
        return main(words, root=self.root, folder=self.folder)

    def outcomes(self) -> dict[str, Outcome]:
        return load(self.root / "mutants.json")


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path)


def test_each_mutant_is_tried_and_told_and_what_was_killed_is_not_tried_again(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.add("swapped", a_patch())
    tiny.add("unnoticed", a_patch(SWAPPED, "tests/test_sums.py::test_nothing"))
    tiny.add("elsewhere", a_patch(SWAPPED.replace("def smaller", "def larger")))
    tiny.add("no-import", a_patch(diff("LIMIT = 3", "", line=1)))
    tiny.add("no-python", a_patch(SWAPPED.replace("one > other", "one >< other")))
    tiny.add("same", a_patch(head="Equivalent: both are the same\n"))
    assert tiny.run() == 1
    said = capsys.readouterr().out
    assert "killed             swapped" in said
    assert "survived           unnoticed" in said
    assert said.endswith("killed 1, equivalent 1, survived 1, broken 3\n")
    found = tiny.outcomes()
    assert found["unnoticed"].why == "tests/test_sums.py::test_nothing passes"
    assert found["elsewhere"].why.startswith("does not apply: error: patch failed: area/sums.py")
    assert found["no-import"].why.startswith(f"{KILLER}: pytest ends with 4")
    assert found["no-python"].why.startswith("area/sums.py: ")
    assert (tiny.root / "area/sums.py").read_text() == MODULE, "the tree itself is never changed"
    assert tiny.run("swapped", "same") == 0
    assert capsys.readouterr().out == (
        "2 of 2 are as they were (mutants.json)\nkilled 1, equivalent 1, survived 0, broken 0\n"
    )


def test_an_outcome_holds_for_the_patch_the_files_that_it_changes_and_its_tests(tiny: Tiny) -> None:
    mutant = mutant_of("swapped", a_patch())
    first = digest_of(tiny.root, mutant)
    (tiny.root / "area/others.py").write_text("")
    assert digest_of(tiny.root, mutant) == first
    assert digest_of(tiny.root, mutant_of("swapped", a_patch(head=f"Killed-by: {KILLER} \n"))) != first
    for name, text in (("area/sums.py", MODULE), ("tests/test_sums.py", TESTS)):
        (tiny.root / name).write_text(text + "\n")
        assert digest_of(tiny.root, mutant) != first
        (tiny.root / name).write_text(text)
    assert digest_of(tiny.root, mutant) == first


class Scripted(Tree):
    """A copy in which tests end as the script says."""

    codes: Mapping[str, int]

    def pytest(self, tests: Sequence[str], *, limit_s: float) -> Run:
        assert limit_s
        return Run(self.codes[tests[0]], 1.0, f"as {tests[0]} says")


@pytest.mark.parametrize(
    ("codes", "verdict", "why"),
    [
        ((1, 1), "killed", ""),
        ((1, 0), "survived", "tests/t.py::two passes"),
        ((1, TIMED_OUT), "killed by time-out", ""),
        ((1, 5), "broken", "tests/t.py::two: pytest ends with 5: as tests/t.py::two says"),
    ],
)
def test_every_test_that_is_named_has_to_kill_alone(
    tiny: Tiny, tmp_path: Path, codes: Sequence[int], verdict: str, why: str
) -> None:
    tree = Scripted(tiny.root, tmp_path / "copy")
    tests = ("tests/t.py::one", "tests/t.py::two")
    tree.codes = dict(zip(tests, codes, strict=True))
    outcome = outcome_of(tree, mutant_of("m", a_patch(SWAPPED, *tests)), limit_s=9)
    assert (outcome.verdict, outcome.why, outcome.seconds) == (verdict, why, 2.0)
    assert (tree.root / "area/sums.py").read_text() == MODULE


def test_a_test_that_does_not_end_is_stopped(tiny: Tiny, tmp_path: Path) -> None:
    patch = a_patch(diff("LIMIT = 3", "LIMIT = 2", line=1), "tests/test_sums.py::test_limit")
    outcome = outcome_of(Tree(tiny.root, tmp_path / "copy"), mutant_of("hangs", patch), limit_s=0.2)
    assert outcome.verdict == "killed by time-out"
    assert summary_of([outcome]) == "killed 1 (1 by time-out), equivalent 0, survived 0, broken 0"


def test_tests_that_fail_without_a_mutant_prove_nothing(tiny: Tiny, tmp_path: Path) -> None:
    tree = Scripted(tiny.root, tmp_path / "copy")
    tree.codes = {KILLER: 1}
    with pytest.raises(TreeError, match="the tests do not pass on the tree as it is: pytest ends with 1"):
        check_unchanged(tree, [mutant_of("swapped", a_patch())])


def test_a_package_that_is_imported_from_elsewhere_is_no_ground_for_mutants(tiny: Tiny, tmp_path: Path) -> None:
    mutant = msgspec.structs.replace(mutant_of("swapped", a_patch()), changes=("pytest/sums.py",))
    with pytest.raises(TreeError, match="pytest is imported from"):
        Tree(tiny.root, tmp_path / "copy").check_origin([mutant])
    with pytest.raises(TreeError, match="pytest is imported from"):
        list(tried(tiny.root, [mutant], jobs=1, limit_s=1))


def test_mutants_are_chosen_by_the_beginning_of_their_name(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("sums-one", "sums-two", "other"):
        tiny.add(name, a_patch(head="Equivalent: nothing\n"))
    assert tiny.run("sums") == 0
    assert sorted(tiny.outcomes()) == ["sums-one", "sums-two"]
    assert tiny.run("unknown") == 2
    assert capsys.readouterr().err == "error: no mutant is called unknown\n"


def test_a_mutant_that_applies_and_one_that_does_not(tiny: Tiny) -> None:
    assert applies(tiny.root, mutant_of("swapped", a_patch())) == ""
    wrong = mutant_of("elsewhere", a_patch(SWAPPED.replace("def smaller", "def larger")))
    assert "patch does not apply" in applies(tiny.root, wrong)


def test_a_head_goes_on_in_the_next_line() -> None:
    mutant = mutant_of("m", "Mutant: a change\n  of two lines\nEquivalent: since\nit is so\n\n" + SWAPPED)
    assert (mutant.says, mutant.equivalent) == ("a change of two lines", "since it is so")
    assert mutant.changes == ("area/sums.py",)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (a_patch(head="Killed-by: tests/unit\n"), "m: Killed-by tests/unit: expected a test such as"),
        (a_patch(head="Equivalent: so\nEquivalent: or so\n"), "m: expected lines Killed-by or one line Equivalent"),
        (a_patch(head=f"Equivalent: so\nKilled-by: {KILLER}\n"), "m: expected lines Killed-by or one line Equivalent"),
        (f"Mutant: no end\n\n{SWAPPED}", "m: expected lines Killed-by or one line Equivalent"),
        (f"Killed-by: {KILLER}\n\n{SWAPPED}", "m: 0 lines Mutant: expected 1"),
        (f"Whatever\n{a_patch()}", "m: Whatever: expected one of Mutant, Killed-by, Equivalent"),
        (f"Mutant: nothing\nKilled-by: {KILLER}\n", "m: no diff of a file"),
    ],
)
def test_a_patch_that_cannot_be_meant(patch: str, words: str) -> None:
    with pytest.raises(PatchError) as found:
        mutant_of("m", patch)
    assert str(found.value).startswith(words)


def test_the_table_names_each_mutant_and_its_tests() -> None:
    killed = Mutant("a", "one | other", ("tests/t.py::x", "tests/t.py::y"), "", ("f",), "")
    same = Mutant("b", "nothing", (), "it is the same", ("f",), "")
    assert table_of([killed, same]).splitlines()[-2:] == [
        "| `a` | one \\| other | `tests/t.py::x`<br>`tests/t.py::y` |",
        "| `b` | nothing | equivalent: it is the same |",
    ]
