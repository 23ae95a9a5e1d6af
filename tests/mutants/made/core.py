"""Mutants of the core and of the messages."""

from tests.mutants.made.registry import by_seed, by_tests, unseen
from tests.mutants.outcomes import Mutant
from tests.mutants.patterns import Change, Product

_CHAIN = "schemas/chain"
_STATE = "berth/core/state/"


@unseen("users of the simulation cancel by name alone")
def admission_cancel_of_any_uid(product: Product) -> Change:
    """A cancel for another uid counts."""
    return product.one(_STATE, 'any_wish.uid not in {"", any_known.uid}').to("not {wish}.uid and not {known}.uid")


@unseen("no user of the simulation chooses the uid of another job")
def admission_uid_taken_twice(product: Product) -> Change:
    """Two jobs have one uid."""
    found = product.one(_STATE, "if any_holder.namesake is not None:\n    any_then\nelse:\n    any_else\n")
    return found.one("any_holder.namesake is not None").to("False")


@by_seed("kill")
def chain_not_in_snapshots(product: Product) -> Change:
    """Snapshots do not contain the chain value."""
    return product.one(_STATE, "self.chain").to("FIRST")


@by_seed("stray")
def chain_unchecked(product: Product) -> Change:
    """A record counts with any chain value."""
    return product.one(_CHAIN, "not any_check(any_digest, any_sequence, any_envelope)").to("not {envelope}.chain")


@by_seed()
def chain_without_past(product: Product) -> Change:
    """The chain value says nothing of the records before."""
    digest = "any_hashed = hashlib.blake2b(any_digest, digest_size=any_size)\n"
    found = product.one(
        _CHAIN, f"{digest}any_hashed.update(struct.pack(any_form, any_seq, any_version, any_length) + any_kind)\n"
    )
    return found.one(digest).to("{hashed} = hashlib.blake2b(digest_size={size})")


@by_seed()
def chain_without_sequence(product: Product) -> Change:
    """The chain value says nothing of the sequence."""
    return product.one(_CHAIN, "struct.pack(any_form, any_sequence, any_version, any_length)").to(
        "struct.pack({form}, 0, {version}, {length})"
    )


@by_seed()
def check_chips_unseen(product: Product) -> Mutant:
    """Owners of chips are not kept, so a chip may be given again."""
    return product.one(_STATE, "self._owners.any_install(any_owners)\n").generated("call")


@by_seed()
def check_holdings_not_copied(product: Product) -> Change:
    """The check of a round changes holdings: half of a broken one is applied."""
    found = product.one(_STATE, "any_found.holdings[any_key] = copy(any_holding)\n")
    return found.to("{found}.holdings[{key}] = {holding}")


@unseen("no leader decides such a record")
def check_same_round_unseen(product: Product) -> Mutant:
    """A round may take back what it gives."""
    found = product.one(
        _STATE, "any_check(any_entries, any_folded)\nreturn any_after(any_entries, any_owners, any_folded)\n"
    )
    return found.generated("call")


@unseen("no simulated cell has 20,000 ends of attempts for one record")
def decider_adopts_later(product: Product) -> Change:
    """A record gives chips away whose pods only the next one has room to adopt."""
    return product.one("berth/core/scheduling/", "any_must.takes_places or any_is_cut").to("{must}.takes_places")


@by_seed("stray")
def ledger_base_unchecked(product: Product) -> Change:
    """A round that was decided on an older ledger counts."""
    return product.one(_CHAIN, "any_head.base_seq != any_position.base_seq").to("False")


@by_seed("stray")
def ledger_epoch_base_unchecked(product: Product) -> list[Change]:
    """An epoch that does not follow on the last record begins."""
    base = product.one(_CHAIN, "any_head.base_seq != any_position.base_seq")
    epoch = product.one(_CHAIN, "any_one if any_epoch is not None else any_head.epoch != any_position.epoch")
    return [base.to(f"{epoch.parts['epoch']} is None and {{head}}.base_seq != {{position}}.base_seq")]


@by_seed("stray")
def ledger_epoch_begins_twice(product: Product) -> Mutant:
    """An epoch can begin twice."""
    return product.one(_CHAIN, "any_head.epoch <= any_position.epoch").generated("boundary")


@by_seed("stray")
def ledger_epoch_unchecked(product: Product) -> Change:
    """Rounds of any epoch count."""
    found = product.one(_CHAIN, "any_one if any_epoch is not None else any_head.epoch != any_position.epoch")
    return found.to("{epoch} is not None and {one}")


@unseen("followers of the bus see holes before the fold does")
def ledger_gap_unnoticed(product: Product) -> Change:
    """Records that are missing are not noticed."""
    found = product.one(
        _STATE, "if any_sequence != self.head + 1:\n    raise HistoryError(wanted=any_wanted, got=any_sequence)\n"
    )
    return found.one("any_sequence != self.head + 1").to("{sequence} <= self.head")


@by_seed("stray")
def ledger_void_keeps_head(product: Product) -> Change:
    """A void record does not move the head."""
    return product.one(_STATE, "self.head = any_link.sequence\n").to(
        "self.head = self.head if {link}.void else {link}.sequence"
    )


@by_seed("stray")
def ledger_void_record_is_base(product: Product) -> Change:
    """A void message is not the one that the next record names."""
    return product.one(_CHAIN, "self._replace(base_seq=any_link.sequence)").to("self")


@by_seed()
def lifecycle_released_while_terminating(product: Product) -> Change:
    """Chips are given back when pods are deleted, not when they are gone."""
    found = product.one(_STATE, "frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})")
    return found.to("frozenset({{PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE, PodPhase.TERMINATING}})")


@unseen("none of 90 seeds that were tried failed")
def state_lost_release_not_seen(product: Product) -> Change:
    """A job whose name is free is forgotten although the record of its release is lost."""
    return product.one(
        _STATE, "{} if any_seen is not None and any_key in any_fold.holdings else self.forget(any_name)"
    ).to("self.forget({name})")


@by_tests
def state_gives_back_after_taking(product: Product) -> list[Change]:
    """What a record takes is taken before what it gives back is free."""
    taken = product.one(_STATE, "for any_one in any_folded.taken:\n    any_found.add(self.any_take(any_one))\n")
    given = product.one(_STATE, "for any_one in any_folded.given_back:\n    any_found.add(self.any_give(any_one))\n")
    return [taken.to("pass"), given.behind("for {one} in {folded}.taken: {found}.add(self.take({one}))")]


@by_tests
def recovery_reserved_place_not_owned(product: Product) -> list[Change]:
    """The new place of a rank that leaves is not reserved."""
    noted = product.one(_STATE, "self.any_note(any_holding, any_owned, any_holding.any_places())")
    moved = product.one(_STATE, "any_now, any_reserved = any_get(any_holding), any_holding.any_places()\n")
    return [
        noted.to("self.{note}({holding}, {owned}, {{}})"),
        moved.to("{now}, {reserved} = {get}({holding}), dict[int, PodShare]()"),
    ]
