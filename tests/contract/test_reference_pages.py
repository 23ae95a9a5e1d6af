"""Pages that are made from the code are whole, and leave nothing without a meaning."""

import re
from pathlib import Path

import msgspec
import pytest

from berth.cli.commands import Command, all_commands
from berth.runtime.config import ServiceConfig, load
from berth.services.dispatcher.config import DispatcherConfig
from tests.contract.reference_pages import made_pages, messages_page, settings_of, variable
from tests.contract.struct_tables import as_markdown, default_text, fields_of
from tests.support.services import SERVICES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return made_pages()


def test_no_page_that_is_made_is_in_the_tree(pages: dict[str, str]) -> None:
    assert [name for name in pages if (DOCS / name).exists()] == []


@pytest.mark.parametrize("name", ["commands.md", "settings.md", "job-file.md"])
def test_every_row_has_a_meaning(pages: dict[str, str], name: str) -> None:
    rows = [line for line in pages[f"reference/{name}"].splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == [], "write a text below the field, or help of the option"


def test_every_command_is_on_the_page(pages: dict[str, str]) -> None:
    def names(commands: tuple[Command, ...], prefix: str) -> list[str]:
        return [
            name for each in commands for name in [f"{prefix} {each.name}", *names(each.parts, f"{prefix} {each.name}")]
        ]

    headings = re.findall(r"^### (berth .*)$", pages["reference/commands.md"], re.MULTILINE)
    assert headings == names(all_commands(), "berth")


def test_every_service_is_on_the_page_of_the_settings(pages: dict[str, str]) -> None:
    headings = re.findall(r"^## (\w+)$", pages["reference/settings.md"], re.MULTILINE)
    assert headings == SERVICES
    assert {"dispatcher", "scorer", "api"} <= set(headings)


def test_every_setting_is_on_the_page(pages: dict[str, str]) -> None:
    shown = set(re.findall(r"^\| `([a-z_.]+)` \|", pages["reference/settings.md"], re.MULTILINE))
    sections = {field.name for service in SERVICES for field in fields_of(settings_of(service)) if field.inside}
    own = {field.name for service in SERVICES for field in msgspec.structs.fields(settings_of(service))}
    assert own - sections - shown - {"fault_point"} == set()


def test_the_variable_of_a_setting_sets_it() -> None:
    assert load(ServiceConfig, None, {variable("bus.cell"): "lab"}).bus.cell == "lab"
    assert load(DispatcherConfig, None, {variable("shards"): "3"}).shards == 3


def test_sections_of_messages_have_different_anchors() -> None:
    headings = [found.lower().replace(".", "") for found in re.findall(r"^#+ (.*)$", messages_page(), re.MULTILINE)]
    assert len(headings) == len(set(headings))


def test_no_page_names_a_folder_of_this_machine(pages: dict[str, str]) -> None:
    assert [name for name, text in pages.items() if str(ROOT) in text] == []


def test_types_are_words_with_their_bounds() -> None:
    found = {field.name: field for field in fields_of(DispatcherConfig)}
    assert found["shards"].kind == "integer, 0 to 256"
    assert found["shards"].default == "0"
    assert found["decisions"].inside != []
    assert default_text("") == '`""`'


def test_text_of_a_docstring_is_shown_as_it_is_meant() -> None:
    assert as_markdown("``x*`` < y, a*b; :class:`~berth.schemas.Offer`") == r"`x*` &lt; y, a\*b; `Offer`"
