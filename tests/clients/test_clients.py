"""Clients that are generated from the documents compile and run, and the gateway does what its document says.

``make test-clients`` runs them; ``tests/clients/assets.sh`` brings the generators.
"""

import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from tests.support.gateway_cells import ADMIN, GRANTS, Gateway, gateway_cell, token_of
from tests.support.processes import ROOT, output_of

FOLDER: Final = Path(__file__).parent
_HOME: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # noqa: TID251  # as assets.sh reads it
CACHE: Final = _HOME / "berth" / "clients"
EXAMPLES: Final = ROOT / "docs" / "examples" / "clients"
OPENAPI: Final = ROOT / "schemas" / "openapi.json"
RANK: Final = re.compile(r"^rank \d on \S+ chips 0 1 2 3 4 5 6 7$", re.MULTILINE)
LINES_MAX: Final = 40
STREAM: Final = "jobEvents"
"""Operation whose answer does not end."""
run: Final = partial(output_of, within_s=240)


@asynccontextmanager
async def a_gateway(folder: Path, server: EmbeddedServer, cell: str) -> AsyncIterator[Gateway]:
    patient = {"access": "grants", "grants": GRANTS, "requests_per_s": 100_000, "requests_burst": 1_000_000}
    async with gateway_cell(folder, server.url, cell, api=patient) as (gateway, _):
        yield gateway


async def see_run(gateway: Gateway, *words: str | Path, folder: Path) -> None:
    """Run an example, and see that it has submitted, placed and cancelled a job."""
    out = await run(*words, gateway.url, token_of(ADMIN), "example", folder=folder)
    assert len(RANK.findall(out)) == 2, out
    answer = await gateway.ask("GET", "/api/v1/jobs?namespace=team-a")
    assert [(one["name"], one["phase"]) for one in answer.json["jobs"]] == [("example", "cancelled")]
    assert "cancelled" in out


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*/train.*")), ids=lambda path: path.parent.name)
def test_an_example_is_short(program: Path) -> None:
    assert len(program.read_text("utf-8").splitlines()) <= LINES_MAX


@pytest.mark.timeout(300)
async def test_a_generated_client_in_typescript(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    folder = tmp_path / "program"
    shutil.copytree(EXAMPLES / "typescript", folder)
    shutil.copy(FOLDER / "package.json", folder)
    (folder / "node_modules").symlink_to(CACHE / "node_modules")
    tools = folder / "node_modules" / ".bin"
    await run(tools / "openapi-typescript", OPENAPI, "-o", "berth.d.ts", folder=folder)
    strict = ("--strict", "--skipLibCheck", "--target", "es2022", "--module", "esnext")
    await run(tools / "tsc", *strict, "--moduleResolution", "bundler", "--types", "node", "train.ts", folder=folder)
    async with a_gateway(tmp_path, own_server, cell) as gateway:
        await see_run(gateway, "node", "train.js", folder=folder)


@pytest.mark.timeout(300)
async def test_a_generated_client_in_python(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    python = CACHE / "venv" / "bin" / "python"
    folder = tmp_path / "program"
    shutil.copytree(EXAMPLES / "python", folder)
    generator = (python, "-m", "openapi_python_client", "generate", "--meta", "none")
    out = await run(*generator, "--path", OPENAPI, "--output-path", folder / "berth_gateway", folder=folder)
    assert "WARNING parsing" not in out
    assert "ERROR" not in out
    await run(python, "-m", "compileall", "-q", "berth_gateway", "train.py", folder=folder)
    async with a_gateway(tmp_path, own_server, cell) as gateway:
        await see_run(gateway, python, "train.py", folder=folder)


@pytest.mark.timeout(300)
async def test_the_gateway_answers_as_its_document_says(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    """Each operation with values at and beyond its bounds, beside the stream of events, which does not end."""
    async with a_gateway(tmp_path, own_server, cell) as gateway:
        await run(
            CACHE / "venv" / "bin" / "schemathesis",
            *(
                "--config-file",
                FOLDER / "schemathesis.toml",
                "run",
                OPENAPI,
                "--url",
                gateway.url,
                "--phases",
                "examples,coverage",
            ),
            *("--header", f"Authorization: Bearer {token_of(ADMIN)}", "--exclude-operation-id", STREAM),
            *("--exclude-checks", "positive_data_acceptance", "--seed", "1", "--max-examples", "50"),
            folder=tmp_path,
        )


async def test_the_asyncapi_document_is_one(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "asyncapi.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(CACHE / "node_modules")
    out = await run("node", "asyncapi.mjs", ROOT / "schemas" / "asyncapi.json", folder=tmp_path)
    assert re.search(r"^\d\d operations$", out, re.MULTILINE), out
