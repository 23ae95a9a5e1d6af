"""Jobs of a trace: job requests from rows, with notes on all rounding. Pure.

A gang of G chips on nodes of n chips is ``ceil(G / n)`` pods of ``min(G, n)`` chips, unless the row has its pods.
"""

import math
import re
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Literal

import msgspec

from berth.formats.ascend.pod_annotations import TOR_AFFINITY
from berth.formats.gang_keys import REPLICAS_MAX
from berth.formats.quantities import RUN_MS_MAX
from berth.formats.traces.rows import TraceRow
from berth.formats.yaml_tree import is_dns_name
from berth.products.model import ANNOTATION_POLICY, NodeProduct
from berth.schemas.intake import JobRequest, Task
from berth.schemas.workload import PlannedJob

Affinity = Literal["all", "gangs", "none"]
"""Jobs that get switch affinity without a value in the trace: all, those of two pods and more, or none."""
LARGE_PODS_MIN: Final = 4
"""Fewest pods of a large-model job.

Source: docs/reference/switches.md, "Jobs and policies".
"""
TOR_VALUES: Final = ("large-model-schema", "normal-schema", "null")
_LABEL_CHARACTERS_MAX: Final = 63
_CRC_CHARACTERS: Final = 8
_FOREIGN: Final = re.compile(r"[^a-z0-9]+")


class Wish(msgspec.Struct, kw_only=True, gc=False):
    """Job of a row; times in seconds.

    Attributes:
        at: Arrival.
        chips: Chips of the whole gang.
        pods: Pods of the gang; 0: as its chips need.
        chips_per_pod: 0: the chips of a node, or as the gang needs.
        declared: Declared run time; None without one.
        cancel: Cancellation, on the clock of ``at``; None for never.
        tor_affinity: Value of the label; empty: by its pods.
    """

    row: TraceRow
    at: Fraction
    run: Fraction
    chips: int
    pods: int = 0
    chips_per_pod: int = 0
    name: str = ""
    namespace: str = ""
    queue: str = ""
    priority: int = 0
    declared: Fraction | None = None
    cancel: Fraction | None = None
    tor_affinity: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Tally:
    """Counts of notes by kind, in the order of their first occurrence, with the first example of each."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, str] = {}

    def note(self, kind: str, row: TraceRow, example: str) -> None:
        """Count one; the example is a text about this row."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._first.setdefault(kind, f"line {row.line}, {example}")

    def sentences(self) -> list[str]:
        """One sentence per kind."""
        return [f"{kind}: {count}; such as {self._first[kind]}" for kind, count in self._counts.items()]


