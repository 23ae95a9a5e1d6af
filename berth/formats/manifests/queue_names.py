"""The queue that annotations of a pod, its owner or its namespace name."""

from collections.abc import Mapping
from typing import Final

from berth.formats.gang_keys import QUEUE_NAME

_VOLCANO_QUEUE: Final = "volcano.sh/queue-name"


def queue_named(annotations: Mapping[str, str] | None) -> str:
    """The queue; empty if they name none."""
    return (annotations or {}).get(QUEUE_NAME, "") or (annotations or {}).get(_VOLCANO_QUEUE, "")
