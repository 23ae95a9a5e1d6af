"""Labels and annotations of pods that several kinds read, and how they are read."""

import re
from typing import Final

from berth.formats.kubernetes.objects import Pod

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
CO_GROUP: Final = "scheduling.x-k8s.io/pod-group"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
TASK_INDEX_VARIABLE: Final = "VC_TASK_INDEX"
"""Variable that Volcano sets in a pod: its index in its task, which counts before labels."""
_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def number(text: str) -> int | None:
    """Whole number of at most nine digits; None for any other text."""
    return int(text) if _DIGITS.fullmatch(text) else None


def label_or_annotation(pod: Pod, key: str) -> str:
    """Value of a label, otherwise of the annotation of this key; empty without both."""
    return pod.metadata.label(key) or pod.metadata.annotation(key)


def index_in_task(pod: Pod, key: str) -> int | None:
    """Index of a pod in its task: from the variable of Volcano, otherwise from a label or annotation.

    Source: docs/reference/nodes-and-chips.md, "Pod annotations of chips".
    """
    boxes = pod.spec.containers or ()
    variables = (item.value for box in boxes for item in box.env or () if item.name == TASK_INDEX_VARIABLE)
    found = number(next(variables, ""))
    return number(label_or_annotation(pod, key)) if found is None else found
