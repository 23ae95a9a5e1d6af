"""The JSON shapes for programs: their stored schemas, the AsyncAPI document, and what job files of both sides hold."""

import json
from typing import Any

import msgspec
import pytest

from berth.formats.manifests import job_file
from berth.schemas.programs.documents import asyncapi, camel, shape_schema, shapes
from berth.schemas.programs.events import FINAL, PHASES
from berth.schemas.programs.examples import EXAMPLES
from berth.schemas.programs.job_file import JobFile, JobSpec, JobTask
from berth.schemas.programs.operations import OPERATIONS
from berth.schemas.programs.shape import Request, Sent, Shape
from tests.contract.schema_files import ASYNCAPI, OPENAPI, wanted_asyncapi, wanted_openapi
from tests.support.json_schema import fits


def test_the_asyncapi_document_says_what_the_code_says() -> None:
    assert ASYNCAPI.read_text("utf-8") == wanted_asyncapi(), "run `make schemas`, and look at the difference"


def test_the_openapi_document_says_what_the_code_says() -> None:
    assert OPENAPI.read_text("utf-8") == wanted_openapi(), "run `make schemas`, and look at the difference"


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = asyncapi()
    references = _references(document)
    assert len(references) > 50
    for reference in references:
        place: Any = document
        for key in reference.removeprefix("#/").split("/"):
            assert key in place, reference
            place = place[key]


def test_every_operation_has_both_subjects_and_a_reply() -> None:
    document = asyncapi()
    for one in OPERATIONS:
        assert document["channels"][camel(one.verb)]["address"] == f"berth.{{cell}}.api.{one.verb}"
        assert (
            document["channels"][f"{camel(one.verb)}AsIdentity"]["address"]
            == f"berth.{{cell}}.api.{one.verb}.{{identity}}"
        )
        assert len(document["operations"][camel(one.verb)]["reply"]["messages"]) == 2


@pytest.mark.parametrize("shape", shapes().values(), ids=lambda shape: shape.__name__)
def test_every_shape_is_an_object_with_described_fields(shape: type[Shape]) -> None:
    own = shape_schema(shape)["$defs"][shape.__name__]
    assert own["type"] == "object"
    assert own["description"]
    refuses_unknown = own.get("additionalProperties") is False
    assert refuses_unknown == issubclass(shape, Request)


def test_fields_of_a_job_file_are_those_that_its_reader_knows() -> None:
    spec = {field.encode_name for field in msgspec.structs.fields(JobSpec)}
    task = {field.encode_name for field in msgspec.structs.fields(JobTask)}
    assert spec == {*job_file._JOB_FIELDS, *job_file._POD_FIELDS}
    assert task == {"name", "nodeSelector", *job_file._POD_FIELDS}
    assert {field.encode_name: field.default for field in msgspec.structs.fields(JobFile) if not field.required} == {
        "apiVersion": job_file.API_VERSION,
        "kind": job_file.KIND,
    }


def test_final_phases_are_phases() -> None:
    assert set(PHASES) >= FINAL
    assert len(set(PHASES)) == len(PHASES)


def _references(node: object) -> list[str]:
    match node:
        case dict():
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for value in node.values() for found in _references(value)]
        case list():
            return [found for value in node for found in _references(value)]
        case _:
            return []


def test_the_documents_are_plain_json() -> None:
    assert json.loads(wanted_asyncapi()) == asyncapi()


def test_what_programs_send_has_no_defaults_and_what_they_get_says_which_fields_are_there() -> None:
    for name, schema in asyncapi()["components"]["schemas"].items():
        places = schema["properties"]
        assert not [field for field, place in places.items() if "default" in place], name
        if name.endswith(("Reply", "Event", "State")):
            assert [field for field in places if field not in schema["required"]] in (
                [],
                ["details"],
                ["retry_after_ms"],
            )
    assert asyncapi()["components"]["schemas"]["JobFile"]["required"] == ["apiVersion", "kind", "metadata", "spec"]


def test_examples_are_what_their_types_read_and_write() -> None:
    types: dict[str, type[Shape]] = {**{one.__name__: one for one in shapes().values()}, "JobFile": JobFile}
    assert set(EXAMPLES) <= set(types)
    assert {shape.__name__ for shape in shapes().values() if issubclass(shape, Request)} <= set(EXAMPLES)
    for name, example in EXAMPLES.items():
        read = msgspec.convert(example, types[name])
        assert issubclass(types[name], Sent) or msgspec.to_builtins(read) == example, name
        schema = shape_schema(types[name])
        assert fits(example, {"$ref": schema["$ref"]}, schema["$defs"]), name
