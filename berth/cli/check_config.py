"""``berth check-config``: effective settings of a service."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from berth import services
from berth.cli.cell import run
from berth.cli.output import WRONG_USE, CommandError, emit, print_result
from berth.formats.yaml_tree import nearest
from berth.runtime.config import ServiceConfig, load

_SECRET: Final = re.compile(r"(secret|password|token|credential|private_key)", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"//[^@/\s]*@")
_STARS: Final = "***"


def settings_of(service: str) -> type[ServiceConfig]:
    """Struct of a service's settings.

    Raises:
        CommandError: There is no such service.
    """
    known = sorted(module.name for module in pkgutil.iter_modules(services.__path__) if module.ispkg)
    if service not in known:
        raise CommandError(f"service is {service!r}, expected {nearest(service, known)}", code=WRONG_USE)
    module = importlib.import_module(f"berth.services.{service}.config")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceConfig) and value is not ServiceConfig
    ]
    return found[0]


def check_config(service: str, file: Path, *, json: bool = False) -> int:
    """Print the effective settings of a service from a file, the environment and the defaults.

    Args:
        service: Name of the service, such as dispatcher.
        file: Settings in TOML.
        json: Print JSON instead of text.
    """

    async def work() -> None:
        tree = starred(msgspec.to_builtins(load(settings_of(service), file), enc_hook=str))
        if json:
            emit(tree)
            return
        for path, value in sorted(_flat(tree).items()):
            print_result(f"{path} = {msgspec.json.encode(value).decode()}")

    return run(work)


def starred(tree: Any, name: str = "") -> Any:  # noqa: ANN401  # a tree of settings of any form
    """The tree with secrets replaced by stars; the names of fields identify secrets."""
    if isinstance(tree, dict):
        return {key: starred(value, key) for key, value in tree.items()}
    if tree is not None and _SECRET.search(name):
        return _STARS
    return _PASSWORD.sub(f"//{_STARS}@", tree) if isinstance(tree, str) else tree


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
