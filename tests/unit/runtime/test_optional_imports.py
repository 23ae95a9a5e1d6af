"""A process loads what it uses."""

import subprocess
import sys

import pytest

from berth.runtime.optional_imports import without
from tests.support.services import PACKAGES

UNUSED = {
    "binder": ["numpy", "rich", "yaml", "aiohttp.web"],
    "dispatcher": ["aiohttp", "rich", "yaml"],
    "health": ["numpy", "rich", "yaml", "aiohttp.web"],
    "inventory": ["rich", "aiohttp.web"],
    "nodesim": ["numpy", "rich", "aiohttp.web"],
    "scorer": ["aiohttp", "rich", "yaml"],
    "summary": ["rich", "aiohttp.web"],
}
"""Packages that cost megabytes and that a service does not need."""


@pytest.mark.parametrize("service", sorted(UNUSED))
def test_a_service_loads_no_library_that_it_does_not_use(service: str) -> None:
    code = f"import sys, berth.runtime.process, {PACKAGES[service]}.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()  # noqa: S603  # our own code
    assert f"{PACKAGES[service]}.app" in loaded
    assert [name for name in UNUSED[service] if name in loaded] == []


def test_a_package_is_hidden_in_the_block_alone_and_only_if_it_was_not_loaded() -> None:
    sys.modules.pop("this", None)
    with without("this", "json"):
        with pytest.raises(ModuleNotFoundError):
            __import__("this")
        assert __import__("json").dumps(1) == "1"
    assert "this" not in sys.modules
