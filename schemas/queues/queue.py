"""A queue as it is declared, whatever it is read from."""

from typing import Final

from berth.schemas.message import Part

ROOT: Final = "root"
"""The queue above all others."""
DEFAULT: Final = "default"
"""The queue of jobs that name none."""
CPU: Final = "cpu"
MEMORY: Final = "memory"
CHIP: Final = 100
"""Amount of one chip: hundredths, for shared ones."""
AMOUNT_MAX: Final = (1 << 53) - 1
"""Largest amount; sums stop there."""
WEIGHT_MAX: Final = 65_535
PRIORITY_MAX: Final = (1 << 31) - 1
STATES: Final = ("Open", "Closing", "Closed", "Unknown")
"""States that a queue may declare."""
KEY_SIGN: Final = "/queue/"
"""Begin of the keys under which gangs sleep that a queue refused, before its name; no namespace has it."""

Amounts = dict[str, int]
"""Amount of each dimension: ``cpu`` in thousandths, ``memory`` in MiB, chips by the name of their resource in
hundredths of a chip."""


class Queue(Part, frozen=True):
    """A queue as it is declared. Nothing of it is checked but the types: a wrong field is one of a queue in a tree."""

    name: str
    parent: str = ""
    """Name of the queue above; empty: ``root``."""
    capability: Amounts = {}
    """Upper limits. A dimension that is missing has the limit of the parent."""
    guarantee: Amounts = {}
    """Amounts that are kept free for the queue."""
    deserved: Amounts = {}
    """Amounts that the queue may get back from others."""
    weight: int = 1
    """Part of what the parent may get back, among siblings that declare no ``deserved``."""
    priority: int = 0
    reclaimable: bool = True
    """False: other queues get nothing back from this one, nor from those below it."""
    is_fifo: bool = False
    """No gang of the queue is tried behind one that is refused."""
    state: str = ""
    """One of :data:`STATES`; empty: ``Open``."""
    created: int = 0
    """Time or number by which older queues come first."""
    namespaces: list[str] | None = None
    """Namespaces whose jobs may use the queue; None: all that may use its parent."""
    per_namespace: Amounts = {}
    """Upper limits of the jobs of one namespace in the queue."""
    wrong: list[str] = []
    """What could not be read, each ``field: is VALUE, expected RIGHT``; such a queue is not valid."""
    notes: list[str] = []
    """What was read and has no effect, a sentence each."""
