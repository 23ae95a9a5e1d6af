"""Traces: workloads of real jobs with arrival and run times, from CSV. Pure.

Three kinds are recognized by their columns: ``kalos`` (Kalos cluster of Shanghai AI Laboratory, converted), ``philly``
(Philly clusters of Microsoft), and ``csv``, the form that ``docs/simulate.md`` describes.
"""

import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, Literal, TypeVar, get_args

import numpy as np

from berth.formats.gang_keys import REPLICAS_MAX
from berth.formats.manifests.pod_template import PRIORITY_MAX
from berth.formats.traces.jobs import TOR_VALUES, Affinity, Planner, Wish
from berth.formats.traces.rows import Table, TraceError, TraceFault, TraceRow
from berth.formats.yaml_tree import nearest
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.workload import PlannedJob, Workload

Kind = Literal["auto", "csv", "kalos", "philly"]
ITERATION: Final = Fraction(1, 2)
"""Kalos: seconds of an iteration, the unit of run times in the converted trace."""
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "csv": ("at_s", "run_s", "chips"),
    "kalos": ("arrival_time", "num_iteration", "gpu_workers", "gpu_per_worker"),
    "philly": ("timestamp", "duration", "num_gpus", "cluster"),
}
"""Columns that a trace of a kind must have."""
OPTIONAL: Final = (
    "name", "namespace", "pods", "chips_per_pod", "priority", "declared_s", "tor_affinity", "queue", "cancel_s", "labels",
    "annotations",
)  # fmt: skip
"""Columns that the CSV form may have."""
_CHIPS_MAX: Final = 8 * REPLICAS_MAX
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)", re.ASCII)
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
_CLOSE: Final = 0.75
"""Least similarity of an unknown column to a known one that counts as a misspelling."""


def read_trace(
    lines: Iterable[str],
    *,
    kind: Kind = "auto",
    product: str = "module910bx8",
    sizes: Sequence[int] = (),
    compress: float = 1.0,
    declare: float | None = None,
    affinity: Affinity = "all",
    strict: bool = False,
) -> Workload:
    """Workload of a trace.

    Args:
        lines: Lines of the file.
        kind: Kind of trace; ``auto``: by the columns.
        product: Product of the nodes that jobs request.
        sizes: Valid numbers of chips per pod, ascending; none: every number up to the chips of a node.
        compress: Divisor of arrival times; run times stay.
        declare: Factor from run times to declared ones (1 is exact), for rows that declare none; None: nothing is
            declared.
        affinity: Jobs that get switch affinity: ``all``, ``gangs`` of two pods and more, ``none``.
        strict: Read all rows and report all errors, not only the first.

    Returns:
        A workload with the name of the kind. Jobs by arrival, those of one millisecond in the order of the file. Jobs
        without a name are named after their row: ``job-000017`` is the seventeenth. The notes have all rounding and
        assumptions.

    Raises:
        TraceError: An argument, a column, or a row is wrong.
    """
    table = Table(lines)
    known = _kind_of(table, _argument("kind", kind, get_args(Kind)))
    form = NODE_PRODUCTS[_argument("product", product, NODE_PRODUCTS)]
    _argument("affinity", affinity, get_args(Affinity))
    planner = Planner(
        form,
        sizes=sizes,
        compress=_factor("compress", compress),
        declare=None if declare is None else _factor("declare", declare),
        affinity=affinity,
    )
    notes = _columns_left_out(table, known)
    reader = {"csv": _csv_wish, "kalos": _kalos_reader(form.chips), "philly": _philly_wish}[known]
    faults = _Faults(is_strict=strict)
    wishes = faults.sift(reader, table.rows())
    if known == "philly" and wishes:
        first = min(wish.at for wish in wishes)
        for wish in wishes:
            wish.at -= first
    jobs = faults.sift(lambda numbered: planner.plan(numbered[1], numbered[0]), enumerate(wishes, 1))
    faults.check()
    if not jobs:
        raise TraceError(TraceFault(table.line, "", "no row", "a row for each job below the header"))
    notes += _assumed(known, compress, jobs)
    return Workload(
        name=known,
        jobs=sorted(jobs, key=lambda job: job.at_ms),
        notes=[*notes, *planner.tally.sentences()],
        declared=planner.declared,
    )


class _Faults:
    """Errors of the rows: the first is raised, or with ``is_strict`` all are collected."""

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._found: list[TraceFault] = []

    def sift(self, make: Callable[[_Item], _Made], items: Iterable[_Item]) -> list[_Made]:
        """Results for valid items, up to the first that cannot be read.

        Raises:
            TraceError: An item is wrong, unless all errors are collected.
        """
        out: list[_Made] = []
        source = iter(items)
        while True:
            try:
                item = next(source, None)
                if item is None:
                    return out
                out.append(make(item))
            except TraceError as error:
                if not self._is_strict:
                    raise
                self._found += error.faults

    def check(self) -> None:
        """Check that no error was collected.

        Raises:
            TraceError: Errors were collected; it lists them by line.
        """
        if self._found:
            raise TraceError(*sorted(self._found, key=lambda fault: fault.line))


def _argument(name: str, value: str, known: Iterable[str]) -> str:
    """One of the known values.

    Raises:
        TraceError: It is another value.
    """
    words = list(known)
    if value not in words:
        raise TraceError(TraceFault(0, "", f"{name} {value!r}", nearest(value, words)))
    return value


