"""What is due for gangs that were decided before: entries for the next record."""

import msgspec

from berth.core.state.found_pods import placement_at
from berth.core.state.holdings.mounted_chips import Settled
from berth.schemas.ledger import Adoption, Correction, Eviction, HeldPlaces, Release, Reservation, Verdict
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery


class Due(msgspec.Struct):
    """Entries for the next record about gangs that were decided before."""

    evictions: list[Eviction] = []
    releases: list[Release] = []
    adoptions: list[Adoption] = []
    held: list[HeldPlaces] = []
    regained: list[Verdict] = []
    """Attempts whose pods run although the ledger does not know them, with the places of their pods."""
    reserved: list[Reservation] = []
    """Places that stay reserved for longer, those of ``held`` that end with it."""
    refused: list[Verdict] = []
    """Gangs that lose the place that was reserved for them."""
    corrections: list[Correction] = []
    """Ranks whose pods have other chips than the ledger says."""
    settled: Settled = Settled({}, [])
    """Why ``corrections`` are due, and for which ranks none can be made."""
    recoveries: list[Recovery] = []
    """Steps for which pods run although the ledger does not know them, with the places of their pods."""
    outlived: list[str] = []
    """Gangs (uid) whose later attempt runs: the one that the ledger knows is released, the next record regains that."""
    short: list[str] = []
    """Gangs (uid) of which an attempt runs that the ledger does not know, and some of its chips have another owner."""

    def __bool__(self) -> bool:
        found = (self.evictions, self.releases, self.adoptions, self.held, self.regained, self.recoveries, self.refused)
        return any(found) or bool(self.corrections)

    @property
    def given(self) -> list[Placement]:
        """Places that pods which run get as their own."""
        found = [*(one.placement for one in self.regained), *(one.placement for one in self.recoveries)]
        found += [placement_at(claim.node, mask) for claim, mask in self.settled.chips.items()]
        return [*(one.placement for one in self.adoptions), *(one for one in found if one is not None)]

    @property
    def takes_places(self) -> bool:
        """Whether pods that run get an owner, now or next: what they have must not be given away by this record."""
        found = (self.corrections, self.adoptions, self.regained, self.recoveries, self.outlived)
        return any(found) or bool(self.short and self.releases)
