"""Labels and annotations of pods that several kinds read, and how they are read."""

import re
from typing import Final

from berth.formats.kubernetes.objects import Pod

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
CO_GROUP: Final = "scheduling.x-k8s.io/pod-group"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def number(text: str) -> int | None:
    """Whole number of at most nine digits; None for any other text."""
    return int(text) if _DIGITS.fullmatch(text) else None


def label_or_annotation(pod: Pod, key: str) -> str:
    """Value of a label, otherwise of the annotation of this key; empty without both."""
    return pod.metadata.label(key) or pod.metadata.annotation(key)
