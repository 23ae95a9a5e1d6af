"""Which chips a node offers while its device plug-in's report and Kubernetes do not agree yet.

A report lags behind pods that were bound a moment ago: it may still list their chips as free. So a list that grew is not
believed at once.

Source: docs/reference/nodes-and-chips.md, "Refresh of a reported list"; docs/reference/kubernetes.md,
"Rules for readers".
"""

from typing import Final

import msgspec

BELIEVED_AFTER_S: Final = 10
"""A report that is so many seconds newer than the list before it, or that is itself so old, is taken whole."""


class FreeList(msgspec.Struct, frozen=True):
    """Chips of a report: the names it offers, those it calls unhealthy, and when it was written.

    Attributes:
        free: Names, in the order of the report.
        unhealthy: Names.
        update_s: Seconds since 1970 by the node's clock.
    """

    free: tuple[str, ...] = ()
    unhealthy: frozenset[str] = frozenset()
    update_s: int = 0


def refreshed(shown: FreeList | None, report: FreeList, *, idle: int) -> FreeList:
    """What to show once ``report`` came.

    Args:
        shown: What was shown before; None for nothing yet.
        report: The newest report.
        idle: Chips of the node that Kubernetes counts as idle: allocatable minus those of its pods.

    Returns:
        ``shown`` itself when the report is no newer; the report whole, or with only those chips that were shown or
        unhealthy before.
    """
    if shown is None:
        return report
    if report.update_s <= shown.update_s:
        return shown
    if report.update_s - shown.update_s > BELIEVED_AFTER_S or not shown.free or not report.free:
        return report
    if len(shown.free) != idle or len(report.free) == idle:
        return report
    known = shown.unhealthy.union(shown.free)
    return msgspec.structs.replace(report, free=tuple(name for name in report.free if name in known))


class FreeView(msgspec.Struct, frozen=True):
    """What a node is believed to offer, and what that rests on.

    Attributes:
        shown: What is believed.
        before: What was believed before the newest report; None for nothing.
        report: The newest report.
    """

    shown: FreeList
    before: FreeList | None
    report: FreeList


def with_report(view: FreeView | None, report: FreeList, *, idle: int) -> FreeView:
    """The view after a report; one that is no newer changes nothing."""
    if view is None:
        return FreeView(report, None, report)
    if report.update_s <= view.report.update_s:
        return view
    return FreeView(refreshed(view.shown, report, idle=idle), view.shown, report)


def looked_again(view: FreeView, *, idle: int, age_s: float) -> FreeView:
    """The view judged anew, when Kubernetes' count has changed or time has passed.

    Args:
        view: The view.
        idle: As in :func:`refreshed`.
        age_s: Seconds since the newest report came; above 10 it is taken whole.
    """
    if view.shown == view.report:
        return view
    shown = view.report if age_s > BELIEVED_AFTER_S else refreshed(view.before, view.report, idle=idle)
    return msgspec.structs.replace(view, shown=shown)
