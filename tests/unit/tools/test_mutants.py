"""The tool of mutants, on a tree of one module: what is generated, who runs it, what is remembered and reported."""

import ast
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.mutants.__main__ import main
from tests.mutants.covering import READ_ALL, Cover
from tests.mutants.equivalents import Equivalent, reasons_for
from tests.mutants.generator import changed, sites_in
from tests.mutants.outcomes import Mutant, Outcome, digest_for, mutant_of
from tests.mutants.patterns import Product
from tests.mutants.probes import probed, segment_at
from tests.mutants.reports import Sample, page_of, summary_of
from tests.mutants.serving import Plan, Ran, Request
from tests.mutants.trees import TreeError, package_of, product_of
from tests.mutants.trials import names_at
from tests.mutants.workers import Worker

ROOT = Path(__file__).parents[3]
MODULE = '''"""Numbers."""

from collections.abc import Iterator

LIMIT = 3
TEXT = "a"


def smaller(one: int, other: int) -> int:
    """The smaller one."""
    return one if one < other else other


def counted(limit: int) -> int:
    count = 0
    while count != limit:
        count += 1
    return count


def unused(one: int) -> int:
    return one - 1
'''
TESTS = """from pathlib import Path

from schemas import sums


def test_smaller():
    assert sums.smaller(1, 2) == 1


def test_counted():
    assert sums.counted(2) == 2


def test_limit():
    assert sums.LIMIT == 3


def test_text_of_file():
    assert "one < other" in Path(sums.__file__).read_text()
"""
FILE = "tests/unit/test_sums.py"
PATH = "schemas/sums.py"


def planted(root: Path) -> Path:
    """A tree of one module and its tests."""
    for name, text in (("schemas/__init__.py", ""), (PATH, MODULE), (FILE, TESTS)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)  # noqa: S607  # whichever the user has
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(  # noqa: S603  # our own words
        ["git", *identity, "commit", "--quiet", "--allow-empty", "-m", "a"],  # noqa: S607  # likewise
        cwd=root,
        check=True,
    )
    return root


def texts_of(source: str) -> dict[str, str]:
    """Texts of the mutants of a module, by scope, kind and number."""
    made = sites_in("m.py", source.encode())
    return {site.name.removeprefix("m.py::"): changed(source.encode(), site.edits).decode() for site in made}


# What is generated.


@pytest.mark.parametrize(
    ("source", "name", "wanted"),
    [
        ("def f(a, b):\n    return a == b\n", "f::comparison-0", "a != b"),
        ("def f(a, b):\n    return (a)  not  in (b)\n", "f::comparison-0", "(a)  in (b)"),
        ("def f(a, b):\n    return 'ä' and a < b\n", "f::boundary-0", "'ä' and a <= b"),
        ("def f(a):\n    return a + 1\n", "f::boundary-0", "a - 1"),
        ("def f(a):\n    return a + 1\n", "f::constant-0", "a + 2"),
        ("def f(a):\n    return 'ä', True\n", "f::constant-1", "'ä', False"),
        ("async def f(a):\n    await a.b()\n", "f::await-0", "    pass"),
        ("class C:\n    def f(self):\n        self.b(1)\n", "C.f::call-0", "        pass"),
        ("def f(a):\n    return g(a, b=1, c=2) + g(a.b, {a})\n", "f::arguments-0", "g({a}, a.b)"),
        ("def f(a):\n    a.b()\n    a.c()\n", "f::statements-0", "    a.c()\n    a.b()\n"),
        ("async def f(a):\n    await a.b.c()\n    d = await a.e.g()\n", "f::statements-0", "    d = await a.e.g()\n    await a"),
        ("def f(a):\n    if a:\n        a.d.e()\n        a.g = a.d.h()\n", "f::statements-0", "a.g = a.d.h()\n        a.d.e()"),
        ("def f(a):\n    if not (a):\n        g()\n", "f::condition-0", "if (a):"),
        ("def f(a):\n    return 1 if a else 2\n", "f::condition-0", "1 if (not (a)) else 2"),
        ("def f(a, b, c):\n    return a and b and c or a\n", "f::logic-1", "(a or b or c) or a"),
    ],
)  # fmt: skip
def test_each_kind_changes_its_place_alone(source: str, name: str, wanted: str) -> None:
    text = texts_of(source)[name]
    assert wanted in text
    assert compile(text, "m.py", "exec", dont_inherit=True).co_names is not None


