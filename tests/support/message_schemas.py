"""JSON Schemas of messages."""

from inspect import cleandoc
from typing import Any

import msgspec

from berth.schemas.catalogue import portable
from berth.schemas.message import Message


def json_schema(message: type[Message]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a message's body, which is an array.

    ``x-kind`` and ``x-version`` are those of the envelope. Each array of fields has ``x-fields``: their names in the
    order of the array, because a reader cannot know a field by its position; each position also has its name as title.
    """
    (reference,), components = portable(msgspec.json.schema_components([message]))
    definitions = {name: components[name] for name in sorted(components)}
    for struct in _structs(message):
        definition = definitions[struct.__name__]
        names = [field.encode_name for field in msgspec.structs.fields(struct)]
        definition["description"] = cleandoc(struct.__doc__ or "")
        definition["prefixItems"] = [
            {"title": name, **item} for name, item in zip(names, definition.get("prefixItems", []), strict=True)
        ]
        definition["x-fields"] = names
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "On the wire this is msgpack inside the envelope [kind, version, body]; base64 texts are bytes there.",
        "x-kind": message.KIND,
        "x-version": message.VERSION,
        **reference,
        "$defs": definitions,
    }


def _structs(message: type[Message]) -> list[type[msgspec.Struct]]:
    """The message and every Struct inside it, each once."""
    found: list[type[msgspec.Struct]] = []

    def walk(node: object) -> None:
        if isinstance(node, msgspec.inspect.StructType):
            if node.cls in found:
                return
            found.append(node.cls)
        for part in _parts(node):
            walk(part)

    walk(msgspec.inspect.type_info(message))
    return found


def _parts(node: object) -> list[msgspec.inspect.Type]:
    """The types directly inside a type."""
    match node:
        case msgspec.inspect.StructType(fields=fields):
            return [field.type for field in fields]
        case msgspec.inspect.UnionType(types=types) | msgspec.inspect.TupleType(item_types=types):
            return list(types)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return [key, value]
        case (
            msgspec.inspect.ListType(item_type=inner)
            | msgspec.inspect.VarTupleType(item_type=inner)
            | msgspec.inspect.Metadata(type=inner)
        ):
            return [inner]
        case _:
            return []
