"""Free chips of a node while the report of its device plug-in and Kubernetes do not agree.

A report lags behind pods that were bound recently: it may still list their chips as free. So additional chips in a list
are not accepted immediately.

Source: docs/reference/nodes-and-chips.md, "Refresh of a reported list"; docs/reference/kubernetes.md,
"Rules for readers".
"""

from typing import Final

import msgspec

BELIEVED_AFTER_S: Final = 10
"""A report that is this many seconds newer than the list before it, or this old, is accepted completely."""


class FreeList(msgspec.Struct, frozen=True):
    """Chips of a report: free names, unhealthy names, and the time of writing.

    Attributes:
        free: Names, in the order of the report.
        unhealthy: Names.
        update_s: Seconds since 1970 by the clock of the node.
    """

    free: tuple[str, ...] = ()
    unhealthy: frozenset[str] = frozenset()
    update_s: int = 0


def refreshed(shown: FreeList | None, report: FreeList, *, idle: int) -> FreeList:
    """List to publish after ``report``.

    Args:
        shown: List that was published before; None for none.
        report: The newest report.
        idle: Chips of the node that Kubernetes counts as idle: allocatable minus those of its pods.

    Returns:
        ``shown`` itself if the report is not newer; the complete report, or only its chips that were published or
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
    """Published free chips of a node, and the reports that they follow from.

    Attributes:
        shown: Published list.
        before: List that was published before the newest report; None for none.
        report: The newest report.
    """

    shown: FreeList
    before: FreeList | None
    report: FreeList


def with_report(view: FreeView | None, report: FreeList, *, idle: int) -> FreeView:
    """The view after a report. A report that is not newer changes nothing."""
    if view is None:
        return FreeView(report, None, report)
    if report.update_s <= view.report.update_s:
        return view
    return FreeView(refreshed(view.shown, report, idle=idle), view.shown, report)


def looked_again(view: FreeView, *, idle: int, age_s: float) -> FreeView:
    """The view after a change of the count of Kubernetes, or after some time.

    Args:
        view: The view.
        idle: As in :func:`refreshed`.
        age_s: Seconds since the newest report arrived; above 10 it is accepted completely.
    """
    if view.shown == view.report:
        return view
    shown = view.report if age_s > BELIEVED_AFTER_S else refreshed(view.before, view.report, idle=idle)
    return msgspec.structs.replace(view, shown=shown)
