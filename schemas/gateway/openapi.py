"""OpenAPI document of the gateway.

Source: OpenAPI, 3.1.0; JSON Schema, 2020-12.
"""

import re
from http import HTTPStatus
from typing import Any, Final

from berth.schemas.gateway.endpoints import ENDPOINTS, EVENTS, JSON, Endpoint, Field, fields_of
from berth.schemas.programs.documents import API_VERSION, components_of
from berth.schemas.programs.examples import EXAMPLES
from berth.schemas.programs.job_file import JobFile, OtherJob
from berth.schemas.programs.replies import ErrorReply
from berth.schemas.programs.requests import StatusRequest, UndrainRequest
from berth.schemas.programs.shape import Shape

_ALWAYS: Final = (HTTPStatus.BAD_REQUEST,)
_WITH_TOKEN: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_TAGS: Final = {
    "jobs": "Submit jobs, follow, list and cancel them.",
    "cell": "Nodes, how full places are, faults, drains and queues.",
    "operators": "How the processes of the cell do, and its maintenance.",
    "caller": "What the caller may do, and this document.",
}
_NAME: Final = re.compile(r"\{(\w+)\}")
_TEXTS: Final = {"namespace": "Namespace of the job.", "name": "Name of the job."}
_JOB: Final = {field.name: field._replace(text=_TEXTS.get(field.name, "")) for field in fields_of(StatusRequest)}
_DRAIN: Final = {field.name: field for field in fields_of(UndrainRequest)}


def openapi() -> dict[str, Any]:
    """OpenAPI 3.1 document of the endpoints for programs; those that the page alone uses are not in it."""
    types: list[type[Shape]] = [ErrorReply]
    shown = [one for one in ENDPOINTS if one.tag]
    for one in shown:
        types += [kind for kind in (one.body, one.answer) if kind is not None and kind not in types]
    _, schemas = components_of(types, "#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for one in shown:
        paths.setdefault(one.path, {})[one.method] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Berth gateway",
            "version": API_VERSION,
            "description": "Fields are added; readers ignore fields and values of enumerations that they do not know.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8222", "description": "A gateway on this machine."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }


def _operation(one: Endpoint) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.text.partition(". ")[0].rstrip("."),
        "description": f"{one.text} Role: {one.role}.",
        "tags": [one.tag],
    }
    if one.role == "public":
        made["security"] = []
    named = _DRAIN if one.path.startswith("/api/v1/drains/") else _JOB
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": named[name].text,
            "schema": named[name].schema,
        }
        for name in _NAME.findall(one.path)
    ]
    parameters += [_parameter(field) for field in one.query]
    if parameters:
        made["parameters"] = parameters
    if one.body is not None:
        made["requestBody"] = {"required": True, "content": {JSON: _content_of(one.body)}}
    found = {status: {"description": status.phrase, "content": _content(one)} for status in one.statuses}
    needed = (*_ALWAYS, *one.errors, *(() if one.role == "public" else _WITH_TOKEN))
    failed = {"content": {JSON: _content_of(ErrorReply)}}
    found |= {status: {"description": status.phrase, **failed} for status in sorted(set(needed))}
    made["responses"] = {str(status.value): answer for status, answer in found.items()}
    return made


def _parameter(field: Field) -> dict[str, Any]:
    made = {"name": field.name, "in": "query", "required": False, "description": field.text, "schema": field.schema}
    return {**made, "style": "form", "explode": False} if field.schema.get("type") == "array" else made


def _content(one: Endpoint) -> dict[str, Any]:
    if one.media == EVENTS and one.answer is not None:
        text = f"The data of each event is JSON of {one.answer.__name__}."
        return {EVENTS: {"schema": {"type": "string", "description": text}, "x-event": _reference(one.answer)}}
    if one.answer is not None:
        return {one.media: _content_of(one.answer)}
    return {one.media: {"schema": {"type": one.loose} | ({"items": {}} if one.loose == "array" else {})}}


def _content_of(shape: type[Shape]) -> dict[str, Any]:
    """Schema of what is sent as JSON, with an example."""
    either = {"anyOf": [_reference(JobFile), _reference(OtherJob)]}
    example = EXAMPLES.get(shape.__name__)
    return {"schema": either if shape is JobFile else _reference(shape)} | (
        {} if example is None else {"example": example}
    )


def _reference(shape: type[Shape]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{shape.__name__}"}
