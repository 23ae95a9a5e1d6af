"""Streams of a cell are made, whatever state the servers are in."""

import sys
from typing import Any, cast

import msgspec
import pytest

from berth.runtime.bus import streams
from berth.runtime.bus.stream_api import Api, StreamInfo, of_leader
from berth.runtime.errors import TransientError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.subjects import StreamName, Subjects

LIMITS = streams.Limits({}, {})


class Servers:
    """Servers that make streams, which have no leader for the first answers about each."""

    def __init__(self, answers_without_leader: int) -> None:
        self.left = answers_without_leader
        self.configs: dict[str, dict[str, Any]] = {}
        self.without_leader: dict[str, int] = {}

    async def find_stream(self, stream: str, *, timeout_s: float = 0) -> StreamInfo | None:
        assert timeout_s >= 0
        if stream not in self.configs:
            return None
        leader = "" if self.without_leader[stream] else "one"
        self.without_leader[stream] -= not leader
        info = {
            "config": self.configs[stream],
            "created": "2026-01-01T00:00:00Z",
            "state": {},
            "cluster": {"leader": leader, "replicas": [{"name": "two"}]},
        }
        return msgspec.convert(info, StreamInfo)

    async def create_stream(self, config: dict[str, Any]) -> None:
        assert config["name"] not in self.configs
        self.configs[config["name"]] = config
        self.without_leader[config["name"]] = self.left

    async def stream(self, stream: str) -> StreamInfo:
        found = await self.find_stream(stream)
        assert found is not None
        return of_leader(stream, found)


async def test_a_new_stream_with_replicas_is_asked_for_until_it_has_a_leader() -> None:
    servers, subjects = Servers(2), Subjects("c")
    await streams.ensure_streams(cast("Api", servers), subjects, replicas=3, limits=LIMITS, log=DEFAULT_LOG)
    names = {subjects.stream(spec.name) for spec in subjects.streams()}
    assert set(servers.configs) == names
    assert set(servers.without_leader.values()) == {0}


async def test_a_stream_that_another_process_has_just_made_is_asked_for_until_it_has_a_leader() -> None:
    servers, subjects = Servers(2), Subjects("c")
    await streams.ensure_streams(cast("Api", servers), subjects, replicas=3, limits=LIMITS, log=DEFAULT_LOG)
    servers.without_leader = dict.fromkeys(servers.configs, 2)
    await streams.ensure_streams(cast("Api", servers), subjects, replicas=3, limits=LIMITS, log=DEFAULT_LOG)
    assert set(servers.without_leader.values()) == {0}


async def test_a_stream_that_was_there_and_stays_without_a_leader_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers, subjects = Servers(0), Subjects("c")
    await streams.ensure_streams(cast("Api", servers), subjects, replicas=3, limits=LIMITS, log=DEFAULT_LOG)
    stuck = subjects.stream(StreamName.LEASE)
    servers.without_leader[stuck] = sys.maxsize
    monkeypatch.setattr("berth.runtime.bus.streams._LEADER_S", 0.05)
    await streams.ensure_streams(cast("Api", servers), subjects, replicas=3, limits=LIMITS, log=DEFAULT_LOG)
    assert servers.without_leader[stuck] < sys.maxsize, "it was asked for"


async def test_one_server_is_not_asked_again() -> None:
    servers = Servers(1)
    await streams.ensure_streams(cast("Api", servers), Subjects("c"), replicas=1, limits=LIMITS, log=DEFAULT_LOG)
    assert set(servers.without_leader.values()) == {1}


class Replicas:
    """Two streams of a cluster, of which one may have no leader."""

    def __init__(self, leader: str | None, *, replicas: int = 3, late: bool = False) -> None:
        self.leader = leader
        cluster = {"leader": "b", "replicas": [{"name": "c", "current": not late}] if replicas > 1 else None}
        self.other = {"config": {"num_replicas": replicas}, "created": "2026", "state": {}, "cluster": cluster}

    async def find_stream(self, stream: str, *, timeout_s: float = 5.0) -> StreamInfo | None:
        assert stream == "LEASE_c"
        assert timeout_s >= 5, "a busy server must have time to answer"
        if self.leader is None:
            raise TransientError("no answer")
        info = {"config": {}, "created": "2026", "state": {}, "cluster": {"leader": self.leader}}
        return msgspec.convert(info, StreamInfo)

    async def stream(self, stream: str) -> StreamInfo:
        assert stream == "LEDGER_c"
        return msgspec.convert(self.other, StreamInfo)


@pytest.mark.parametrize("leader", ["", None])
async def test_a_stream_without_a_leader_is_stuck_beside_one_of_which_no_replica_is_missing(leader: str | None) -> None:
    assert await streams.is_stuck(cast("Api", Replicas(leader)), "LEASE_c", beside="LEDGER_c")
    for servers in (Replicas("a"), Replicas(leader, late=True), Replicas(leader, replicas=1)):
        assert not await streams.is_stuck(cast("Api", servers), "LEASE_c", beside="LEDGER_c")
