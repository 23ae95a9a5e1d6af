"""Changes of usage that may help a class of requests that was refused."""

from collections.abc import Mapping
from typing import TypeVar

from berth.core.changes import ConstraintChangesBuilder
from berth.core.constraints.usage import Amounts, Limits, Usage

K = TypeVar("K")
_NOTHING = Usage()
_UNKNOWN = Limits()


def note_usage(before: Usage | None, now: Usage | None, found: ConstraintChangesBuilder) -> None:
    """Note what differs between the usage of a source before and now; None for nothing."""
    was, is_now = before or _NOTHING, now or _NOTHING
    for rows, old, new in ((found.rows_freed, was, is_now), (found.rows_taken, is_now, was)):
        rows.update(dict.fromkeys(_fallen(old.pods, new.pods)))
        rows.update(dict.fromkeys(_fallen_named(old.ports, new.ports)))
        rows.update(dict.fromkeys(_fallen_named(old.resources, new.resources)))
    found.rows_freed.update(dict.fromkeys(_fallen_named(was.claims, is_now.claims)))
    for group in {**was.groups, **is_now.groups}:
        if was.groups.get(group) != is_now.groups.get(group):
            found.pods_moved[group] = None
    # A claim that one pod alone may use is free for pods on any node; one that comes into use may take the volume that
    # another one was thought to have, which then has another.
    found.repulsion_eased |= was.claims != is_now.claims or bool(_fallen_named(was.terms, is_now.terms))
    taken = (term for term, amounts in is_now.terms.items() if _fallen(amounts, was.terms.get(term, {})))
    found.terms_taken.update(dict.fromkeys(taken))


def note_limits(before: Limits | None, now: Limits, found: ConstraintChangesBuilder) -> None:
    """Note which nodes limit less or more than before; of one that left, another source may report a higher limit."""
    was = before or _UNKNOWN
    if was == now:
        return
    found.rows_freed.update(dict.fromkeys(sorted({*now.rows} ^ {*was.rows})))
    for old, new in ((was.resources, now.resources), (was.volumes, now.volumes)):
        found.rows_freed.update(dict.fromkeys(_fallen_named(new, old)))
    found.rows_freed.update(dict.fromkeys(_fallen(now.pods, was.pods)))
    for driver, limits in was.volumes.items():
        found.rows_freed.update(dict.fromkeys(row for row in limits if row not in now.volumes.get(driver, {})))
    found.rows_freed.update(dict.fromkeys(row for row in was.pods if row not in now.pods))
    for name, amounts in was.resources.items():  # as above
        found.rows_freed.update(dict.fromkeys(row for row in amounts if row not in now.resources.get(name, {})))
    found.rows_taken.update(dict.fromkeys(_fallen_named(was.resources, now.resources)))
    found.rows_taken.update(dict.fromkeys(row for row, most in now.pods.items() if most < was.pods.get(row, most + 1)))
    found.topology_changed |= any(
        most < was.volumes.get(driver, {}).get(row, most + 1)
        for driver, limits in now.volumes.items()
        for row, most in limits.items()
    )


def _fallen(before: Amounts, now: Amounts) -> list[int]:
    """Rows whose amount is less than before."""
    return [row for row, amount in before.items() if now.get(row, 0) < amount]


def _fallen_named(before: Mapping[K, Amounts], now: Mapping[K, Amounts]) -> list[int]:
    return [row for key, amounts in before.items() for row in _fallen(amounts, now.get(key, {}))]