@pytest.mark.parametrize(
    "source",
    [
        '"""A text."""\nTEXT = "word"\nWORDS: Final = ("one" "two")\n',
        "def f(a: 'int' = None) -> Literal['x']:\n    '''A text.'''\n",
        "def f(a):\n    raise ValueError('word', a == 1)\n",
        "def f(self):\n    self._log.info('word', a=1)\n    log.warning('word')\n",
        "def __repr__(self):\n    return 'word'\n",
        "def f(a):\n    assert a == 1\n",
        "if TYPE_CHECKING:\n    a = 1\n",
        "def f(a):\n    return f'{a == 1}', 'two words', b.decode('utf-8')\n",
        "def f(self, a, b):\n    c = zip(a, strict=True)\n    d = a\n    self.a = m.e()\n    self.b = m.e()\n",
        "@lru_cache(1)\ndef f():\n    a = b\n    c = a\n",
    ],
)
def test_what_no_test_should_pin_is_left_out(source: str) -> None:
    assert texts_of(source) == {}


def test_a_name_has_no_line_and_stays_when_something_else_changes() -> None:
    before = {site.name for site in sites_in(PATH, MODULE.encode())}
    after = {site.name for site in sites_in(PATH, MODULE.replace("LIMIT = 3\n", "\n\nMORE = 4 + 5\n").encode())}
    assert {name for name in before if "<module>" not in name} < after


def test_a_mutant_of_each_eighth_module_of_the_product_is_python_and_differs() -> None:
    paths = product_of(ROOT)
    for path in paths[::8]:  # make mutants goes through all of them
        source = (ROOT / path).read_bytes()
        sites = sites_in(path, source)
        assert len({site.name for site in sites}) == len(sites)
        for site in sites[len(path) % 7 :: max(len(sites), 7)]:
            text = changed(source, site.edits)
            assert text != source, site
            assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)), site


# Which tests execute what.


def test_a_segment_ends_where_the_next_statement_may_not_be_executed() -> None:
    source = "def f(a):\n    b = 1\n    if a:\n        return b\n    return 2\n\n\nC = 1\n"
    _, segments = probed(source.encode(), 0)
    assert [segment_at(segments, place) for place in ((2, 4), (3, 7), (4, 8), (5, 4), (8, 4))] == [0, 0, 1, 2, None]


def test_names_of_what_is_imported_are_those_that_its_users_write() -> None:
    source = (
        "import ast\nA = 1\nB = A + 1\n\n\nclass C(D):\n    field: int = 3\n\n    def f(self, a=4):\n        pass\n"
    )
    tree = ast.parse(source)
    assert names_at(tree, (2, 4)) == {"A", "B"}
    assert names_at(tree, (7, 17)) == {"C", "field"}
    assert names_at(tree, (9, 18)) == {"C", "f"}


def test_what_is_imported_is_tried_first_with_the_tests_that_read_everything(tmp_path: Path) -> None:
    root = planted(tmp_path)
    (root / READ_ALL).parent.mkdir(parents=True)
    (root / READ_ALL).write_text("def test_pages():\n    pass\n")
    marks = zlib.compress(bytes(99))
    tests = (f"{FILE}::test_limit", f"{READ_ALL}::test_pages")
    rows = [Ran("collected", "collected", 0.0, marks), *(Ran(test, "passed", 1.0, marks) for test in tests)]
    cover = Cover(root, rows)
    assert [test.test for test in cover.naming(PATH, {"TEXT"})] == [f"{READ_ALL}::test_pages"]
    assert [test.test for test in cover.naming(PATH, {"LIMIT"})] == [f"{READ_ALL}::test_pages", f"{FILE}::test_limit"]


# Who runs it.


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def worker(tree: Path) -> Iterator[Worker]:
    with Worker(tree, [FILE]) as made:
        yield made


def ran(worker: Worker, text: str, *tests: str) -> list[tuple[str, str]]:
    limits = [(f"{FILE}::{test}", 2.0) for test in tests]
    return [(row.test.partition("::")[2], row.how) for row in worker.ask(Request(limits, PATH, text)).ran]


def test_a_test_fails_with_a_mutant_and_those_behind_it_do_not_run(worker: Worker) -> None:
    text = MODULE.replace("one < other", "one > other")
    found = ran(worker, text, "test_text_of_file", "test_counted", "test_smaller", "test_limit")
    assert found == [("test_text_of_file", "passed"), ("test_counted", "passed"), ("test_smaller", "failed")]
    assert ran(worker, MODULE + "\n\ndef more():\n    pass\n", "test_smaller") == [], "no function has other code"


def test_a_test_that_takes_too_long_is_stopped(worker: Worker) -> None:
    text = MODULE.replace("count += 1", "count -= 1")
    assert ran(worker, text, "test_smaller", "test_counted") == [("test_smaller", "passed"), ("test_counted", "late")]


def test_a_process_that_ends_is_noticed(worker: Worker) -> None:
    text = MODULE.replace("return one if one < other else other", "__import__('os')._exit(0)")
    assert ran(worker, text, "test_smaller") == [("test_smaller", "ended")]


def test_a_tree_whose_tests_cannot_be_collected(tree: Path) -> None:
    with pytest.raises(TreeError, match="tests cannot be collected"):
        Worker(tree, ["tests/nothing"])


# From the command to the page.


