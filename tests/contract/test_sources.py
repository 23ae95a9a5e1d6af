"""What docstrings cite exists: pages of the reference and their headings, decisions, and the tests that decisions name.

Each check is a function on texts, so that a planted violation shows that it is noticed.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from berth.core.parity import Differences
from tests.contract.parity_table import DIFFERENCES, decision_index, differences
from tests.contract.reference_pages import made_pages
from tests.contract.struct_tables import fields_of
from tests.golden.harness import ALLOWED

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
DECISIONS: Final = DOCS / "decisions"
CODE: Final = ("berth", "schemas", "services", "tests", "bench")
PARTS: Final = ("Reference implementation", "Berth", "Reason", "Setting", "Tests")
"""Headings of a decision page, in this order."""
PUBLISHERS: Final = (
    "Argo Rollouts,",
    "AsyncAPI,",
    "OpenAPI,",
    "JSON Schema,",
    "JobSet,",
    "Kubernetes",
    "LeaderWorkerSet,",
    "MindCluster,",
    "NATS ",
    "RFC ",
    "Volcano,",
    "scheduler-plugins,",
    "scheduling.volcano.sh",
)
"""Other projects whose documents a source may name in place of a page of this tree."""

STATEMENT: Final = re.compile(r'\bSource: +((?:"[^"]+"|[^".]|\.(?=\w))+)')
"""Text after the word up to a full stop; a text in quotes may contain one."""
IN_TREE: Final = re.compile(r'(docs/[\w./-]+\.md)((?:,? (?:and )?"[^"]+")+)')
BY_SECTION: Final = re.compile(r"\bspecification,|\bsections? (?:[0-9]|[a-h]\.?[0-9])", re.IGNORECASE)
NUMBERED: Final = re.compile(r"\bD-[0-9]+\b")
_NAME: Final = r"(?:``?[\w.-]+``?|[a-z0-9][a-z0-9.]*(?:-[a-z0-9.]*[a-z0-9])+)"
NAMED: Final = re.compile(rf"\bdecisions? ({_NAME}(?:(?:, | and ){_NAME})*)")
SLUG: Final = re.compile(r"[^\w\- ]")


def python_files() -> list[Path]:
    """Modules of the tree; links to folders count once, and this module with its planted texts does not."""
    found = {path.resolve() for folder in CODE for path in (ROOT / folder).rglob("*.py")}
    return sorted(found - {Path(__file__).resolve()})


def pages() -> list[Path]:
    """Documents of the tree."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def headings_of(text: str) -> list[str]:
    """Headings of a page, without those in examples."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", prose, re.MULTILINE)


def anchors_of(text: str) -> set[str]:
    """Anchors of a page: its headings in lower case, without punctuation, with dashes for spaces."""
    return {SLUG.sub("", heading.lower()).replace(" ", "-") for heading in headings_of(text)}


def unresolved(text: str, headings: Mapping[str, Collection[str]]) -> list[str]:
    """Sources of a module that name no page with such a heading, and no known publisher.

    Args:
        text: The module.
        headings: Headings of each page, by its path from the root of the tree.
    """
    found = []
    flat = re.sub(r"\s*\n[ #]*", " ", text)
    for statement in STATEMENT.findall(flat):
        for page, cited in IN_TREE.findall(statement):
            names = re.findall(r'"([^"]+)"', cited)
            found += [f'{page}, "{name}"' for name in names if name not in headings.get(page, ())]
        rest = [entry.strip() for entry in IN_TREE.sub("", statement).split(";")]
        found += [entry for entry in rest if entry and not entry.startswith(PUBLISHERS)]
    return found


def citations_by_section(text: str) -> list[str]:
    """Citations of a document by the number of its section."""
    return BY_SECTION.findall(re.sub(r"\s*\n[ #]*", " ", text))


def decisions_named(text: str) -> set[str]:
    """Decisions that a text names, by number or as "decision <name>"."""
    flat = " ".join(text.split())
    named = {name.strip("`") for names in NAMED.findall(flat) for name in re.split(", | and ", names)}
    return named | set(NUMBERED.findall(flat))


def lacking_parts(text: str) -> list[str]:
    """What a decision page has otherwise than the five parts in their order, each with something in it."""
    found = re.findall(r"^## (.+)\n+([^#]*)", text, re.MULTILINE)
    if [heading for heading, _ in found] != list(PARTS):
        return [f"has {[heading for heading, _ in found]}"]
    return [f"{heading} is empty" for heading, body in found if not body.strip()]


def missing_tests(text: str) -> list[str]:
    """Tests that a decision page names and that do not exist; the page itself if it names none."""
    part = text.partition("\n## Tests\n")[2]
    named = re.findall(r"^\* `([^`]+)`$", part, re.MULTILINE)
    return [name for name in named if not (ROOT / name).is_file()] if named else ["names no test"]


def dead_links(text: str, folder: Path, made: Mapping[Path, Collection[str]]) -> list[str]:
    """Links to files of the tree that do not exist, or to headings that these do not have; code has no links.

    Args:
        text: The page.
        folder: Where it lies.
        made: Anchors of each page that is made from the code, by its path on the site.
    """
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (folder / path).resolve()
        if path and file in made:
            exists = not anchor or anchor in made[file]
        else:
            exists = file.exists() and (not anchor or anchor in anchors_of(file.read_text("utf-8") if path else text))
        if not exists:
            found.append(target)
    return found


def complaints(files: Iterable[Path], texts: Mapping[Path, list[str]]) -> list[str]:
    """What was found in each file, as lines."""
    return [f"{path.relative_to(ROOT)}: {found}" for path in files for found in texts[path]]


HEADINGS: Final = {str(path.relative_to(ROOT)): headings_of(path.read_text("utf-8")) for path in pages()}
INDEX: Final = decision_index()
DECISION_PAGES: Final = sorted(path for path in DECISIONS.glob("*.md") if path.name not in {"README.md", DIFFERENCES})

each_page = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
each_decision = pytest.mark.parametrize("page", DECISION_PAGES, ids=lambda page: page.stem)


def test_every_source_names_a_heading_that_exists() -> None:
    files = python_files()
    assert complaints(files, {path: unresolved(path.read_text("utf-8"), HEADINGS) for path in files}) == []


def test_nothing_is_cited_by_the_number_of_a_section() -> None:
    files = [*python_files(), *pages()]
    assert complaints(files, {path: citations_by_section(path.read_text("utf-8")) for path in files}) == []


def test_every_decision_that_is_named_is_in_the_index() -> None:
    files = [*python_files(), *pages()]
    named = {path: sorted(decisions_named(path.read_text("utf-8")) - INDEX.keys()) for path in files}
    assert complaints(files, named) == []


def test_every_decision_that_the_golden_tests_know_is_in_the_index() -> None:
    assert sorted(ALLOWED - INDEX.keys()) == []


def test_the_index_lists_every_decision_page_and_nothing_else() -> None:
    assert sorted(set(INDEX.values()) - {DIFFERENCES}) == [page.name for page in DECISION_PAGES]


@each_decision
def test_a_decision_page_has_its_five_parts_and_names_tests_that_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    assert lacking_parts(text) == []
    assert missing_tests(text) == []


def test_a_difference_is_told_in_one_row_and_names_tests_that_exist() -> None:
    rows = differences()
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    assert len(names) == len(set(names)) > 40
    assert [
        row[0] for row in rows if len(row) != 5 or not row[1] or not row[2] or row[3] not in {"yes", "no", ""}
    ] == []
    tests = {name: re.findall(r"`([\w/.]+\.py)`", row[4]) for row in rows for name in [row[0]]}
    assert [name for name, files in tests.items() if not files] == []
    assert [file for files in tests.values() for file in files if not (ROOT / "tests" / file).is_file()] == []


def test_a_difference_that_the_setting_takes_back_says_so() -> None:
    taken_back = {field.text.partition(": ")[0] for field in fields_of(Differences)}
    stated = {name for row in differences() for name in re.findall(r"`([^`]+)`", row[0]) if row[3] == "yes"}
    of_rows = {name for row in differences() for name in re.findall(r"`([^`]+)`", row[0])}
    assert taken_back & of_rows == stated


@pytest.fixture(scope="module")
def made() -> dict[Path, set[str]]:
    """Anchors of the pages that are made from the code."""
    return {DOCS / name: anchors_of(text) for name, text in made_pages().items()}


@each_page
def test_links_lead_to_files_and_headings_that_exist(page: Path, made: dict[Path, set[str]]) -> None:
    assert dead_links(page.read_text("utf-8"), page.parent, made) == []


def test_links_of_pages_that_are_made_lead_somewhere(made: dict[Path, set[str]]) -> None:
    found = {name: dead_links(text, (DOCS / name).parent, made) for name, text in made_pages().items()}
    assert {name: links for name, links in found.items() if links} == {}


PAGE_WORDS_MAX: Final = 4_000
WORDS_MAX: Final = 110_000
"""Of pages that people write; marks of tables are no words."""


def test_pages_are_short_and_no_two_have_one_name() -> None:
    words = re.compile(r"\S*\w\S*")
    counts = {path: len(words.findall(path.read_text("utf-8"))) for path in pages() if path.name != "CHANGELOG.md"}
    assert {str(path.relative_to(ROOT)): count for path, count in counts.items() if count > PAGE_WORDS_MAX} == {}
    written = sum(count for path, count in counts.items() if path.parent != DOCS / "results")
    assert written <= WORDS_MAX
    names = Counter(path.name for path in [*counts, *(Path(name) for name in made_pages())] if path.name != "README.md")
    assert [name for name, count in names.items() if count > 1] == []


def test_each_index_of_a_folder_lists_its_pages() -> None:
    made = {Path(name) for name in made_pages()}
    for folder in (DOCS, DOCS / "reference", DOCS / "howto", DOCS / "decisions"):
        listed = set(re.findall(r"\]\(([\w.-]+\.md)\)", (folder / "README.md").read_text("utf-8")))
        own = {path.name for path in made if DOCS / path.parent == folder}
        assert listed == {path.name for path in folder.glob("*.md")} - {"README.md"} | own


QUESTIONS: Final = (
    "ring order (HCCS)",
    "EASY reservation",
    "expected start of a job that waits",
    "sources of queues",
    "admission of PodGroups",
    "victims of preemption and reclaim",
    "place that is reserved for a preemptor",
    "rules of the queue",
    "shared leaf states",
    "kinds of workloads: size, minimum, ranks, restarts, manifests",
    "topologies: demands, places, groups, plans",
    "`huawei.com/Ascend910` annotation",
    "tentative placements and what-if",
    "retry of waiting classes",
    "gangs with many different tasks",
    "refused append",
    "NATS failure in the middle of a round",
    "message versions",
    "drains",
    "recoveries of faulty jobs",
    "restarts that are held back",
    "who may do what on NATS",
    "backup and restore",
    "check of a cell",
    "dead letters",
    "status of a cell",
    "texts from outside on a terminal",
    "bounds of one identity at the gateway",
    "extender for kube-scheduler",
    "all services in one process",
    "metrics and alerts",
    "the page for browsers",
    "product forms",
    "lists for programs: jobs, how full the cell is, faults, drains",
    "recordings in the page",
    "fencing",
    "from a device report to a chip",
    "the text on a pod",
    "from INTAKE to the Binding of a job",
    "one rule of the queue, whole",
)
"""Rows of the page that says where things are."""
FILES_MAX: Final = 3


def answers(text: str) -> dict[str, list[str]]:
    """Files that each row of the page names, in their order."""
    rows = re.findall(r"^\| (?!what |---)(.+?) \| (`.+?`) \| (.+?) \| .+ \|$", text, re.MULTILINE)
    return {what: re.findall(r"`([^`]+)`", f"{first} {then}") for what, first, then in rows}


def test_where_things_are_is_answered_with_at_most_three_files_that_exist() -> None:
    found = answers((DOCS / "where-is.md").read_text("utf-8"))
    assert tuple(found) == QUESTIONS
    assert [name for names in found.values() for name in names if not (ROOT / name).is_file()] == []
    assert {what: len(names) for what, names in found.items() if not 1 <= len(names) <= FILES_MAX} == {}


def test_a_row_of_where_things_are_is_read_whole() -> None:
    text = (
        "| what | first | then | in short |\n|---|---|---|---|\n| `a` b | `x/y.py` | `z.md`, `q.py` | it is `c.py` |\n"
    )
    assert answers(text) == {"`a` b": ["x/y.py", "z.md", "q.py"]}


PLANTED: Final = {"docs/reference/a.md": ["Rings", "Order of picking. A note"]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Text.\n\nSource: docs/reference/a.md, "Rings".\n"""', []),
        ('    Source: docs/reference/a.md, "Rings",\n    "Order of picking. A note"; Kubernetes, v1 Event.', []),
        ('Source: docs/reference/a.md, "Ring".', ['docs/reference/a.md, "Ring"']),
        ('Source: docs/reference/b.md, "Rings".', ['docs/reference/b.md, "Rings"']),
        ('Source: docs/reference/a.md, "Rings" and "Cards".', ['docs/reference/a.md, "Cards"']),
        ('Source: docs/reference/a.md, "Rings"; the paper of 2019.', ["the paper of 2019"]),
        ("Source: docs/reference/a.md.", ["docs/reference/a.md"]),
        ("# Source: section 5.", ["section 5"]),
    ],
)
def test_a_source_that_does_not_resolve_is_noticed(text: str, found: list[str]) -> None:
    assert unresolved(text, PLANTED) == found


