"""Patterns of fields end at the end of the text: in Python ``$`` also matches before a final newline."""

import re
from pathlib import Path
from typing import Final

import msgspec
import pytest

from berth.schemas.intake import Name
from berth.schemas.programs.requests import NameOrAll

ROOT: Final = Path(__file__).parents[2]
PATTERN: Final = re.compile(r'pattern=r?"(?P<text>[^"]*)"')


def open_patterns(text: str) -> list[str]:
    """Patterns of a module that let a final newline pass."""
    return [found["text"] for found in PATTERN.finditer(text) if found["text"].endswith("$")]


def test_no_pattern_of_a_field_lets_a_final_newline_pass() -> None:
    modules = [path for part in ("berth", "schemas", "services") for path in sorted((ROOT / part).rglob("*.py"))]
    assert modules
    assert {path.name: found for path in modules if (found := open_patterns(path.read_text("utf-8")))} == {}


def test_such_a_pattern_is_noticed() -> None:
    assert open_patterns('Meta(pattern=r"^a$")') == ["^a$"]


@pytest.mark.parametrize("kind", [Name, NameOrAll])
def test_a_name_with_a_final_newline_is_none(kind: type[str]) -> None:
    assert msgspec.convert("a", kind) == "a"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert("a\n", kind)
