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
    found.rows_freed.update(dict.fromkeys(_fallen(was.pods, is_now.pods)))
    freed = [
        *_fallen_named(was.ports, is_now.ports),
        *_fallen_named(was.resources, is_now.resources),
        *_fallen_named(was.claims, is_now.claims),
    ]
    found.rows_freed.update(dict.fromkeys(freed))
    for group in {**was.groups, **is_now.groups}:
        if was.groups.get(group) != is_now.groups.get(group):
            found.pods_moved[group] = None
    # A claim that one pod alone may use is free for pods on any node; one that comes into use may take the volume that
    # another one was thought to have, which then has another.
    found.repulsion_eased |= was.claims != is_now.claims or bool(_fallen_named(was.terms, is_now.terms))


def note_limits(before: Limits | None, now: Limits, found: ConstraintChangesBuilder) -> None:
    """Note which nodes limit less than before: another source may report a higher limit of one that left here."""
    was = before or _UNKNOWN
    found.rows_freed.update(dict.fromkeys(sorted({*now.rows} ^ {*was.rows})))
    for old, new in ((was.resources, now.resources), (was.volumes, now.volumes)):
        found.rows_freed.update(dict.fromkeys(_fallen_named(new, old)))
    found.rows_freed.update(dict.fromkeys(_fallen(now.pods, was.pods)))
    for driver, limits in was.volumes.items():
        found.rows_freed.update(dict.fromkeys(row for row in limits if row not in now.volumes.get(driver, {})))
    found.rows_freed.update(dict.fromkeys(row for row in was.pods if row not in now.pods))
    for name, amounts in was.resources.items():  # as above
        found.rows_freed.update(dict.fromkeys(row for row in amounts if row not in now.resources.get(name, {})))


def _fallen(before: Amounts, now: Amounts) -> list[int]:
    """Rows whose amount is less than before."""
    return [row for row, amount in before.items() if now.get(row, 0) < amount]


def _fallen_named(before: Mapping[K, Amounts], now: Mapping[K, Amounts]) -> list[int]:
    return [row for key, amounts in before.items() for row in _fallen(amounts, now.get(key, {}))]
