"""JSON Schema of every message, as files: ``python -m tests.contract.schema_files`` writes them anew."""

import json
from pathlib import Path

from berth.schemas.catalogue import MESSAGES, json_schema

FOLDER = Path(__file__).parents[2] / "schemas" / "json"


def wanted() -> dict[str, str]:
    """Text of each file by its name."""
    return {f"{message.KIND}.json": json.dumps(json_schema(message), indent=2) + "\n" for message in MESSAGES}


def present() -> dict[str, str]:
    """Text of each file that is there, by its name."""
    return {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}


def write() -> None:
    """Make the folder hold what is wanted, and nothing else."""
    FOLDER.mkdir(exist_ok=True)
    files = wanted()
    for path in FOLDER.iterdir():
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write()
