"""Where a cell ends otherwise than Volcano's scheduler, and why that is right; or what is wrong today."""

import re
from typing import Final, NamedTuple


class Difference(NamedTuple):
    """What differs in a timeline.

    Attributes:
        why: Begins with ``right:`` or ``wrong today:``.
        lines: Patterns of what the player finds.
        is_rare: A few plays may not find it.
    """

    why: str
    lines: tuple[str, ...]
    is_rare: bool = False


DIFFERENCES: Final[dict[str, tuple[Difference, ...]]] = {
    "deployment-annotations-refused": (
        Difference(
            "right: the Ascend plug-in multiplies minResources by the number of pods and refuses 4 pods of 8 chips on "
            "64 chips; 32 chips are enough",
            (
                r"before .*: pods of ReplicaSet \S+: (3 Running, 1 waiting|4 Running|5 Running) instead of [45] waiting",
                r"before .*: PodGroup \S+: Running instead of Pending",
            ),
        ),
    ),
    "deployment-too-large": (
        Difference(
            "right: the PodGroup asks for the chips of one pod, and they are free; the pods wait for the same reason",
            (r"before .*: PodGroup \S+: Inqueue instead of Pending",),
        ),
    ),
    "queue-life": (
        Difference(
            "right: a queue that is closed holds no job, and an Event says so, see docs/decisions/queue-ignored.md",
            (
                r"before user: .*: pods of Job late: 1 Running instead of 1 waiting",
                r"before user: .*: PodGroup late-\S+: Running instead of Inqueue",
            ),
        ),
    ),
    "statefulset-ordered-gang": (
        Difference(
            "right: pods that a StatefulSet makes one after another start one by one; as members of a PodGroup of three "
            "they wait for each other for ever, which the first one escapes if its group name comes late",
            (r"before .*: pods of StatefulSet db: 1 Running instead of 1 waiting",),
            is_rare=True,
        ),
    ),
    "vcjob-depends-on-all": (
        Difference(
            "right: the workers are made when the master runs, so a master that waits for them waits for ever",
            (r"before .*: pods of Job job: 1 (Running|Succeeded) instead of 1 waiting",),
        ),
    ),
    "vcjob-nothing-set": (
        Difference(
            "right: phase Completed of a PodGroup without pods says nothing; the pods are of another scheduler",
            (r"before .*: PodGroup \S+: Inqueue instead of Completed",),
        ),
    ),
}

NOT_OF_NODESIM: Final = {
    "queue-missing": "its PodGroups do not wait for their queue",
    "vcjob-depends-on": "it does not know dependsOn",
    "vcjob-depends-on-all": "it does not know dependsOn",
    "vcjob-failed-retries-used-up": "it makes no PodGroup for the retry that is left out",
    "vcjob-failed-while-controller-down": "the recorded controller is stopped for a while",
    "vcjob-no-min-available": "it fills in minAvailable, as Volcano's webhook does",
    "vcjob-nothing-set": "it fills in task names and the scheduler, as Volcano's webhook does",
    "vcjob-scaled-controller-restarts": "the recorded controller is stopped for a while",
    "vcjob-suspended": "it does not know Commands",
}
"""Timelines that nodesim's controllers cannot play, and why."""


def unexplained(name: str, found: list[str]) -> list[str]:
    """What a play of a timeline found that its differences do not name."""
    patterns = [pattern for one in DIFFERENCES.get(name, ()) for pattern in one.lines]
    return [line for line in found if not any(re.fullmatch(pattern, line) for pattern in patterns)]


def unseen(name: str, found: list[str]) -> list[str]:
    """Differences of a timeline of which plays found nothing."""
    return [
        one.why
        for one in DIFFERENCES.get(name, ())
        if not (one.is_rare or any(re.fullmatch(pattern, line) for pattern in one.lines for line in found))
    ]
