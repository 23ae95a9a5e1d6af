"""What jobs say of all topologies, in the order of ``registry``, which adds those that are registered there."""

from typing import Final

from berth.core.topologies.job_topology import JobTopology
from berth.core.topologies.levels.request import LevelJobs
from berth.core.topologies.racks.request import RackJobs
from berth.core.topologies.superpods.request import SuperpodJobs
from berth.core.topologies.switches.request import SwitchJobs

JOB_TOPOLOGIES: Final[list[JobTopology]] = [
    SwitchJobs(),
    SuperpodJobs(),
    RackJobs(),
    LevelJobs(),
]
