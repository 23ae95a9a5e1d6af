"""Check of a round before anything of it is folded.

Its steps are taken on copies of what they touch, and chips get owners in a draft, in the order of
:meth:`berth.core.state.occupancy.Occupancy.follow`. So what passes can be folded whole by every reader, with columns or
without.
"""

from copy import copy

from berth.core.errors import InvariantError
from berth.core.pod_shares import pods_at
from berth.core.state.holdings.chip_owners import ChipOwners, Draft
from berth.core.state.holdings.holding import Holding
from berth.core.state.records.entries import Entries, Folded
from berth.core.state.records.round_steps import fold_round
from berth.schemas.ledger import Round


def check_round(entries: Entries, owners: ChipOwners, sequence: int, record: Round) -> Draft:
    """Check a round against the folded ledger; neither is changed.

    Args:
        entries: Tables before it.
        owners: Owners of chips before it.
        sequence: Its sequence.
        record: The round.

    Returns:
        Owners of chips after it.

    Raises:
        InvariantError: It does not follow from what is held.
    """
    try:
        folded = fold_round(_touched(entries, record), sequence, record)
    except (ValueError, LookupError) as error:
        raise InvariantError(f"does not agree with what is held: {error}", subject="a placement") from error
    _check_apart(entries, folded)
    return _owners_after(entries, owners, folded)


def draft_of(entries: Entries) -> Draft:
    """Owners of chips of whole tables.

    Raises:
        InvariantError: A chip has two.
    """
    draft = ChipOwners().draft()
    for holding in entries.holdings.values():
        draft.place(holding)
    for held in entries.held.values():
        draft.take(held.places().values(), held.placement.share)
    return draft


def _touched(entries: Entries, record: Round) -> Entries:
    """Copies of what a round may change; values inside them are replaced, never changed."""
    found = Entries()
    keys = {(one.uid, one.attempt) for one in record.recoveries}
    keys.update((one.uid, one.attempt) for one in record.corrections)
    keys.update((one.uid, one.attempt) for one in record.evictions)
    keys.update((one.uid, one.attempt) for one in record.held)
    keys.update((one.uid, one.attempt) for one in record.releases)
    keys.update((one.uid, one.attempt) for entry in record.reserved for one in entry.awaits)
    awaiting = [held for held in entries.held.values() if not keys.isdisjoint(held.awaited)]
    keys.update(key for held in awaiting for key in held.awaited)
    uids = {uid for uid, _ in keys}
    uids.update(one.uid for one in record.verdicts)
    uids.update(one.uid for one in record.reserved)
    uids.update(held.uid for held in awaiting)
    keys.update((one.uid, one.attempt) for one in record.verdicts if one.placement is not None)
    keys.update((one.uid, 0) for one in record.adoptions)
    for key in keys:
        holding = entries.holdings.get(key)
        if holding is not None:
            found.holdings[key] = copy(holding)
    for uid in uids:
        gang = entries.gangs.get(uid)
        if gang is not None:
            found.gangs[uid] = copy(gang)
        held = entries.held.get(uid)
        if held is not None:
            found.held[uid] = held
    return found


def _check_apart(entries: Entries, folded: Folded) -> None:
    """Check that what a round gives is not taken back by the same round: each entry is about what was before.

    Raises:
        InvariantError: The round takes back something that it gives.
    """
    given_back = {holding.key for holding in folded.given_back}
    freed = {holding.key for holding, _ in folded.freed}
    changed = [*folded.given_back, *folded.ending, *folded.moved, *(holding for holding, _ in folded.freed)]
    for holding in changed:
        if holding.key not in entries.holdings:
            raise InvariantError("changes in the round that places it", subject=_name(holding))
    for key in given_back & freed:
        raise InvariantError("is released in part and whole at once", subject=f"gang {key[0]} attempt {key[1]}")
    for held in folded.unheld:
        if entries.held.get(held.uid) is not held:
            raise InvariantError("holds places and frees them at once", subject=f"gang {held.uid}")
    for held in folded.held:
        if not held.is_reserved and held.key not in given_back:
            raise InvariantError("holds places of an attempt that goes on", subject=f"gang {held.uid}")


def _owners_after(entries: Entries, owners: ChipOwners, folded: Folded) -> Draft:
    """Owners after a round.

    Raises:
        InvariantError: It gives a chip that has an owner.
    """
    draft = owners.draft()
    before = entries.holdings
    gone = set()
    for holding in folded.given_back:
        gone.add(holding.key)
        draft.remove(before[holding.key])
    for held in folded.unheld:
        draft.give_back(held.places().values(), held.placement.share)
    moved = {holding.key: holding for holding in folded.moved if holding.key not in gone}
    for holding, ranks in folded.freed:
        if holding.key not in moved:
            draft.give_back(pods_at(before[holding.key].placement, ranks).values(), holding.placement.share)
            draft.pods[holding.key] = None
    for key in moved:  # ranks may change places with one another
        draft.remove(before[key])
    for held in folded.held:  # of a gang that ends, what was reserved for its ranks may be among it
        draft.take(held.places().values(), held.placement.share)
    for key, holding in moved.items():
        draft.place(holding)
        draft.pods[key] = None
    for holding in folded.taken:
        draft.place(holding)
    return draft


def _name(holding: Holding) -> str:
    return f"gang {holding.uid} attempt {holding.attempt}"
