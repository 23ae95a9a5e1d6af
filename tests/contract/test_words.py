"""Words that the product does not use, with the term that it uses instead: in prose, names, messages and documents.

The list holds words without a legitimate use here. The documents about results and the files of recorded runs are not
searched.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("berth", "services", "schemas", "k8s")
SUFFIXES = {".py", ".yaml", ".toml", ".conf", ".html"}
TERMS = {
    "yard": "candidate pool",
    "klass": "request_class",
    "lull": "restore_sleep",
    "hush": "suppress",
    "bury": "dead_letter",
    "setback": "failure, or set aside",
    "for ever": "forever",
    "turned away": "rejected",
    "foreign dress": "external format",
    "reign": "leadership",
    "reigns": "is leader",
    "sick": "unhealthy",
    "mend": "repair",
    "mends": "repairs, corrects",
    "mended": "repaired, recovered",
    "mending": "repair",
    "rival": "baseline, or alternative",
    "taste": "affinity preference",
    "at hand": "available",
    "in hand": "current",
    "well again": "healthy again, available again",
}
"""A word or phrase that is banned, and what to write."""
KEPT = {"mend": {"berth/lab/commands/breaking.py", "docs/cli/json.md"}}
"""Where a word stays as a field of the JSON output."""
_GAP = r"[#\s]+"
"""Between two words of a phrase: blanks, a line break, the mark of a comment."""


def name_parts(text: str) -> str:
    """The text with identifiers split into words, so that ``_is_klass`` and ``SetBack`` are found too."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace("_", " "))


def product_files() -> list[Path]:
    """Sources, manifests and documents of the product."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    documents = [path for path in (ROOT / "docs").rglob("*.md") if not {"results", "node_modules"} & set(path.parts)]
    found += [*ROOT.glob("*.md"), *documents, ROOT / "compose.yaml"]
    return sorted(path for path in set(found) if not path.is_symlink())


def uses_of(term: str, text: str) -> list[int]:
    """Numbers of the lines that use a term: a word also as a part of a name, a phrase also across lines."""
    pattern = re.compile(rf"\b{_GAP.join(term.split())}\b", re.IGNORECASE)
    searched = text if " " in term else name_parts(text)
    return [searched.count("\n", 0, match.start()) + 1 for match in pattern.finditer(searched)]


@pytest.mark.parametrize("term", TERMS)
def test_the_product_uses_the_terms_of_its_field(term: str) -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in product_files()
        if (lines := uses_of(term, path.read_text("utf-8")))
    }
    kept = KEPT.get(term, set())
    assert {path: lines for path, lines in found.items() if path not in kept} == {}, f"write {TERMS[term]!r}"
    assert kept <= found.keys()


def test_a_term_is_found_in_names_and_across_lines() -> None:
    assert uses_of("klass", "def _klass_of(x): ...") == [1]
    assert uses_of("taste", "class MyTaste: ...") == [1]
    assert uses_of("turned away", "is turned\n    # away by") == [1]
    assert uses_of("reign", "a foreign key") == []
    assert uses_of("mend", "recommended; _mend_storage") == [1]
    assert uses_of("mend", "recommend") == []


def test_files_of_every_kind_are_searched() -> None:
    names = {str(path.relative_to(ROOT)) for path in product_files()}
    assert {"README.md", "compose.yaml", "docs/cli.md", "berth/cli/app.py", "k8s/base/dispatcher.yaml"} <= names
