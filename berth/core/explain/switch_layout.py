"""How a gang with switch affinity lies below leaf switches, or which leaves come closest to it: as data and in words."""

from typing import Final

import msgspec

from berth.core.explain.refusal_text import unfit_words
from berth.core.explain.text import pluralize, ranges

_LEAVES_SHOWN: Final = 8
_JOBS_SHOWN: Final = 4


class LeafUser(msgspec.Struct, frozen=True):
    """A job with pods below a leaf switch; pods without chips do not count."""

    job: str
    """``namespace/name``."""
    pods: int
    """Its pods below this leaf, of ..."""
    of: int
    """... so many in all; more of them: it is a cross job."""

    def words(self) -> str:
        """Name, and how many of its pods are meant."""
        return f"{self.job} ({pluralize(self.of, 'pod') if self.pods == self.of else f'{self.pods} of {self.of} pods'})"


class LeafPart(msgspec.Struct, frozen=True):
    """Ranks below one leaf of a plan."""

    leaf: str
    pods: int
    ranks: list[int]
    state: str
    """What the plan makes of the leaf; empty but under 2.0 for plans over several leaves."""


class NearLeaf(msgspec.Struct, frozen=True):
    """A leaf that has much to give to a gang that waits."""

    leaf: str
    usable: int
    """Nodes that can take a pod."""
    places: int
    lacks: int
    """Nodes that are missing for the whole gang below it; 0 where that is not what it waits for."""
    state: str
    unfit: dict[str, int] = {}
    """Nodes that cannot take a pod, by reason."""
    jobs: list[LeafUser] = []


class LeafLayout(msgspec.Struct):
    """How a gang with switch affinity lies below leaves, or what it meets there."""

    tor_affinity: str
    kind: str
    """``common``, ``foundation-model`` or ``padding``."""
    pods: int
    policy: str
    """``1.0``, ``2.0`` or ``single-layer``."""
    rule: str
    """Rule that chose the leaves; while the gang waits, the one that could not be met."""
    words: str = ""
    """The rule in words."""
    missed: str = ""
    """What a common job lacked for any rule but the fallback."""
    leaves: list[LeafPart] = []
    nearest: list[NearLeaf] = []
    annotated: bool = False
    """The states are written to the pods."""
    warning: str = ""


def placed_lines(layout: LeafLayout) -> list[str]:
    """Rule, leaves and warning of a placed gang, one sentence an entry."""
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
    """The leaves that come closest, one sentence an entry.

    Args:
        layout: What is known.
        chips: Chips of a pod.
        form: Product form of the job.
    """
    return [_near_words(near, chips=chips, form=form) for near in layout.nearest]


def _near_words(near: NearLeaf, *, chips: int, form: str) -> str:
    state = f" ({near.state})" if near.state else ""
    lacks = f", {near.lacks} too few" if near.lacks else ""
    words = f"Near: leaf {near.leaf}{state}, {near.usable} of {pluralize(near.places, 'node')} usable{lacks}"
    unfit = unfit_words(near.unfit, chips=chips, form=form)
    words += f"; {unfit}" if unfit else ""
    if near.jobs:
        more = len(near.jobs) - _JOBS_SHOWN
        jobs = ", ".join(job.words() for job in near.jobs[:_JOBS_SHOWN])
        words += f"; its jobs are {jobs}{f' and {more} more' if more > 0 else ''}"
    return f"{words}."
