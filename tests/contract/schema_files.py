"""JSON Schemas of all messages and shapes, the AsyncAPI document and the OpenAPI document, as files.

``python -m tests.contract.schema_files`` writes them anew.
"""

import json
from pathlib import Path

from berth.schemas.catalogue import MESSAGES
from berth.schemas.gateway.openapi import openapi
from berth.schemas.programs.documents import asyncapi, shape_schema, shapes
from tests.support.message_schemas import json_schema

FOLDER = Path(__file__).parents[2] / "schemas" / "json"
ASYNCAPI = FOLDER.parent / "asyncapi.json"
OPENAPI = FOLDER.parent / "openapi.json"


def wanted() -> dict[str, str]:
    """Text of each file by its name."""
    schemas = {message.KIND: json_schema(message) for message in MESSAGES}
    schemas |= {name: shape_schema(shape) for name, shape in shapes().items()}
    return {f"{name}.json": _text(schema) for name, schema in schemas.items()}


def present() -> dict[str, str]:
    """Text of each file that is there, by its name."""
    return {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}


def wanted_asyncapi() -> str:
    """Text of the AsyncAPI document."""
    return _text(asyncapi())


def wanted_openapi() -> str:
    """Text of the OpenAPI document."""
    return _text(openapi())


def write() -> None:
    """Make the folder hold what is wanted, and nothing else."""
    FOLDER.mkdir(exist_ok=True)
    files = wanted()
    for path in FOLDER.iterdir():
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text, "utf-8")
    ASYNCAPI.write_text(wanted_asyncapi(), "utf-8")
    OPENAPI.write_text(wanted_openapi(), "utf-8")


def _text(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    write()
