"""Documents for programs in other languages: JSON Schemas of the shapes, and the AsyncAPI document of the subjects.

Source: AsyncAPI, 3.0.0; JSON Schema, 2020-12.
"""

import ast
import inspect
import itertools
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from berth.schemas.catalogue import portable
from berth.schemas.programs.events import JobEvent
from berth.schemas.programs.examples import EXAMPLES
from berth.schemas.programs.job_file import JobFile, OtherJob
from berth.schemas.programs.operations import OPERATIONS
from berth.schemas.programs.replies import ErrorReply
from berth.schemas.programs.shape import Sent, Shape

API_VERSION: Final = "1.0.0"
"""Version of the API. Fields that are added raise the second number."""
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Final[tuple[object, ...]] = (None, "", 0, False, [], {})
"""Defaults that say nothing."""
_OF_JOBS: Final = frozenset({"submit", "submit-many", "cancel", "update", "status", "explain", "jobs", "events"})
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
        request, reply, verb = one.request.__name__, one.reply.__name__, camel(one.verb)
        for name, tail, parameters in (
            (verb, "", {"cell": _CELL}),
            (f"{verb}AsIdentity", ".{identity}", {"cell": _CELL, "identity": _IDENTITY}),
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
                "tags": [{"name": tag_of(one.verb)}],
                "messages": [{"$ref": f"#/channels/{name}/messages/{request}"}],
                "reply": {
                    "address": {"location": "$message.header#/reply", "description": "Reply subject of the request."},
                    "channel": {"$ref": f"#/channels/{verb}Reply"},
                    "messages": [{"$ref": f"#/channels/{verb}Reply/messages/{each}"} for each in (reply, "ErrorReply")],
                },
            }
        channels[f"{verb}Reply"] = {"address": None, "messages": _messages([reply, "ErrorReply"])}
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
        "tags": [{"name": "jobs"}],
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
        "servers": {
            "local": {"host": "127.0.0.1:4222", "protocol": "nats", "description": "A NATS server on this machine."}
        },
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {
                each.__name__: {
                    "name": each.__name__,
                    "summary": _first_line(each),
                    "payload": {"$ref": f"#/components/schemas/{each.__name__}"},
                    **_examples(each),
                }
                for each in types
            },
            "schemas": schemas,
        },
    }


def camel(verb: str) -> str:
    """Name of an operation in documents, such as ``submitMany``."""
    first, *rest = verb.split("-")
    return first + "".join(word.capitalize() for word in rest)


def tag_of(verb: str) -> str:
    """What an operation is about: jobs, the cell, or its caller."""
    return "jobs" if verb in _OF_JOBS else "caller" if verb == "rights" else "cell"


def _examples(shape: type[Shape]) -> dict[str, Any]:
    example = EXAMPLES.get(shape.__name__)
    return {} if example is None else {"examples": [{"payload": example}]}


def _messages(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _first_line(shape: type[Shape]) -> str:
    return (shape.__doc__ or "").partition("\n")[0]


def components_of(types: Iterable[type[Shape]], template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """References to types, and the schemas of all objects in them by name, sorted.

    What programs send has no defaults, and what is fixed in it is required; what they get has every field that is
    always there as required.
    """
    asked: list[type[Shape]] = list(types)
    has_jobs = JobFile in _shapes_in(asked).values()
    wanted: list[type[Shape]] = [*asked, OtherJob] if has_jobs and OtherJob not in asked else asked
    references, components = _plain(portable(msgspec.json.schema_components(wanted, ref_template=template)))
    for name, cls in _shapes_in(wanted).items():
        if "properties" in components[name]:  # a row has none: its fields are an array
            _complete(components[name], cls)
    if OtherJob.__name__ in components:
        components[OtherJob.__name__]["additionalProperties"] = True
    either = {"anyOf": [{"$ref": template.format(name=each.__name__)} for each in (JobFile, OtherJob)]}
    for shape, field in (("SubmitRequest", "job"), ("SubmitManyRequest", "jobs")):
        if shape in components:
            place = components[shape]["properties"][field]
            own = {key: value for key, value in place.items() if key not in {"$ref", "items"}}
            components[shape]["properties"][field] = own | ({"items": either} if "items" in place else either)
    return references[: len(asked)], {name: components[name] for name in sorted(components)}


def _plain(schema: Any) -> Any:  # noqa: ANN401  # any JSON
    """A schema that generators of clients take as it is meant.

    Enumerations have a type, and are a constant if they have one value; objects of any fields say that they are.
    """
    if isinstance(schema, dict):
        found = {key: _plain(value) for key, value in schema.items()}
        values = found.get("enum")
        if isinstance(values, list):
            found = {"type": "string" if isinstance(values[0], str) else "integer", **found}
            if len(values) == 1:
                found["const"] = found.pop("enum")[0]
        if found.get("type") == "object" and "properties" not in found:
            found.setdefault("additionalProperties", True)
        return found
    return [_plain(one) for one in schema] if isinstance(schema, list | tuple) else schema


def _complete(schema: dict[str, Any], cls: type[msgspec.Struct]) -> None:
    """Say of the fields of an object what they mean, and which of them are there."""
    texts, places = field_texts(cls), schema["properties"]
    required: list[str] = []
    for field in msgspec.structs.fields(cls):
        name = field.encode_name
        place = {"description": texts[field.name], **places[name]} if field.name in texts else places[name]
        default = place.pop("default", None)
        if issubclass(cls, Sent):
            if field.required or "const" in place:
                required.append(name)
            elif default not in _PLAIN:
                words = f"Default: `{default}`."
                place = {**place, "description": f"{place['description']} {words}" if "description" in place else words}
        else:
            if field.name == "ok" and isinstance(field.default, bool):
                place["const"] = field.default
            if field.default is not UNSET:
                required.append(name)
        places[name] = place
    schema["required"] = required
    if not required:
        del schema["required"]


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
