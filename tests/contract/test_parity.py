"""Differences from the reference: each has a name in one module, and is asked for by it."""

import re
from pathlib import Path

import pytest

import berth.core.parity
from berth.core.parity import OWN, REFERENCE, Differences, differs
from berth.schemas.ledger import Settings
from tests.contract.parity_table import decision_index, parity_page
from tests.contract.struct_tables import fields_of

ROOT = Path(__file__).parents[2]
FIELDS = Differences.__struct_fields__
MODULES = sorted(path for folder in ("berth", "services", "schemas") for path in (ROOT / folder).rglob("*.py"))
ITSELF = Path(berth.core.parity.__file__).resolve()


def test_the_setting_takes_all_of_them_back() -> None:
    assert differs(Settings()) is OWN
    assert differs(Settings(reference_parity=True)) is REFERENCE
    assert {getattr(OWN, name) for name in FIELDS} == {True}
    assert {getattr(REFERENCE, name) for name in FIELDS} == {False}


def test_no_other_module_reads_the_setting() -> None:
    reads = re.compile(r"\.reference_parity\b|[\"']reference_parity[\"']")
    found = [path for path in MODULES if path.resolve() != ITSELF and reads.search(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize("name", FIELDS)
def test_a_difference_is_asked_for(name: str) -> None:
    asks = re.compile(rf"\bdiffers(?:\([\w.]+\))?\.{name}\b")
    assert any(asks.search(path.read_text("utf-8")) for path in MODULES if path.resolve() != ITSELF)


def test_a_difference_names_its_decision() -> None:
    index = decision_index()
    assert [field.name for field in fields_of(Differences) if field.text.partition(": ")[0] not in index] == []


def test_the_page_has_each_of_them() -> None:
    page = parity_page()
    assert [name for name in FIELDS if f"| `{name}` |" not in page] == []