@pytest.mark.parametrize(
    "text", ["Source: specification,\n    node and chip", "see section 5.2", "Sections 8.2 and 8.3", "section\n# B.4"]
)
def test_a_citation_by_section_is_noticed(text: str) -> None:
    assert citations_by_section(text) != []
    assert citations_by_section("sections of a page, and a specification of this product") == []


def test_names_of_decisions_are_noticed() -> None:
    text = "by decision leaf-order,\nor (decision ``strict_shape``), D-4 to D-6; a decision that is late, and decisions go on"
    assert decisions_named(text) == {"leaf-order", "strict_shape", "D-4", "D-6"}
    assert decisions_named("See decisions\n    a-b, c-1.0 and d-e. Then f-g") == {"a-b", "c-1.0", "d-e"}


def test_a_decision_page_without_a_part_or_a_test_is_noticed() -> None:
    whole = "# D-1: Title\n" + "".join(f"\n## {part}\n\n* `tests/contract/test_docs.py`\n" for part in PARTS)
    assert lacking_parts(whole) == []
    assert missing_tests(whole) == []
    assert lacking_parts(whole.replace("## Reason", "## Why")) != []
    assert lacking_parts(whole.replace("## Reason\n\n* `tests/contract/test_docs.py`", "## Reason\n")) != []
    assert missing_tests(whole.replace("test_docs", "test_no_docs")) != []
    assert missing_tests("# D-1: Title\n\n## Tests\n\nNone.\n") != []


def test_a_dead_link_is_noticed() -> None:
    text = "# One heading\n[a](test_docs.py) [b](#one-heading) [c](https://example.org/#no)"
    folder = Path(__file__).parent
    assert dead_links(text, folder, {}) == []
    assert dead_links(text.replace("test_docs", "no_docs"), folder, {}) == ["no_docs.py"]
    assert dead_links(text.replace("test_docs", "no_docs"), folder, {folder / "no_docs.py": []}) == []
    assert dead_links(text.replace("#one-heading", "#two"), folder, {}) == ["#two"]
