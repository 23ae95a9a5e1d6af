"""Owners of chips, as the ledger alone says."""

import msgspec
import pytest

from berth.core.errors import InvariantError
from berth.core.pod_shares import PodShare
from berth.core.state.holdings.chip_owners import ChipOwners, Draft
from berth.schemas.placement import Share

QUARTER = Share(25, 1_000, "elastic")


def pod(*chips: int, node: str = "n") -> PodShare:
    return PodShare(node, sum(1 << chip for chip in chips), chips, 0, 0)


class Owners:
    """Owners, and one draft after another."""

    def __init__(self) -> None:
        self.owners = ChipOwners()

    def take(self, one: PodShare, share: Share | None = None) -> None:
        draft = self.owners.draft()
        draft.take([one], share)
        self.owners.install(draft)

    def give_back(self, one: PodShare, share: Share | None = None) -> None:
        draft = self.owners.draft()
        draft.give_back([one], share)
        self.owners.install(draft)


def test_a_chip_has_one_owner_until_it_is_given_back() -> None:
    found = Owners()
    found.take(pod(0, 1))
    found.take(pod(0, 1, node="m"))
    with pytest.raises(InvariantError, match="node n: a chip would have two owners"):
        found.take(pod(1, 2))
    found.give_back(pod(0, 1))
    found.take(pod(1, 2))
    assert found.owners.masks == {"n": 0b110, "m": 0b11}
    found.give_back(pod(1, 2))
    assert found.owners.masks == {"m": 0b11}


def test_shares_of_a_chip_add_up_to_all_of_it_at_most() -> None:
    found = Owners()
    for _ in range(4):
        found.take(pod(3), QUARTER)
    with pytest.raises(InvariantError, match="chip 3: more than 100 percent of a chip would be given"):
        found.take(pod(3), QUARTER)
    found.give_back(pod(3), QUARTER)
    found.take(pod(3), QUARTER)
    for _ in range(4):
        found.give_back(pod(3), QUARTER)
    assert found.owners.shared == {}


def test_a_chip_is_shared_by_one_policy() -> None:
    found = Owners()
    found.take(pod(3), QUARTER)
    other = msgspec.structs.replace(QUARTER, policy="best-effort")
    with pytest.raises(InvariantError, match="chip 3: a chip would be shared by two policies"):
        found.take(pod(3), other)
    found.give_back(pod(3), QUARTER)
    found.take(pod(3), other)


def test_a_chip_is_owned_or_shared() -> None:
    found = Owners()
    found.take(pod(3), QUARTER)
    with pytest.raises(InvariantError, match="node n: a chip would have two owners"):
        found.take(pod(2, 3))
    found.take(pod(2))
    with pytest.raises(InvariantError, match="node n chip 2: a chip would have two owners"):
        found.take(pod(2), QUARTER)


def test_a_draft_changes_nothing_until_it_is_installed() -> None:
    found = Owners()
    found.take(pod(0))
    found.take(pod(3), QUARTER)
    before = (dict(found.owners.masks), {node: dict(chips) for node, chips in found.owners.shared.items()})
    draft: Draft = found.owners.draft()
    draft.give_back([pod(0)], None)
    draft.take([pod(0, 1)], None)
    draft.take([pod(3)], QUARTER)
    assert (found.owners.masks, found.owners.shared) == before
    found.owners.install(draft)
    assert found.owners.masks == {"n": 0b11}
    assert found.owners.shared["n"][3].pods == 2


def test_pods_without_chips_own_none() -> None:
    found = Owners()
    found.take(pod())
    found.take(pod(), QUARTER)
    found.give_back(pod(), QUARTER)
    assert (found.owners.masks, found.owners.shared) == ({}, {})