@pytest.mark.timeout(240)
def test_a_tree_is_judged_and_what_is_known_is_not_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, kept, page = planted(tmp_path / "tree"), tmp_path / "kept", tmp_path / "page.md"
    words = ["--root", str(root), "--kept", str(kept), "--page", str(page), "--jobs", "1", "--count", "9999"]
    chosen = [f"{PATH}::{name}" for name in ("smaller::", "unused::boundary", "<module>::constant-0")]
    assert main([*words, *chosen]) == 1
    said = capsys.readouterr().out
    assert f"killed    {PATH}::smaller::comparison-0" in said
    assert f"survived  {PATH}::smaller::boundary-0" in said, "the test that reads the file does not count"
    assert f"survived  {PATH}::unused::boundary-0 0.0 s 0 tests" in said
    assert f"killed    {PATH}::<module>::constant-0" in said
    assert said.endswith("killed 2, timed out 0, survived 2, equivalent 0: 50.0 %\n")
    assert "| schemas | 4 | 2 | 0 | 2 | 1 | 0 | 50.0 % |" in page.read_text()
    main([*words, *chosen])
    assert capsys.readouterr().out.startswith("4 of 4 are known\nkilled 2")
    assert main([*words, f"{PATH}::nothing"]) == 2
    assert capsys.readouterr().err == f"error: no mutant is called {PATH}::nothing\n"


@pytest.mark.parametrize("words", [["--count", "0"], ["--count", "many"], ["--jobs", "-1"]])
def test_a_wrong_call(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as found:
        main(words)
    assert found.value.code == 2
    assert words[1] in capsys.readouterr().err


def test_an_outcome_holds_for_the_file_of_its_killer_or_the_whole_tree(tree: Path) -> None:
    mutant = mutant_of(sites_in(PATH, MODULE.encode())[0], MODULE.encode())
    killed, survived = Outcome("killed", killer=f"{FILE}::test_limit"), Outcome("survived")
    assert digest_for(tree, mutant, killed, "one") == digest_for(tree, mutant, killed, "other")
    assert digest_for(tree, mutant, survived, "one") != digest_for(tree, mutant, survived, "other")


def test_the_score_leaves_equivalent_ones_out() -> None:
    mutants = [
        Mutant(f"{path}::f::call-0", {path: ""}, (), "a | b", "pass") for path in ("berth/core/a.py", "schemas/b.py")
    ]
    rows = [(mutants[0], Outcome("survived", tests=3)), (mutants[1], Outcome("timed out"))]
    same = reasons_for(mutants, [Equivalent("berth/core/a.py", "call", "a | b", "pass", "It is so.")])
    assert summary_of(rows, {}) == "killed 0, timed out 1, survived 1, equivalent 0: 50.0 %"
    assert summary_of(rows, same) == "killed 0, timed out 1, survived 0, equivalent 1: 100.0 %"
    page = page_of(Sample(1, 9, "`t`", "`unit`"), rows, {})
    assert "| berth/core | 1 | 0 | 0 | 1 | 0 | 0 | 0.0 % |" in page
    assert "| `berth/core/a.py::f::call-0` | `a \\| b` | `pass` | 3 |" in page
    assert "| `berth/core/a.py::f::call-0` | `a \\| b` | `pass` | It is so. |" in page_of(
        Sample(1, 9, "`t`", "`unit`"), rows, same
    )


def test_packages_are_the_units_of_the_score() -> None:
    assert [package_of(path) for path in ("berth/core/state/a.py", "berth/a.py", "services/api/a.py")] == [
        "berth/core",
        "berth",
        "services",
    ]


# Made by hand.


def test_a_pattern_finds_its_place_whatever_its_layout_and_names(tree: Path) -> None:
    found = Product(tree).one("schemas", "any_one if any_one<any_other else any_other")
    assert found.parts == {"one": "one", "other": "other"}
    mutant = Product(tree).mutant("m", found.to("{other}"))
    assert (mutant.old, mutant.new) == ("return one if one < other else other", "return other")
    loop = Product(tree).one("schemas", "while any_test:\n    any_body\nreturn any_count\n")
    assert loop.one("any_count += 1\n").parts == {"count": "count"}
    assert loop.generated("comparison").new == "while count == limit:"
    with pytest.raises(TreeError, match=r"schemas: 0 places are like 'any_one is None': expected 1"):
        Product(tree).one("schemas", "any_one is None")
    with pytest.raises(TreeError, match="schemas: 3 places"):
        Product(tree).one("schemas", "return any_one\n")


def test_messages_between_the_processes_are_read_as_they_were_written() -> None:
    for message in (
        Plan("r", ("f",), "s", {"p": "t"}),
        Request([("t", 1.0)], "p", "x"),
        Ran("t", "passed", 1.0, b"\0"),
    ):
        assert msgspec.json.decode(msgspec.json.encode(message), type=type(message)) == message
