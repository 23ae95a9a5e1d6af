"""Mutants of the services."""

from tests.mutants.generator import Edit
from tests.mutants.made.registry import by_seed, by_tests, unseen
from tests.mutants.outcomes import Mutant
from tests.mutants.patterns import Change, Product

_BINDER = "services/binder/"
_DISPATCHER = "services/dispatcher/"
_SCORER = "services/scorer/"
_PACE = "pauses between tries are not compared"
_REFUSED = "the lease is for liveness: the bus refuses the record of a second leader"
_FENCED = "a leader that was overtaken without need is fenced like any other"
_SECOND_LOOK = (
    "a shard offers nothing at other sequences than it was asked for, so this second look finds nothing in a whole cell"
)
_COMPARED = "the dispatcher compares the sequences of the offer itself"
_OFFERED = (
    "(any_offer.shard, any_offer.round, any_offer.facts_seq, any_offer.ledger_seq) =="
    " (any_shard, any_request.round, any_request.facts_seq, any_request.ledger_seq)"
)


@unseen("a longer pause is no wrong result")
def binder_backoff_unbounded(product: Product) -> Change:
    """The pause between tries has no bound."""
    found = product.one(_BINDER, "Backoff(max_s=any_config.retry_wait_max_s)")
    return found.to('Backoff(max_s=float("inf"))')


@unseen(_PACE)
def binder_no_backoff(product: Product) -> Change:
    """A failed try is made again at the same pace forever."""
    return product.one(_BINDER, "max(self._backoff.pause_s(any_tries), any_least)").to(
        "max(self._backoff.pause_s(1), {least})"
    )


@unseen(_PACE)
def binder_tries_kept(product: Product) -> Mutant:
    """Tries of a step that was done count for the next one."""
    found = product.one(_BINDER, "await self.any_perform(any_step)\nself._tries.pop(any_key, None)\n")
    return found.generated("call")


@by_seed()
def dispatcher_counts_before_store(product: Product) -> Change:
    """A record whose answer is in doubt counts as stored: it is acknowledged before it is in the ledger."""
    found = product.one(
        _DISPATCHER,
        "await self.any_read_back()\nif self.state.fold.head > any_sent.expected_seq:\n    return\ncontinue\n",
    )
    return found.to("sequence = {sent}.expected_seq + 1")


@unseen("requests of a simulated cell are not old enough to go by age")
def dispatcher_intake_pruned(product: Product) -> Change:
    """An intake whose oldest requests went by age cannot start."""
    return product.one(_DISPATCHER, "max(any_start, any_stored.first_seq)").to("{start}")


@unseen(_REFUSED)
def dispatcher_lease_conflict(product: Product) -> Change:
    """A lease that another has taken over still counts as held."""
    return product.one(_DISPATCHER, "self._until_s = 0.0\nreturn False\n").to("return False")


@unseen("the lease is for liveness: another leads a little later")
def dispatcher_lease_own(product: Product) -> Change:
    """A candidate does not take up a lease that it has itself."""
    return product.one(_DISPATCHER, 'any_held.holder in {"", self._holder}').to('{held}.holder == ""')


@unseen(_REFUSED)
def dispatcher_lease_started(product: Product) -> Change:
    """The lease is counted from when the server answered instead of from when it was asked."""
    return product.one(_DISPATCHER, "self._until_s = any_started + self._lease_s\n").to(
        "self._until_s = self._clock.monotonic_s() + self._lease_s"
    )


@unseen(_REFUSED)
def dispatcher_lease_transient(product: Product) -> Change:
    """A lease that could not be asked for counts as held."""
    return product.one(_DISPATCHER, "return self.is_held\n").to("return True")


@by_seed("backup", "delete-stream")
def dispatcher_ledger_guard_stream(product: Product) -> Change:
    """A ledger in a new stream is decided on before the pods of the cluster are known."""
    return product.one(_DISPATCHER, "any_seen.stream != any_found.created").to("not {found}.created")


@unseen("a shard that is not ready offers no shapes, and the number of shapes is compared, too")
def dispatcher_offer_not_ready(product: Product) -> Change:
    """An offer counts though its shard says that it is not ready."""
    return product.one(_DISPATCHER, "not any_offer.ready or not any_fits or any_count").to("not {fits} or {count}")


@unseen(_SECOND_LOOK)
def dispatcher_offer_of_another_ledger(product: Product) -> Change:
    """An offer counts whatever ledger it was made at."""
    return product.one(_DISPATCHER, _OFFERED).to(_offered("ledger_seq"))


@unseen("an answer that comes late has no taker any more")
def dispatcher_offer_of_another_round(product: Product) -> Change:
    """An offer of another round counts."""
    return product.one(_DISPATCHER, _OFFERED).to(_offered("round"))


@unseen("each answer comes on the subject of its request")
def dispatcher_offer_of_another_shard(product: Product) -> Change:
    """An offer of another shard counts as that of the shard that was asked."""
    return product.one(_DISPATCHER, _OFFERED).to(_offered("shard"))


