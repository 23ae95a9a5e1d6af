"""A chain of services as processes on a real bus: simulated cluster, dispatcher, two scorers and binder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.schemas.envelope import decode
from berth.schemas.status import JobStatus, Phase
from berth.schemas.subjects import StreamName
from tests.support.processes import Service, services
from tests.support.waiting import until_true

SHARDS: Final = 2


@contextmanager
def chain_of(
    folder: Path, url: str, cell: str, cluster: str, decisions: Mapping[str, object]
) -> Iterator[list[Service]]:
    """The services of a cell, in the order in which they are to be started.

    Args:
        folder: Where files go.
        url: The bus.
        cell: Name of the cell.
        cluster: Topology file.
        decisions: Settings of decisions.
    """
    file = folder / "cluster.yaml"
    file.write_text(cluster)
    with services(folder, url) as made:
        quick = {"shard_retry_ms": 100, **decisions}
        yield [
            made.service("nodesim", cell, topology_file=file, terminating_s=0.05, tick_s=0.05),
            made.service(
                "dispatcher", cell, lease_s=1, tick_s=0.1, snapshot_records=10, shards=SHARDS, decisions=quick
            ),
            *(made.service("scorer", cell, label=str(shard), shard=shard, shards=SHARDS) for shard in range(SHARDS)),
            made.service("binder", cell, retry_wait_max_s=0.5, answer_timeout_s=2),
        ]


async def until_is(bus: NatsBus, name: str, *phases: Phase) -> JobStatus:
    """Status of a job once it is in one of the phases, with what became of it, and not because a shard was away."""
    found: JobStatus | None = None

    async def there() -> bool:
        nonlocal found
        try:
            last = await bus.last(StreamName.STATUS, bus.subjects.status("default", name))
        except TransientError:
            return False
        found = decode(last.data, JobStatus) if last is not None else None
        known = found is not None and (found.refusal is None or not found.refusal.missing_shards)
        return known and found is not None and found.phase in phases and bool(found.refusal or found.placement)

    await until_true(there, deadline_s=30, what=f"{name} is {' or '.join(phases)}")
    assert found is not None
    return found