class Planner:
    """Creates job requests.

    Args:
        product: Product of the nodes.
        sizes: Valid numbers of chips per pod, ascending; none: every number up to the chips of a node.
        compress: Divisor of arrival times.
        declare: Factor from run times to declared ones, for rows that declare none; None declares nothing.
        affinity: Jobs that get switch affinity.
    """

    def __init__(
        self,
        product: NodeProduct,
        *,
        sizes: Sequence[int] = (),
        compress: Fraction = Fraction(1),
        declare: Fraction | None = None,
        affinity: Affinity = "all",
    ) -> None:
        self.tally = Tally()
        self.declared = 0
        """Jobs so far whose row declares a run time."""
        self._product = product
        self._sizes = tuple(sizes) or tuple(range(1, product.chips + 1))
        self._compress = compress
        self._declare = declare
        self._affinity = affinity
        self._lines: dict[tuple[str, str], int] = {}

    def plan(self, wish: Wish, number: int) -> PlannedJob:
        """Job request for a row, which is the ``number``-th of its source.

        Raises:
            TraceError: Its name is in use, a number is too large, or it is cancelled before its arrival.
        """
        row = wish.row
        at_ms = self._milliseconds(row, "arrival times", wish.at / self._compress)
        run_ms = self._milliseconds(row, "run times", wish.run)
        if not run_ms:
            self.tally.note("jobs that run 0 ms and end at once", row, f"{_seconds_text(wish.run)} s")
        pods, chips = self._shape(wish)
        product = self._product
        name, namespace = self._names(wish, number)
        annotations = {ANNOTATION_POLICY: product.policy} if product.policy else {}
        request = JobRequest(
            namespace=namespace,
            name=name,
            uid="",
            resource=product.resource,
            tasks=[Task("worker", pods, chips)],
            labels=product.job_labels | self._tor_affinity(wish, pods) | wish.labels,
            annotations=annotations | wish.annotations,
            node_selector=dict(product.selector),
            queue=wish.queue or "default",
            priority=wish.priority,
            run_ms=self._declared_ms(wish),
        )
        return PlannedJob(request=request, at_ms=at_ms, run_ms=run_ms, cancel_ms=self._cancel_ms(wish, at_ms))

    def _milliseconds(self, row: TraceRow, what: str, seconds: Fraction) -> int:
        """Whole milliseconds, rounded half up."""
        exact = seconds * 1000
        rounded = math.floor(exact + Fraction(1, 2))
        if rounded > RUN_MS_MAX:
            raise row.wrong("", f"at most {RUN_MS_MAX} ms", value=f"{rounded} ms")
        if rounded != exact:
            kind = f"{what} that are no whole milliseconds and were rounded, the half up"
            self.tally.note(kind, row, f"{_seconds_text(seconds)} s: {rounded} ms")
        return rounded

    def _declared_ms(self, wish: Wish) -> int:
        """Declared run time; at least 1 ms, because 0 declares nothing."""
        declared = wish.declared
        self.declared += declared is not None
        if declared is None and self._declare is not None:
            declared = wish.run * self._declare
        if declared is None:
            return 0
        return max(1, self._milliseconds(wish.row, "declared run times", declared))

    def _cancel_ms(self, wish: Wish, at_ms: int) -> int:
        """Time of the cancellation; the time since the arrival is not compressed."""
        if wish.cancel is None:
            return 0
        if wish.cancel <= wish.at:
            raise wish.row.wrong("cancel_s", f"a moment after the arrival at {_seconds_text(wish.at)} s")
        return at_ms + max(1, self._milliseconds(wish.row, "cancellations", wish.cancel - wish.at))

    def _shape(self, wish: Wish) -> tuple[int, int]:
        """Pods of the gang, and chips of each."""
        row, node = wish.row, self._product.chips
        pods, chips = wish.pods, wish.chips_per_pod
        if not pods:
            chips = chips or min(wish.chips, node)
            pods = -(-wish.chips // chips)
        elif not chips:
            chips = -(-wish.chips // pods)
        if chips > node:
            raise row.wrong(
                "",
                f"at most {node} chips a pod, which a node of {self._product.name} has",
                value=f"{chips} chips a pod",
            )
        if pods > REPLICAS_MAX:
            raise row.wrong("", f"at most {REPLICAS_MAX} pods", value=f"a job of {pods} pods")
        if pods * chips != wish.chips:
            kind = "jobs whose chips do not fill equal pods and were rounded up"
            self.tally.note(kind, row, f"{wish.chips} chips: {pods} pods of {chips} are {pods * chips}")
        size = next((size for size in self._sizes if size >= chips), node)
        if size != chips:
            listed = ", ".join(map(str, self._sizes))
            kind = f"jobs whose chips a pod {self._product.name} does not give (it gives {listed}) and were rounded up"
            self.tally.note(kind, row, f"{chips} chips a pod: {size}")
        return pods, size

    def _tor_affinity(self, wish: Wish, pods: int) -> dict[str, str]:
        value = wish.tor_affinity
        if not value and (self._affinity == "all" or (self._affinity == "gangs" and pods > 1)):
            value = "large-model-schema" if pods >= LARGE_PODS_MIN else "normal-schema"
        return {TOR_AFFINITY: value} if value else {}

    def _names(self, wish: Wish, number: int) -> tuple[str, str]:
        """Name and namespace of a job.

        Raises:
            TraceError: Another job has them.
        """
        name = self._kubernetes(wish.row, "names", wish.name) if wish.name else f"job-{number:06}"
        namespace = self._kubernetes(wish.row, "namespaces", wish.namespace) if wish.namespace else "default"
        line = self._lines.setdefault((namespace, name), wish.row.line)
        if line != wish.row.line:
            raise wish.row.wrong("name", f"another name: the job of line {line} has it", value=f"{namespace}/{name}")
        return name, namespace

    def _kubernetes(self, row: TraceRow, what: str, name: str) -> str:
        escaped = kubernetes_name(name)
        if escaped != name:
            self.tally.note(f"{what} that Kubernetes does not allow and that were escaped", row, f"{name!r}: {escaped}")
        return escaped


def kubernetes_name(name: str) -> str:
    """RFC 1123 label for a name: the name itself if it is one, otherwise its letters and digits and its CRC-32.

    So names that differ only in other characters stay different.
    """
    if len(name) <= _LABEL_CHARACTERS_MAX and "." not in name and is_dns_name(name):
        return name
    plain = _FOREIGN.sub("-", name.lower())[: _LABEL_CHARACTERS_MAX - _CRC_CHARACTERS - 1].strip("-")
    return f"{plain or 'x'}-{zlib.crc32(name.encode()):0{_CRC_CHARACTERS}x}"


def _seconds_text(seconds: Fraction) -> str:
    """Seconds for display: exact if short."""
    return f"{float(seconds):.12g}"
