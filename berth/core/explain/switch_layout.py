"""Leaf switches of a gang with switch affinity, or the leaves that almost have room: as data and in words."""

from typing import Final

import msgspec

from berth.core.explain.refusal_text import unfit_words
from berth.core.explain.text import pluralize, ranges

_LEAVES_SHOWN: Final = 8
_JOBS_SHOWN: Final = 4


class LeafUser(msgspec.Struct, frozen=True):
    """A job with pods below a leaf switch. Pods without chips do not count."""

    job: str
    """``namespace/name``."""
    pods: int
    """Its pods below this leaf."""
    of: int
    """All its pods with chips; a job with more than ``pods`` is a cross job."""

    def words(self) -> str:
        """Name and pods."""
        return f"{self.job} ({pluralize(self.of, 'pod') if self.pods == self.of else f'{self.pods:,} of {self.of:,} pods'})"


class LeafPart(msgspec.Struct, frozen=True):
    """Ranks below one leaf of a plan."""

    leaf: str
    pods: int
    ranks: list[int]
    state: str
    """State of the leaf under the plan; only for policy 2.0 and plans with several leaves."""


class NearLeaf(msgspec.Struct, frozen=True):
    """A leaf switch with many usable nodes for a waiting gang."""

    leaf: str
    usable: int
    """Nodes that can take a pod."""
    places: int
    lacks: int
    """Nodes missing for the whole gang below this leaf; 0 when the gang waits for something else."""
    state: str
    unfit: dict[str, int]
    """Nodes that cannot take a pod, by reason."""
    jobs: list[LeafUser]


class LeafLayout(msgspec.Struct):
    """Leaf switches of a placed gang, or the demand of a waiting gang and the nearest leaves."""

    tor_affinity: str
    kind: str
    """``common``, ``foundation-model`` or ``padding``."""
    pods: int
    policy: str
    """``1.0``, ``2.0`` or ``single-layer``."""
    rule: str
    """Rule that chose the leaves; for a waiting gang, the rule that failed."""
    words: str = ""
    """The rule in words."""
    missed: str = ""
    """What was missing for the other rules when a common job is placed by the fallback."""
    leaves: list[LeafPart] = []
    nearest: list[NearLeaf] = []
    annotated: bool = False
    """The pods are annotated with the states."""
    warning: str = ""


def placed_lines(layout: LeafLayout) -> list[str]:
    """Rule, leaves and warning of a placed gang, one sentence for each entry."""
    policy = "of a single layer" if layout.policy == "single-layer" else layout.policy
    job = f"{layout.kind} job of {pluralize(layout.pods, 'pod')}"
    lines = [f"Switch affinity {policy} chose the leaves for a {job} by {layout.words}."]
    if layout.missed:
        lines.append(f"By the other rules it {layout.missed}.")
    parts = [
        f"{part.leaf} (rank{'' if part.pods == 1 else 's'} {ranges(part.ranks)}"
        + (f", {part.state})" if part.state else ")")
        for part in layout.leaves[:_LEAVES_SHOWN]
    ]
    more = len(layout.leaves) - len(parts)
    rest = f" and {pluralize(more, 'more leaf')}" if more else ""
    lines.append(f"It is below {', '.join(parts)}{rest}.")
    if layout.warning:
        lines.append(f"Warning: {layout.warning}.")
    return lines


def waiting_lines(layout: LeafLayout, *, chips: int, form: str) -> list[str]:
    """The nearest leaves, one sentence for each entry.

    Args:
        layout: The demand and the nearest leaves.
        chips: Chips of a pod.
        form: Product form of the job.
    """
    return [_near_words(near, chips=chips, form=form) for near in layout.nearest]


def _near_words(near: NearLeaf, *, chips: int, form: str) -> str:
    state = f" ({near.state})" if near.state else ""
    lacks = f", {near.lacks} too few" if near.lacks else ""
    words = f"Near: leaf {near.leaf}{state}, {near.usable:,} of {pluralize(near.places, 'node')} usable{lacks}"
    unfit = unfit_words(near.unfit, chips=chips, form=form)
    words += f"; {unfit}" if unfit else ""
    if near.jobs:
        more = len(near.jobs) - _JOBS_SHOWN
        jobs = ", ".join(job.words() for job in near.jobs[:_JOBS_SHOWN])
        words += f"; its jobs are {jobs}{f' and {more:,} more' if more > 0 else ''}"
    return f"{words}."
