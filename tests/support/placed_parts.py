"""Parts of placements that a test knows to be there."""

from berth.core.topologies.blocks.placed import BlockPlacement, block_of
from berth.core.topologies.switches.placed import SwitchPlacement, switch_of
from berth.schemas.placement import Groups, Placement


def the_switch(placement: Placement | None) -> SwitchPlacement:
    """Leaf switches of a placement."""
    assert placement is not None
    part = switch_of(placement)
    assert part is not None
    return part


def the_block(placement: Placement | None) -> BlockPlacement:
    """Blocks of a placement."""
    assert placement is not None
    part = block_of(placement)
    assert part is not None
    return part


def groups_of(*parts: SwitchPlacement | BlockPlacement | None) -> list[Groups]:
    """Parts as a placement has them; None is no part."""
    return [part.groups for part in parts if part is not None]
