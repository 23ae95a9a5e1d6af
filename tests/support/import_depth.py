"""An import contract: import chains inside a package are short.

A reader who follows a call through a package opens its modules one after the other. The longest import chain bounds how
many. A sub-package is a package of its own: its modules do not count in the chains of the package above it.
"""

import graphlib
from collections.abc import Iterable, Mapping
from typing import ClassVar, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class ImportDepthContract(Contract):
    """Bounds the longest import chain inside each package.

    Options:

    - ``within``: Package whose sub-packages, direct and indirect, are checked.
    - ``modules_max``: Modules in the longest chain, first and last included.
    - ``reason``: Why the bound is what it is; printed when a chain is longer.

    Import cycles break the contract too.
    """

    type_name: ClassVar[str] = "import_depth"

    within = fields.StringField()
    modules_max = fields.IntegerField(minimum=1)
    reason = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002, FBT001  # as import-linter calls it
        """Find the longest chain of each package.

        Raises:
            ValueError: There is no package to check.
        """
        within = cast("str", self.within)
        packages = sorted(name for name in {within, *graph.find_descendants(within)} if graph.find_children(name))
        if not packages:
            raise ValueError(f"{self.name}: no package to check")
        chains = [longest_chain(_imports_inside(graph, package)) for package in packages]
        too_long = [chain for chain in chains if len(chain) > cast("int", self.modules_max) or chain[0] in chain[1:]]
        return ContractCheck(kept=not too_long, metadata={"chains": too_long})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print every chain that is too long."""
        for chain in check.metadata["chains"]:
            output.print_error(
                f"A chain of {len(chain)} modules, {self.modules_max} at most: {self.reason}", bold=False
            )
            output.print("  " + "\n  -> ".join(chain))
            output.new_line()


def longest_chain(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Longest chain of modules, each of which imports the next.

    Args:
        imports: What each module imports. Imports of modules that are no key are ignored.

    Returns:
        Names, the importing end first; of several longest chains the first by name. If modules import each other in a
        cycle, the cycle: its first name is also the last.
    """
    known = {module: sorted(set(imported) & imports.keys()) for module, imported in imports.items()}
    try:
        order = list(graphlib.TopologicalSorter(known).static_order())
    except graphlib.CycleError as error:
        return [*reversed(error.args[1])]
    below: dict[str, list[str]] = {}
    for module in order:
        below[module] = [module, *min((below[name] for name in known[module]), key=_long_first, default=[])]
    return min(below.values(), key=_long_first)


def _long_first(chain: list[str]) -> tuple[int, list[str]]:
    return -len(chain), chain


def _imports_inside(graph: ImportGraph, package: str) -> dict[str, set[str]]:
    """What each module of a package imports; modules of its sub-packages left out."""
    modules = [name for name in graph.find_children(package) if not graph.find_children(name)]
    return {name: graph.find_modules_directly_imported_by(name) for name in [package, *modules]}
