"""Mutants of the runtime: bus, snapshots, reflections, checks and repairs of cells."""

from tests.mutants.made.registry import by_seed, by_tests, unseen
from tests.mutants.outcomes import Mutant
from tests.mutants.patterns import Change, Product

_BUS = "berth/runtime/bus/"
_OWN_BUS = (
    "a simulated bus has followers and connections of its own; the contract of the bus is tested on the real server"
)
_OWN_KUBE = "a simulated API server has reflections of its own; the real one is tested on a real API server"
_WHOLE = "nothing damages a snapshot that is stored whole"


@unseen(_OWN_BUS)
def bus_follower_backwards(product: Product) -> Change:
    """A stream that lost only its last message is no history that went backwards."""
    found = product.one(
        _BUS, "if any_last < self.covered:\n    any_reason = GapReason.BACKWARDS\nelse:\n    any_else\n"
    )
    return found.one("any_last < self.covered").to("{last} < self.covered - 1")


@unseen(_OWN_BUS)
def bus_follower_hole(product: Product) -> Change:
    """A follower hands over what comes behind a hole in its stream."""
    return product.one(_BUS, "any_sequence != self.applied + 1 and not self.any_skip(any_sequence)").to(
        "{sequence} <= self.applied"
    )


@unseen(_OWN_BUS)
def bus_publish_ambiguous(product: Product) -> Change:
    """A publish without an answer counts as not sent."""
    found = product.one(_BUS, "AmbiguousError(any_reason) if any_entry.is_sent else any_other")
    return found.to("TransientError({reason})")


@by_seed("stuck-lease")
def kept_lease_never_deleted(product: Product) -> Mutant:
    """A stream of leases that nobody leads is not deleted."""
    return product.one(_BUS, "await self._bus.delete_stream(StreamName.LEASE)\n").generated("await")


@unseen(_WHOLE)
def runtime_feeds_snapshot_checksum(product: Product) -> Change:
    """A snapshot with a wrong checksum is accepted."""
    found = product.one("berth/runtime/", "len(any_joined) != any_end.bytes_total or any_crc != any_end.checksum")
    return found.to("len({joined}) != {end}.bytes_total")


@unseen(_WHOLE)
def snapshot_digest_unread(product: Product) -> Change:
    """The digest of a snapshot is not compared."""
    return product.one("berth/runtime/", "any_body.digest and any_body.digest != any_found").to("not {body}")


@unseen(_OWN_KUBE)
def runtime_reflector_bookmark(product: Product) -> list[Change]:
    """Bookmarks do not move the version."""
    moved = product.one(
        "berth/runtime/kube/", "self._version = any_head.metadata.resource_version\nif any_is:\n    any_then\n"
    )
    version = moved.one("self._version = any_head.metadata.resource_version\n")
    return [version.to("if {}: self._version = {{head}}.metadata.resource_version".format(moved.parts["is"]))]


@unseen(_OWN_KUBE)
def runtime_reflector_gone(product: Product) -> Change:
    """A version that the server does not know is watched from again."""
    found = product.one("berth/runtime/kube/", 'self._version = ""\nany_wait = self.any_failed(any_error)\n')
    return found.one('self._version = ""\n').to("pass")


@by_tests
def runtime_feeds_dead_letter_conflict(product: Product) -> Change:
    """A dead letter that another follower has written counts as one that could not be written."""
    found = product.one("berth/runtime/dead_letters/", "try:\n    any_publish\nexcept ConflictError:\n    return\n")
    return found.to("{publish}")


@by_tests
def fsck_snapshot_folded_twice(product: Product) -> list[Change]:
    """A check folds a snapshot that an earlier pass has changed."""
    found = product.one(
        "berth/runtime/fsck/",
        "while True:\n    any_dumps = {any_at: any_copied(any_dump) for any_at, any_dump in any_kept.items()}\n    any_try\n",
    )
    return [found.to("pass")]


@by_tests
def restore_unlocked(product: Product) -> Change:
    """Dispatchers may lead while a cell is restored."""
    return product.one("berth/runtime/backups/", "await any_lock.take(any_count)\n").to("pass")


@by_tests
def repair_beside_leader(product: Product) -> Change:
    """A repair does not wait until the leader has given way."""
    waits = "await any_fence.any_wait()\n"
    found = product.one(
        "berth/runtime/", f"{waits}any_last, any_fold = await any_search(any_bus, any_clock, any_by, any_without)\n"
    )
    return found.one(waits).to("pass")