def _factor(name: str, value: float) -> Fraction:
    """A number above 0, exact.

    Raises:
        TraceError: The value is no number above 0.
    """
    if not (math.isfinite(value) and value > 0):
        raise TraceError(TraceFault(0, "", f"{name} {value!r}", "a number above 0"))
    return Fraction(repr(float(value)))


def _kind_of(table: Table, kind: str) -> str:
    """Kind of a trace, by its columns unless it is given.

    Raises:
        TraceError: Columns are missing.
    """
    has = set(table.columns)
    lacks = {known: [column for column in columns if column not in has] for known, columns in REQUIRED.items()}
    if kind == "auto":
        kind = min(REQUIRED, key=lambda known: (len(lacks[known]) / len(REQUIRED[known]), known))
        if len(lacks[kind]) == len(REQUIRED[kind]):
            forms = "; ".join(f"{known}: {', '.join(columns)}" for known, columns in REQUIRED.items())
            raise TraceError(
                TraceFault(table.header_line, "", _header(table), f"the columns of a known kind ({forms})")
            )
    if lacks[kind]:
        expected = f"columns {', '.join(REQUIRED[kind])} for a trace of kind {kind}"
        missing = ", ".join(lacks[kind])
        raise TraceError(TraceFault(table.header_line, missing, f"missing in {_header(table)}", expected))
    return kind


def _header(table: Table) -> str:
    return f"a header of {', '.join(map(repr, table.columns))}"


def _columns_left_out(table: Table, kind: str) -> list[str]:
    """Sentence about columns that are not read.

    Raises:
        TraceError: The name of one is similar to that of a known column.
    """
    known = (*REQUIRED[kind], *(OPTIONAL if kind == "csv" else ()))
    others = [column for column in table.columns if column not in known]
    free = [column for column in known if column not in table.columns]
    for column in others:
        close = difflib.get_close_matches(column.lower(), free, n=1, cutoff=_CLOSE)
        if close:
            raise TraceError(TraceFault(table.header_line, column, "an unknown column", nearest(close[0], free)))
    return [f"columns that are not read: {', '.join(others)}"] if others else []


def _assumed(kind: str, compress: float, jobs: Sequence[PlannedJob]) -> list[str]:
    """Notes that apply to all jobs."""
    notes = []
    if kind == "kalos":
        notes.append(f"run times are num_iteration times {float(ITERATION)} s")
    if compress != 1:
        notes.append(f"arrival times were divided by {compress:g}; run times were not")
    if any(after.at_ms < before.at_ms for before, after in itertools.pairwise(jobs)):
        notes.append("rows are not in the order of arrival; jobs were sorted by it")
    return notes


def _csv_wish(row: TraceRow) -> Wish:
    row.check_length()
    tor_affinity = row.text("tor_affinity")
    if tor_affinity and tor_affinity not in TOR_VALUES:
        raise row.wrong("tor_affinity", nearest(tor_affinity, TOR_VALUES))
    return Wish(
        row=row,
        at=row.seconds("at_s"),
        run=row.seconds("run_s"),
        chips=row.whole("chips", least=1, most=_CHIPS_MAX),
        pods=row.optional_whole("pods", least=1, most=REPLICAS_MAX),
        chips_per_pod=row.optional_whole("chips_per_pod", least=1, most=_CHIPS_MAX),
        name=row.text("name"),
        namespace=row.text("namespace"),
        queue=row.text("queue"),
        priority=row.optional_whole("priority", least=-PRIORITY_MAX, most=PRIORITY_MAX),
        declared=row.optional_seconds("declared_s"),
        cancel=row.optional_seconds("cancel_s"),
        tor_affinity=tor_affinity,
        labels=row.pairs("labels"),
        annotations=row.pairs("annotations"),
    )


def _kalos_reader(node_chips: int) -> Callable[[TraceRow], Wish]:
    """Reader of rows of Kalos; workers with more chips than a node are redistributed."""

    def read(row: TraceRow) -> Wish:
        row.check_length()
        workers = row.whole("gpu_workers", least=1, most=REPLICAS_MAX)
        each = row.whole("gpu_per_worker", least=1, most=_CHIPS_MAX // workers)
        fits = each <= node_chips
        return Wish(
            row=row,
            at=row.seconds("arrival_time"),
            run=row.seconds("num_iteration") * ITERATION,
            chips=workers * each,
            pods=workers if fits else 0,
            chips_per_pod=each if fits else 0,
        )

    return read


def _philly_wish(row: TraceRow) -> Wish:
    row.check_length()
    return Wish(
        row=row,
        at=_moment(row, "timestamp"),
        run=row.seconds("duration"),
        chips=row.whole("num_gpus", least=1, most=_CHIPS_MAX),
        namespace=row.text("cluster"),
    )


def _moment(row: TraceRow, column: str) -> Fraction:
    """Seconds since 1970 of a date and a time of day.

    Raises:
        TraceError: It is not a date and a time of day.
    """
    expected = "a date and a time of day, such as 2017-10-09 07:01:55"
    match = _TIME.fullmatch(row.text(column))
    if match is None:
        raise row.wrong(column, expected)
    try:
        return Fraction(int(np.datetime64(f"{match[1]}T{match[2]}", "s").astype(np.int64)))
    except ValueError as error:
        raise row.wrong(column, expected) from error


__all__ = ["OPTIONAL", "REQUIRED", "Kind", "TraceError", "TraceFault", "read_trace"]
