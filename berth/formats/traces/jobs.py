"""Jobs of a trace: from what a row asks to a job request, with a tally of everything that was rounded on the way. Pure.

A gang of G chips on nodes of n chips is ``ceil(G / n)`` pods of ``min(G, n)`` chips, unless the row says its pods.
"""

import math
import re
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Literal

import msgspec

from berth.formats.ascend.pod_annotations import TOR_AFFINITY
from berth.formats.manifests.gang_request import REPLICAS_MAX
from berth.formats.quantities import RUN_MS_MAX
from berth.formats.traces.rows import Row
from berth.formats.yaml_tree import is_dns_name
from berth.products.model import ANNOTATION_POLICY, NodeProduct
from berth.schemas.intake import JobRequest, Task
from berth.schemas.workload import PlannedJob

Affinity = Literal["all", "gangs", "none"]
"""Which jobs ask for switch affinity of themselves: all, those of two pods and more, none."""
LARGE_PODS_MIN: Final = 4
"""Pods from which a job is one of a large model.

Source: docs/reference/switches.md, "Jobs and policies".
"""
TOR_VALUES: Final = ("large-model-schema", "normal-schema", "null")
_LABEL_CHARACTERS_MAX: Final = 63
_CRC_CHARACTERS: Final = 8
_FOREIGN: Final = re.compile(r"[^a-z0-9]+")


class Wish(msgspec.Struct, kw_only=True, gc=False):
    """What a row asks; times in seconds.

    Attributes:
        at: When the job comes.
        chips: Chips of the whole gang.
        pods: Pods of the gang; 0: as many as its chips need.
        chips_per_pod: 0: as many as a node has, or as its chips need.
        declared: What the user says of the run time; None for nothing.
        cancel: When the user takes it back, on the clock of ``at``; None for never.
        tor_affinity: Value of the label; empty: by its pods.
    """

    row: Row
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
    """How often each kind of thing happened, in the order in which they first did, with the first example of each."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, str] = {}

    def note(self, kind: str, row: Row, example: str) -> None:
        """Count one; the example is words about this row."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._first.setdefault(kind, f"line {row.line}, {example}")

    def sentences(self) -> list[str]:
        """A sentence a kind."""
        return [f"{kind}: {count}; such as {self._first[kind]}" for kind, count in self._counts.items()]


class Planner:
    """Makes jobs of wishes.

    Args:
        product: Form of the nodes.
        sizes: Numbers of chips that a pod of the form may ask, ascending; none: every one up to the node's chips.
        compress: By how much arrival times are divided.
        declare: Factor from run times to declared ones, where a row declares none; None declares nothing.
        affinity: Which jobs ask for switch affinity of themselves.
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
        self._product = product
        self._sizes = tuple(sizes) or tuple(range(1, product.chips + 1))
        self._compress = compress
        self._declare = declare
        self._affinity = affinity
        self._lines: dict[tuple[str, str], int] = {}

    def plan(self, wish: Wish, number: int) -> PlannedJob:
        """Job of a wish, which is the ``number``-th of its source.

        Raises:
            TraceError: Its name is another's, a number is too large, or its user takes it back before it comes.
        """
        row = wish.row
        at_ms = self._milliseconds(row, "arrival times", wish.at / self._compress)
        run_ms = self._milliseconds(row, "run times", wish.run)
        if not run_ms:
            self.tally.note("jobs that run 0 ms and end at once", row, f"{_told(wish.run)} s")
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

    def _milliseconds(self, row: Row, what: str, seconds: Fraction) -> int:
        """Whole milliseconds, the half up."""
        exact = seconds * 1000
        rounded = math.floor(exact + Fraction(1, 2))
        if rounded > RUN_MS_MAX:
            raise row.wrong("", f"at most {RUN_MS_MAX} ms", value=f"{rounded} ms")
        if rounded != exact:
            kind = f"{what} that are no whole milliseconds and were rounded, the half up"
            self.tally.note(kind, row, f"{_told(seconds)} s: {rounded} ms")
        return rounded

    def _declared_ms(self, wish: Wish) -> int:
        """Declared run time; at least 1 ms, for 0 would declare nothing."""
        declared = wish.declared
        if declared is None and self._declare is not None:
            declared = wish.run * self._declare
        if declared is None:
            return 0
        return max(1, self._milliseconds(wish.row, "declared run times", declared))

    def _cancel_ms(self, wish: Wish, at_ms: int) -> int:
        """When the user takes the job back; the time from its arrival is not compressed."""
        if wish.cancel is None:
            return 0
        if wish.cancel <= wish.at:
            raise wish.row.wrong("cancel_s", f"a moment after the arrival at {_told(wish.at)} s")
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

    def _kubernetes(self, row: Row, what: str, name: str) -> str:
        escaped = kubernetes_name(name)
        if escaped != name:
            self.tally.note(f"{what} that Kubernetes does not allow and that were escaped", row, f"{name!r}: {escaped}")
        return escaped


def kubernetes_name(name: str) -> str:
    """RFC 1123 label for a name: itself if it is one, else its letters and digits and the CRC-32 of it all.

    So two names that differ in other characters only stay two.
    """
    if len(name) <= _LABEL_CHARACTERS_MAX and "." not in name and is_dns_name(name):
        return name
    plain = _FOREIGN.sub("-", name.lower())[: _LABEL_CHARACTERS_MAX - _CRC_CHARACTERS - 1].strip("-")
    return f"{plain or 'x'}-{zlib.crc32(name.encode()):0{_CRC_CHARACTERS}x}"


def _told(seconds: Fraction) -> str:
    """Seconds for people: exact while short."""
    return f"{float(seconds):.12g}"
