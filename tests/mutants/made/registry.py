"""Mutants that are made by hand, by name, and what the simulation has to say of each."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.mutants.outcomes import Mutant
from tests.mutants.patterns import Change, Product

Maker = Callable[[Product], Change | list[Change] | Mutant]
"""Finds the place of a mutant, and says what becomes of it; its docstring says what the change does."""


class Made(NamedTuple):
    """A mutant that is made by hand.

    Attributes:
        name: Name of its function, with hyphens.
        says: What the change does.
        make: The function.
        is_simulated: Whether the simulation is asked about it.
        verbs: Events of the seeds that are likely to notice it.
        unseen: Why no seed of the simulation can; empty if one must.
    """

    name: str
    says: str
    make: Maker
    is_simulated: bool = False
    verbs: tuple[str, ...] = ()
    unseen: str = ""

    def mutant(self, product: Product) -> Mutant:
        """The mutant in a product.

        Raises:
            TreeError: There is not exactly one place for it.
        """
        found = self.make(product)
        if isinstance(found, Mutant):
            return found._replace(name=self.name)
        return product.mutant(self.name, *([found] if isinstance(found, Change) else found))


MADE: Final[dict[str, Made]] = {}


def by_tests(make: Maker) -> Maker:
    """A mutant that only tests are asked about."""
    return _noted(make)


def by_seed(*verbs: str) -> Callable[[Maker], Maker]:
    """A mutant that a seed of the simulation must notice; those in which most happens of some events come first."""
    return lambda make: _noted(make, is_simulated=True, verbs=verbs)


def unseen(why: str) -> Callable[[Maker], Maker]:
    """A mutant that no seed of the simulation can notice, and why; tests must."""
    return lambda make: _noted(make, is_simulated=True, why=why)


def _noted(make: Maker, *, is_simulated: bool = False, verbs: tuple[str, ...] = (), why: str = "") -> Maker:
    name = make.__name__.replace("_", "-")
    MADE[name] = Made(name, (make.__doc__ or "").strip(), make, is_simulated, verbs, why)
    return make
