"""Jobs that a simulation rejects because the cluster has no leaf switches, and what to do about it."""

from collections.abc import Sequence
from typing import Final

import msgspec

from berth.cli.output import FAILED, OK, WRONG_USE, CommandError, complain
from berth.cli.simulation.results import Results
from berth.core.simulation.simulator import RejectedJob
from berth.core.text import pluralize
from berth.formats.ascend.pod_annotations import TOR_AFFINITY
from berth.schemas.workload import Workload

_NO_LEAVES: Final = "no-topology"
"""Code of the refusal."""
_EXPECTED: Final = "the cluster has no leaf switches"


def explained(rejected: Sequence[RejectedJob], workload: Workload) -> list[RejectedJob]:
    """The same jobs; those without leaf switches with the label that requests them, and what is expected."""
    labels = {(job.request.namespace, job.request.name): job.request.labels for job in workload.jobs}
    return [
        msgspec.structs.replace(
            job,
            field=TOR_AFFINITY,
            value=labels[job.namespace, job.name][TOR_AFFINITY],
            expected=_EXPECTED,
        )
        if job.code == _NO_LEAVES
        else job
        for job in rejected
    ]


def code_of(found: Results) -> int:
    """Exit code for results: that of a failure if there are jobs and none of them was placed; this is said."""
    if any(figures.placed for figures in found.figures) or not any(figures.jobs for figures in found.figures):
        return OK
    complain([f"no job was placed on {found.cluster}"])
    return FAILED


def leaf_note(rejected: Sequence[RejectedJob], jobs: int, *, cluster: str, affinity: str) -> str:
    """What to do about jobs that need leaf switches; empty if there are none.

    Args:
        rejected: All rejected jobs.
        jobs: Number of all jobs.
        cluster: Text or file of the cluster.
        affinity: Value of ``--affinity``; empty if that is not asked for.

    Raises:
        CommandError: All jobs are of this kind.
    """
    count = sum(job.code == _NO_LEAVES for job in rejected)
    if not count:
        return ""
    given = f"{cluster},leaf=16" if "=" in cluster and "leaf=" not in cluster else "leaf=16 or leaf in a topology file"
    ways = [f"leaf switches in it, such as --cluster {given}"]
    if affinity not in {"", "none"}:
        ways.append("--affinity none" if affinity == "gangs" else "--affinity none or gangs")
    note = (
        f"--cluster is {cluster}, without leaf switches, and {count:,} of {pluralize(jobs, 'job')} request switch affinity:"
        f" expected {', or '.join(ways)}"
    )
    if count == jobs:
        raise CommandError(note, code=WRONG_USE)
    return note
