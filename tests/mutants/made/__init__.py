"""Mutants that are made by hand, since no generator makes them, or since the simulation is asked about them."""

from pathlib import Path

from tests.mutants.made import core, runtime, services
from tests.mutants.made.registry import MADE, Made
from tests.mutants.outcomes import Mutant
from tests.mutants.patterns import Product

__all__ = ["MADE", "Made", "core", "mutant_named", "runtime", "services"]


def mutant_named(name: str, root: Path) -> Mutant:
    """A mutant that is made by hand, in a tree.

    Raises:
        TreeError: The tree does not have exactly one place for it.
    """
    return MADE[name].mutant(Product(root))
