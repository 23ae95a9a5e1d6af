"""Cells decide as they did when the digests were stored, and a comparison of two texts says what differs."""

from pathlib import Path

import pytest

from tests.decisions.comparison import differences, read
from tests.decisions.families import SMALL, STORED, written

_DIGESTS = dict(line.split(maxsplit=1) for line in STORED.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("family", SMALL)
def test_decisions_are_those_that_are_stored(family: str) -> None:
    digest = written(family, SMALL[family](), len)
    assert digest.text() == f"{family} {_DIGESTS[family]}", "python -m tests.decisions DIR --against FILE says which"


def test_a_changed_decision_is_named_with_its_history(tmp_path: Path) -> None:
    text = tmp_path / "decisions.txt"
    text.write_text("== seeds: one\n5 ms\n  place a\n== seeds: two\n6 ms\n", encoding="utf-8")
    before = read(text)
    after = before | {"== seeds: one": ["5 ms", "  refuse a"]}
    assert list(differences(before, before)) == []
    assert list(differences(before, after)) == [
        "== seeds: one",
        "  @@ -1,2 +1,2 @@",
        "   5 ms",
        "  -  place a",
        "  +  refuse a",
        "1 of 2 histories differ",
    ]


def test_a_history_that_is_missing_is_a_difference_and_a_family_that_is_missing_is_none() -> None:
    before = {"== seeds: one": ["5 ms"], "== seeds: two": ["6 ms"], "== cells: one": ["7 ms"]}
    after = {"== seeds: one": ["5 ms"]}
    assert list(differences(before, after)) == ["== seeds: two", "  only before", "1 of 2 histories differ"]
