"""Which functions of the product a run enters."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from types import CodeType, FrameType

import berth.formats
import berth.schemas


def public_functions() -> dict[str, CodeType]:
    """Public functions of formats and schemas: their code by their name."""
    found: dict[str, CodeType] = {}
    for package in (berth.formats, berth.schemas):
        for module_info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(module_info.name)
            for name, member in vars(module).items():
                function = inspect.unwrap(member) if callable(member) else member
                if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == module.__name__:
                    found[f"{module.__name__.removeprefix('berth.')}.{name}"] = function.__code__
    return found


def entered(run: Callable[[], object]) -> set[CodeType]:
    """Code of all Python functions that are called while ``run`` runs."""
    found: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found
