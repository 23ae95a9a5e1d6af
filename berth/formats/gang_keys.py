"""Keys and bounds of gangs that manifests and the objects of a cluster share."""

from typing import Final

GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
"""Annotation of Volcano: pods that must start together; ``MIN_AVAILABLE`` of the products takes precedence."""
QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
"""Annotation of Volcano: the queue of the pods."""
REPLICAS_MAX: Final = 1_000_000
"""Most pods of a task."""
REPLICA_TYPES: Final = ("Scheduler", "Master", "Chief", "Worker")
"""Replica types of an AscendJob in order of rank: the master comes first.

Source: MindCluster, roles by framework: MindSpore has Scheduler and Worker, PyTorch Master and Worker, TensorFlow Chief
and Worker.
"""
