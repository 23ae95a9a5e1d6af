"""What ``berth --help`` and ``berth jobs`` may import: a command is as slow as its imports.

``python -m bench commands`` measures the times.
"""

import asyncio
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.schemas.status import JobStatus

_ANY: Final = frozenset({"__main__", "_distutils_hack", "cython_runtime", "sitecustomize"})
"""The interpreter's, its environment's, and parts of compiled modules."""
_HELP: Final = frozenset({"attr", "attrs", "cyclopts", "docstring_parser", "rich"})
_HELP_OWN: Final = ("berth.cli.app", "berth.cli.commands", "berth.cli.output", "berth.cli.tables", "berth.formats.shown", "berth.formats.utf8",
                    "berth.runtime.release")  # fmt: skip
_JOBS: Final = frozenset({"msgspec", "nats", "structlog", "typing_extensions", "uvloop"})
_LOG_EXTRAS: Final = frozenset({"colorama", "greenlet"})
"""What structlog imports where it is there; packages for developers bring it."""
_JOBS_OWN: Final = (
    "berth.cli.addresses", "berth.cli.api", "berth.cli.cell", "berth.cli.jobs.filters", "berth.cli.jobs.finding", "berth.cli.jobs.job_table",
    "berth.cli.jobs.job_view", "berth.cli.jobs.listing", "berth.cli.jobs.queue_order", "berth.cli.jobs.rows", "berth.cli.jobs.starts", "berth.cli.link", "berth.cli.selection",
    "berth.core.errors",
    "berth.core.overview.short_reason", "berth.core.text", "berth.products.", "berth.core.overview.queue_order", "berth.formats.shortened", "berth.formats.shown", "berth.formats.whole_numbers",
    "berth.runtime.backoff", "berth.runtime.bus.",
    "berth.runtime.clock", "berth.runtime.config", "berth.runtime.errors", "berth.runtime.inboxes", "berth.runtime.logs",
    "berth.runtime.optional_imports", "berth.schemas.",
)  # fmt: skip
_SLOW_TO_HELP: Final = ("asyncio", "markdown_it", "msgspec", "rich.live", "rich.markdown", "ssl")
_SLOW_TO_LIST: Final = ("aiohttp", "berth.lab", "numpy", "rich.live", "rich.markdown", "yaml")
_CODE: Final = """
import sys
from berth.cli.app import call
code = call(sys.argv[1:])
print("modules:", *sys.modules, sep="\\n", file=sys.stderr)
sys.exit(code)
"""


async def imports(*words: str, code: int = 0) -> set[str]:
    """Modules after a command that ended with a code and printed something."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CODE, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == code, err.decode()
    assert out
    return set(err.decode().partition("modules:\n")[2].split())  # before them, that it waits for the server


def surplus(found: Collection[str], libraries: Collection[str], own: tuple[str, ...]) -> list[str]:
    """Libraries, and modules of Berth, that are imported without being allowed."""
    packages = {one.rpartition(".")[0] for one in own if not one.endswith(".")} | {one.rstrip(".") for one in own}
    parents = {".".join(one.split(".")[:size]) for one in packages for size in range(1, one.count(".") + 2)}
    ours = [name for name in found if name.startswith("berth.")]
    libraries_found = {name.partition(".")[0] for name in found if not name.startswith("_cython_")}
    others = libraries_found - sys.stdlib_module_names - {"berth", *_ANY}
    wild = tuple(one for one in own if one.endswith("."))
    return sorted(
        [name for name in ours if name not in own and name not in parents and not name.startswith(wild)]
        + [name for name in others if name not in libraries]
    )


async def test_the_list_of_commands_imports_little() -> None:
    found = await imports("--help")
    assert surplus(found, _HELP, (*_HELP_OWN, "berth.lab.commands.table")) == []
    assert [name for name in _SLOW_TO_HELP if name in found] == []


async def test_the_list_of_jobs_imports_little(real_bus: NatsBus, nats_server: str, cell: str) -> None:
    status = JobStatus("ml", "x", "uid-x", "waiting", 1, 1, sentence="no node has 8 free chips")
    await real_bus.publish(real_bus.subjects.status("ml", "x"), encode(status))
    found = await imports("jobs", "--url", nats_server, "--cell", cell)
    assert surplus(found, _HELP | _JOBS | _LOG_EXTRAS, _HELP_OWN + _JOBS_OWN) == []
    assert [name for name in _SLOW_TO_LIST if name in found] == []


@pytest.mark.parametrize("module", ["cluster.nodes", "cluster.node", "cluster.fault_groups", "jobs.submit"])
async def test_lists_of_the_service_and_requests_need_no_numpy(module: str) -> None:
    code = f"import sys, berth.cli.{module}; sys.exit('numpy' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0


async def test_a_job_is_submitted_and_refused_without_numpy(
    real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    del real_bus  # its streams are there
    file = tmp_path / "job.yaml"
    file.write_text("{apiVersion: berth/v1, kind: Job, metadata: {name: x}, spec: {product: module910bx8, chips: 9}}")
    found = await imports("submit", str(file), "--json", "--url", nats_server, "--cell", cell, code=1)
    assert "berth.core.requests.job_validation" in found
    assert "numpy" not in found


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (["berth", "berth.cli", "berth.cli.app", "json", "rich.console", "cyclopts"], []),
        (["berth.cli.app", "berth.cli.cell", "numpy.core"], ["berth.cli.cell", "numpy"]),
        (["berth.runtime", "berth.runtime.kube"], ["berth.runtime.kube"]),
    ],
)
def test_what_is_not_allowed_is_named(found: list[str], wrong: list[str]) -> None:
    assert surplus(found, _HELP, _HELP_OWN) == wrong
