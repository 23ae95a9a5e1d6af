"""Mutants that are made by hand belong to the tree as it is: each has exactly one place, and is Python that differs."""

from pathlib import Path

import pytest

from tests.mutants.equivalents import equivalents_in
from tests.mutants.made import MADE
from tests.mutants.patterns import Product

ROOT = Path(__file__).parents[2]
PRODUCT = Product(ROOT)
MOST = 60


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_mutant_that_is_made_by_hand_has_one_place(name: str) -> None:
    mutant = MADE[name].mutant(PRODUCT)
    for path, text in mutant.texts.items():
        assert text != (ROOT / path).read_text("utf-8")
        compile(text, path, "exec", dont_inherit=True)
    assert MADE[name].says.endswith("."), "one line that says what the change does"


def test_few_are_made_by_hand() -> None:
    assert len(MADE) <= MOST


def test_each_equivalent_mutant_has_a_reason_and_a_module() -> None:
    for one in equivalents_in():
        assert one.why.endswith("."), one
        assert (ROOT / one.path).is_file(), one
