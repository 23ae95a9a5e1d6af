"""The catalogue holds every message, and the stored JSON Schema says what the code says."""

import importlib
import pkgutil

import msgspec
import pytest

from berth import schemas
from berth.schemas.catalogue import MESSAGES
from berth.schemas.message import Message
from tests.contract.schema_files import present, wanted
from tests.support.message_schemas import json_schema


def test_the_catalogue_holds_every_message_in_order_of_kind() -> None:
    modules = [
        importlib.import_module(f"berth.schemas.{module.name}") for module in pkgutil.iter_modules(schemas.__path__)
    ]
    defined = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and value.KIND
    }
    assert set(MESSAGES) == defined
    kinds = [message.KIND for message in MESSAGES]
    assert kinds == sorted(set(kinds))


def test_no_schema_file_is_missing_and_none_is_surplus() -> None:
    assert sorted(present()) == sorted(wanted())


@pytest.mark.parametrize("name", sorted(wanted()))
def test_a_schema_file_says_what_the_code_says(name: str) -> None:
    assert present().get(name) == wanted()[name], "run `make schemas`, and look at the difference"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.KIND)
def test_every_field_has_its_name_beside_its_position(message: type[Message]) -> None:
    definitions = json_schema(message)["$defs"]
    assert definitions[message.__name__]["x-fields"] == [field.name for field in msgspec.structs.fields(message)]
    for definition in definitions.values():
        assert [item["title"] for item in definition["prefixItems"]] == definition["x-fields"]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.KIND)
def test_fields_that_follow_one_with_a_default_have_defaults(message: type[Message]) -> None:
    required = [field.required for field in msgspec.structs.fields(message)]
    assert required == sorted(required, reverse=True)
