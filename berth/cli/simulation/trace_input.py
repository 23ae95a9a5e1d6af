"""Traces of jobs as input of a simulation."""

import gzip
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, TextIO

from berth.cli.output import WRONG_USE, CommandError
from berth.core.requests.job_validation import ValidJob, validate
from berth.core.text import pluralize
from berth.formats.clusters.cluster_text import PRODUCT
from berth.formats.traces.jobs import Affinity
from berth.formats.traces.reader import TraceError, TraceFault, read_trace
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import ANNOTATION_POLICY
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.workload import ClusterPlan, Workload

_EXPECTING: Final = frozenset({"easy", "conservative"})
"""Queue policies that depend on when jobs are expected to end."""
_LINE_MAX: Final = 1 << 20
"""Characters of a line: a small packed file may unpack to one without an end."""


def declared(word: str) -> float | None:
    """Factor of the run times that jobs declare; None for none.

    Raises:
        CommandError: It is invalid.
    """
    if word in {"exact", "none"}:
        return 1.0 if word == "exact" else None
    try:
        factor = float(word)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise CommandError(
            f"--declare is {word!r}, expected exact, none, or a factor above 0 such as 1.5", code=WRONG_USE
        )
    return factor


def declared_words(workload: Workload, declare: str, policies: Collection[str]) -> str:
    """Where declared run times come from, as text, and whether they are of use.

    Args:
        workload: Jobs of a trace.
        declare: Value of ``--declare``.
        policies: Queue policies that are simulated.
    """
    count, jobs = workload.declared, len(workload.jobs)
    if not count:
        return declare
    words = f"those of the trace for {count:,} of {pluralize(jobs, 'job')}"
    if count < jobs:
        words += f", for the others {declare}"
    if not _EXPECTING & set(policies):
        words += f"; {' and '.join(sorted(policies))} {'does' if len(policies) == 1 else 'do'} not use them, easy and conservative do"
    return words


def product_of(plan: ClusterPlan) -> str:
    """Product form of most nodes; ties by name."""
    counts = Counter(node.product for node in plan.nodes if node.product in NODE_PRODUCTS)
    return min(counts, key=lambda product: (-counts[product], product), default=PRODUCT)


def read_workload(trace: Path, *, product: str, compress: float, declare: float | None, affinity: Affinity) -> Workload:
    """Jobs of a trace.

    Raises:
        CommandError: It cannot be read, or is invalid.
    """
    try:
        with gzip.open(trace, "rt", encoding="utf-8") if _is_gzip(trace) else trace.open(encoding="utf-8") as file:
            return read_trace(
                _lines(file),
                product=product,
                sizes=_sizes(product),
                compress=compress,
                declare=declare,
                affinity=affinity,
                strict=True,
            )
    except TraceError as error:
        raise CommandError(*(f"{trace}: {line}" for line in str(error).splitlines()), code=WRONG_USE) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CommandError(f"--trace: {trace} cannot be read: {reason}", code=WRONG_USE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"--trace: {trace} is no text in UTF-8: {error.reason}", code=WRONG_USE) from error


def _lines(file: TextIO) -> Iterator[str]:
    """Lines without the byte order mark that some programs write first.

    Raises:
        TraceError: A line is too long.
    """
    for number, line in enumerate(iter(lambda: file.readline(_LINE_MAX), "")):
        if len(line) == _LINE_MAX:
            raise TraceError(TraceFault(number + 1, "", f"{_LINE_MAX} characters or more", "a row of CSV"))
        yield line if number else line.removeprefix("\ufeff")


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _sizes(product: str) -> list[int]:
    """Numbers of chips that a pod of a form may request."""
    form = NODE_PRODUCTS[product]

    def asks(chips: int) -> JobRequest:
        return JobRequest(
            namespace="default",
            name="a",
            uid="",
            resource=form.resource,
            tasks=[Task("worker", 1, chips)],
            labels=dict(form.job_labels),
            annotations={ANNOTATION_POLICY: form.policy} if form.policy else {},
            node_selector=dict(form.selector),
        )

    return [chips for chips in range(1, form.chips + 1) if isinstance(validate(asks(chips), Settings()), ValidJob)]