@unseen(_SECOND_LOOK)
def dispatcher_offer_of_other_facts(product: Product) -> Change:
    """An offer counts whatever facts it was made from."""
    return product.one(_DISPATCHER, _OFFERED).to(_offered("facts_seq"))


@by_seed()
def inventory_latecomer_not_counted(product: Product) -> Mutant:
    """A pod that was bound before it named its PodGroup does not count for it."""
    found = product.one(
        "services/inventory/",
        "self._gang_of[any_member.uid] = any_key\nself.any_touch(any_key)\nself.any_note(any_member, any_key)\n",
    )
    return found.one("self.any_note(any_member, any_key)\n").generated("call")


@unseen("a dispatcher that leads reads all that is stored before its first record")
def leadership_cold(product: Product) -> Change:
    """A dispatcher that has not read the history takes the lease."""
    return product.one(_DISPATCHER, "await self.any_try() if self._standing.is_candidate else any_wait").to(
        "await self.{try}()"
    )


@unseen(_FENCED)
def leadership_reconnect(product: Product) -> Change:
    """Silence while the standby was not connected counts."""
    return product.one(_DISPATCHER, "self.bus.link_changes != self._links").to("False")


@unseen(_FENCED)
def leadership_unasked(product: Product) -> Change:
    """A silent leader is not asked before its lease is taken."""
    found = product.one(
        _DISPATCHER, 'if await self.any_asked():\n    self.any_note("")\n    self.any_restart()\n    return any_wait\n'
    )
    return found.one("await self.any_asked()").to("False")


@unseen("in no seed that was tried does a shard offer what is taken")
def offer_stale_accepted(product: Product) -> list[Change]:
    """A shard that is behind offers what it has, and the offer counts."""
    fits = product.one(_DISPATCHER, _OFFERED)
    ready = product.one(_DISPATCHER, "not any_offer.ready or not any_fits or any_count")
    shapes = product.one(_SCORER, "any_request.asks if any_ready else ()")
    return [
        fits.to("({offer}.shard, {offer}.round) == ({shard}, {request}.round)"),
        ready.to("not {fits} or {count}"),
        shapes.to("{request}.asks"),
    ]


@unseen(_COMPARED)
def scorer_beyond(product: Product) -> Change:
    """A shard whose state is beyond the sequences says that it is ready."""
    found = product.one(_SCORER, "(self.state.nodes_seq, self.state.fold.head) == (any_facts, any_ledger)")
    return found.to("True")


@unseen(_COMPARED)
def scorer_ledger_late(product: Product) -> Change:
    """A shard does not wait for the ledger."""
    found = product.one(_SCORER, "self.state.nodes_seq >= any_facts and self.state.fold.head >= any_ledger")
    return found.to("self.state.nodes_seq >= {facts}")


@unseen("the dispatcher that gives up is started again, and leads then")
def standby_conflict_fences(product: Product) -> Change:
    """A late record of the former leader fences the next one."""
    found = product.one(
        _DISPATCHER, "if any_fold.epoch > any_before:\n    raise FencedError(any_reason) from any_error\n"
    )
    return found.one("any_fold.epoch > any_before").to("True")


@unseen("the streams of a simulated cell keep their whole history")
def standby_from_latest_resumes(product: Product) -> Change:
    """A dispatcher that did not read the whole history resumes."""
    return product.one(_DISPATCHER, "any_waiting is not None and not any_feeds.is_from_latest").to(
        "{waiting} is not None"
    )


@by_tests
def standby_facts_early(product: Product) -> Change:
    """A standby applies facts that the next record may not know."""
    return product.one(_DISPATCHER, "any_leader.ledger_seq == any_fold.head").to("True")


@by_tests
def dispatcher_snapshot_end_before_chunks(product: Product) -> list[Change]:
    """The end of a snapshot is written before what it ends."""
    end = product.one(_DISPATCHER, "await self._bus.publish(any_subjects.snapshot_end(any_seq), encode(any_end))\n")
    chunk = "await self._bus.publish(any_subjects.snapshot_chunk(any_seq, any_number), encode(any_chunk))"
    chunks = product.one(_DISPATCHER, f"for any_number, any_piece in enumerate(any_pieces):\n    {chunk}\n")
    loop = chunks.source[chunks.start : chunks.end].decode()
    return [chunks.to("pass"), Change(end.path, Edit(end.end, end.end, f"\n{' ' * end.column}{loop}"))]


def _offered(left_out: str) -> str:
    """The comparison of an offer with its request, without one field."""
    fields = [one for one in ("round", "facts_seq", "ledger_seq") if one != left_out]
    shard = [] if left_out == "shard" else ["shard"]
    offered = [f"{{offer}}.{one}" for one in [*shard, *fields]]
    asked = [*(["{shard}"] if shard else []), *(f"{{request}}.{one}" for one in fields)]
    return f"({', '.join(offered)}) == ({', '.join(asked)})"
