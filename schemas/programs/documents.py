"""Documents for programs in other languages: JSON Schemas of the shapes, and the AsyncAPI document of the subjects.

Source: AsyncAPI, 3.0.0; JSON Schema, 2020-12.
"""

import ast
import inspect
import itertools
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from berth.schemas.catalogue import portable
from berth.schemas.programs.events import JobEvent
from berth.schemas.programs.operations import OPERATIONS
from berth.schemas.programs.replies import ErrorReply
from berth.schemas.programs.shape import Shape

API_VERSION: Final = "1.0.0"
"""Version of the API. Fields that are added raise the second number."""
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_CELL: Final = {"description": "Name of the cell. Bytes other than letters, digits, - and _ are =XX in hex."}
_IDENTITY: Final = {"description": "Identity of the caller, escaped as the cell: the one that NATS knows it by."}
_NAMESPACE: Final = {"description": "Namespace of the job, escaped as the cell."}
_JOB: Final = {"description": "Name of the job, escaped as the cell."}


def shapes() -> dict[str, type[Shape]]:
    """Every request, reply and event, by the name of its file."""
    found: dict[str, type[Shape]] = {"api.error": ErrorReply, "event.job": JobEvent}
    for one in OPERATIONS:
        found[f"api.{one.verb}.request"] = one.request
        found[f"api.{one.verb}.reply"] = one.reply
    return dict(sorted(found.items()))


def shape_schema(shape: type[Shape]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a shape, with the descriptions of its fields."""
    (reference,), components = components_of([shape], "#/$defs/{name}")
    return {"$schema": _DIALECT, **reference, "$defs": components}


def asyncapi() -> dict[str, Any]:
    """AsyncAPI 3 document of the JSON API and the events, as the service ``api`` offers them."""
    types = list(shapes().values())
    _, schemas = components_of(types, "#/components/schemas/{name}")
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for one in OPERATIONS:
        request, reply = one.request.__name__, one.reply.__name__
        for name, tail, parameters in (
            (one.verb, "", {"cell": _CELL}),
            (f"{one.verb}AsIdentity", ".{identity}", {"cell": _CELL, "identity": _IDENTITY}),
        ):
            channels[name] = {
                "address": f"berth.{{cell}}.api.{one.verb}{tail}",
                "parameters": parameters,
                "messages": _messages([request]),
            }
            operations[name] = {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{name}"},
                "summary": _first_line(one.request),
                "messages": [{"$ref": f"#/channels/{name}/messages/{request}"}],
                "reply": {
                    "address": {"location": "$message.header#/reply", "description": "Reply subject of the request."},
                    "channel": {"$ref": f"#/channels/{one.verb}Reply"},
                    "messages": [
                        {"$ref": f"#/channels/{one.verb}Reply/messages/{each}"} for each in (reply, "ErrorReply")
                    ],
                },
            }
        channels[f"{one.verb}Reply"] = {"address": None, "messages": _messages([reply, "ErrorReply"])}
    channels["jobEvents"] = {
        "address": "berth.{cell}.event.job.{namespace}.{job}",
        "parameters": {"cell": _CELL, "namespace": _NAMESPACE, "job": _JOB},
        "messages": _messages(["JobEvent"]),
        "description": "Stored in the JetStream stream EVENTS_<cell>.",
    }
    operations["jobEvents"] = {
        "action": "send",
        "channel": {"$ref": "#/channels/jobEvents"},
        "summary": _first_line(JobEvent),
        "messages": [{"$ref": "#/channels/jobEvents/messages/JobEvent"}],
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Berth for programs",
            "version": API_VERSION,
            "description": "Fields are added; readers ignore fields and values of enumerations that they do not know.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {
                each.__name__: {
                    "name": each.__name__,
                    "summary": _first_line(each),
                    "payload": {"$ref": f"#/components/schemas/{each.__name__}"},
                }
                for each in types
            },
            "schemas": schemas,
        },
    }


def _messages(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _first_line(shape: type[Shape]) -> str:
    return (shape.__doc__ or "").partition("\n")[0]


def components_of(types: Iterable[type[Shape]], template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """References to types, and the schemas of all objects in them by name, sorted."""
    references, components = portable(msgspec.json.schema_components(list(types), ref_template=template))
    for name, cls in _shapes_in(types).items():
        texts = field_texts(cls)
        places = components[name].get("properties", {})  # a row has none: its fields are an array
        for field in msgspec.structs.fields(cls):
            if field.name in texts and field.encode_name in places:
                places[field.encode_name] = {"description": texts[field.name], **places[field.encode_name]}
    return references, {name: components[name] for name in sorted(components)}


def _shapes_in(types: Iterable[type[Shape]]) -> dict[str, type[msgspec.Struct]]:
    """The types and all shapes inside them, by name."""
    found: dict[str, type[msgspec.Struct]] = {}
    waiting: list[object] = [msgspec.inspect.type_info(each) for each in types]
    while waiting:
        match waiting.pop():
            case msgspec.inspect.StructType(cls=cls, fields=fields) if cls.__name__ not in found:
                found[cls.__name__] = cls
                waiting += [field.type for field in fields]
            case msgspec.inspect.UnionType(types=parts):
                waiting += parts
            case msgspec.inspect.ListType(item_type=inner) | msgspec.inspect.Metadata(type=inner):
                waiting.append(inner)
            case _:
                pass
    return found


def field_texts(cls: type[msgspec.Struct]) -> dict[str, str]:
    """Text under each field of a class and of those that it extends, on one line."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        (tree,) = ast.parse(inspect.getsource(base)).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, text in itertools.pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = " ".join(words.split())
                case _:
                    pass
    return found
