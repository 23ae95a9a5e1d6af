"""Annotations that topologies write to the pods of a placed gang.

They are apart from the registry, because who binds pods needs them and plans none: planners are large.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from berth.core.topologies.blocks.annotations import block_annotations
from berth.core.topologies.switches.annotations import leaf_annotations
from berth.schemas.placement import Placement

Writer = Callable[[Placement], Sequence[Mapping[str, str]]]
"""Annotations of each rank of a placement. Raises ValueError if the placement does not have one entry per rank."""

_WRITERS: Final[dict[str, Writer]] = {
    "switches": leaf_annotations,
    "superpods": block_annotations,
    "racks": block_annotations,
    "levels": block_annotations,
}


def register_writer(topology: str, writer: Writer) -> None:
    """Add what writes the annotations of a topology.

    Raises:
        ValueError: The topology has one.
    """
    if topology in _WRITERS:
        raise ValueError(f"annotations of topology {topology} are registered twice")
    _WRITERS[topology] = writer


def annotations_of(placement: Placement) -> list[dict[str, str]]:
    """Annotations of each rank, of all topologies of the gang; none for pods without chips.

    Raises:
        ValueError: The placement is damaged.
    """
    found: list[dict[str, str]] = [{} for _ in range(placement.pods())]
    chips = [run.chips for run in placement.runs for _ in range(run.pods)]
    for groups in placement.groups:
        if groups.topology in _WRITERS:
            for own, more, picked in zip(found, _WRITERS[groups.topology](placement), chips, strict=True):
                own.update(more if picked else {})
    return found
