"""All kinds of faults."""

from typing import Final

from tests.chaos import disk_faults, faults
from tests.chaos.fault import Kind

KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("kill", faults.kill, weight=4),
        Kind("kill server", faults.kill_server),
        Kind("stop", faults.pause, weight=3),
        Kind("stop server", faults.pause_server),
        Kind("clock", faults.step),
        Kind("partition", faults.partition),
        Kind("partition one way", faults.partition_one_way),
        Kind("isolated server", faults.isolate_server),
        Kind("split servers", faults.split_servers, lambda setup: setup.servers > 1, weight=3),
        Kind("split etcd", faults.split_etcd, lambda setup: setup.world == "kube", weight=1),
        Kind("delay", faults.delay),
        Kind("loss", faults.loss),
        Kind("stall", faults.stall),
        Kind("cut", faults.cut),
        Kind("power loss", disk_faults.power_loss),
        Kind("power loss of all", disk_faults.power_loss_of_all, weight=1),
        Kind("full disk", disk_faults.full, weight=1),
        Kind("slow disk", disk_faults.slow),
        Kind("stalled disk", disk_faults.stalled),
        Kind("lost disk", disk_faults.lost, lambda setup: setup.servers > 1, weight=1),
    )
}
"""By name."""
