"""Parts of placements that a test knows to be there."""

from berth.core.topologies.blocks.placed import BlockPart, block_of
from berth.core.topologies.switches.placed import SwitchPart, switch_of
from berth.schemas.placement import Groups, Placement


def the_switch(placement: Placement | None) -> SwitchPart:
    """Leaf switches of a placement."""
    assert placement is not None
    part = switch_of(placement)
    assert part is not None
    return part


def the_block(placement: Placement | None) -> BlockPart:
    """Blocks of a placement."""
    assert placement is not None
    part = block_of(placement)
    assert part is not None
    return part


def groups_of(*parts: SwitchPart | BlockPart | None) -> list[Groups]:
    """Parts as a placement has them; None is no part."""
    return [part.groups for part in parts if part is not None]
