"""Replicas of streams on a NATS cluster."""

import msgspec

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.schemas.subjects import StreamName


class _Replica(msgspec.Struct):
    name: str
    current: bool = False
    offline: bool = False


class _Cluster(msgspec.Struct):
    leader: str = ""
    replicas: list[_Replica] = []


class _Info(msgspec.Struct):
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


async def are_whole(bus: NatsBus, servers: int) -> bool:
    """Whether every stream of a cell has a leader, and replicas that lack nothing: with it, on so many servers."""
    try:
        for stream in StreamName:
            subject = f"$JS.API.STREAM.INFO.{bus.subjects.stream(stream)}"
            found = msgspec.json.decode(await bus.request(subject, b"", timeout_s=2.0), type=_Info).cluster
            current = [one for one in found.replicas if one.current and not one.offline]
            if not found.leader or len(current) != servers - 1:
                return False
    except TransientError:
        return False
    return True
