"""Summary with the ConfigMaps about faults, on an API server and a bus in memory, for tests."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from berth.runtime.instruments import Instruments
from berth.runtime.kube.config import FaultObjectsConfig
from berth.schemas.envelope import encode
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.status import JobStatus, Phase
from berth.services.summary.app import write_on
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.fake_kube import FakeKube
from tests.support.waiting import until

COUNTERS = "/api/v1/namespaces/volcano-system/configmaps"
REASONS = "/api/v1/namespaces/mindx-dl/configmaps"
MAPS = "/api/v1/namespaces/team-a/configmaps"
PODS = "/api/v1/namespaces/team-a/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team-a/podgroups"
GROUP = "llm-5f2c"
KEY = f"team-a/{GROUP}"
SINCE_MS = 1_763_640_001_000
Tree = dict[str, Any]


def recovery(**changes: Any) -> RecoveryStatus:  # noqa: ANN401 - fields of the status
    made = RecoveryStatus(
        step=1,
        scope="pod",
        how="force",
        kind="CardUnhealthy",
        cause="pod of rank 3: its chip 2 on node n3 is unhealthy",
        ranks=[3],
        faulty=[3],
        since_ms=SINCE_MS,
        attempt=1,
        nodes=["n3"],
        open=[3],
    )
    return msgspec.structs.replace(made, **changes)


@asynccontextmanager
async def summary_on(kube: FakeKube, bus: FakeBus, clock: ManualClock, config: SummaryConfig) -> AsyncIterator[None]:
    """The summary service at work on an API server and a bus in memory."""
    stop = asyncio.Event()
    await bus.ensure_streams()
    async with asyncio.TaskGroup() as group:
        group.create_task(write_on(kube, bus, clock, config, Instruments.make(SummaryMetrics), stop))
        try:
            yield
        finally:
            stop.set()


class Desk:
    """An API server and a bus that outlive the service."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - fields of the settings
        self.clock = ManualClock()
        self.clock.advance(SINCE_MS / 1000 + 60 - self.clock.now_ms() / 1000)
        self.kube = FakeKube(clock=self.clock)
        self.bus = FakeBus(FakeServer(self.clock), "c")
        self.config = SummaryConfig(
            settle_s=0.01,
            retry_wait_max_s=0.02,
            kept_s=60,
            tor_share_namespace="",
            fault_objects=FaultObjectsConfig(**{"written_by": "berth"} | settings),
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        return summary_on(self.kube, self.bus, self.clock, self.config)

    def group(self, *, phase: str = "Running", owner: str = "5f2c", **labels: str) -> None:
        owners = [{"kind": "AscendJob", "name": "llm", "uid": owner, "controller": True}]
        self.kube.put(
            GROUPS,
            {
                "metadata": {"name": GROUP, "ownerReferences": owners, "labels": labels},
                "spec": {"minMember": 1},
                "status": {"phase": phase},
            },
        )

    def pod(
        self,
        name: str,
        rank: int,
        node: str,
        *,
        step: int = 0,
        labels: dict[str, str] | None = None,
        uid: str = "u1",
        pods: str = PODS,
    ) -> None:
        annotations = {
            "scheduling.k8s.io/group-name": GROUP,
            "hccl/rankIndex": str(rank + 1),
            "berth/job": "acjob.llm",
            "berth/uid": uid,
            "berth/attempt": "1",
            "berth/rank": str(rank),
            **({"berth/step": str(step)} if step else {}),
        }
        owners = [{"kind": "AscendJob", "name": "llm", "uid": "5f2c", "controller": True}]
        metadata = {"name": name, "uid": f"uid-{name}-{step}", "ownerReferences": owners}
        self.kube.put(
            pods,
            {
                "metadata": {**metadata, "annotations": annotations, "labels": labels or {}},
                "spec": {"nodeName": node, "containers": [{"name": "main"}]},
                "status": {"phase": "Running"},
            },
        )

    async def status(
        self, found: RecoveryStatus | None, *, phase: Phase = "running", attempt: int = 1, uid: str = "u1"
    ) -> None:
        status = JobStatus("team-a", "acjob.llm", uid, phase, 1, 1, attempt=attempt, recovery=found)
        await self.bus.publish(self.bus.subjects.status("team-a", "acjob.llm"), encode(status))

    def data(self, path: str, name: str) -> Tree:
        found = [item for item in self.kube.objects(path) if item["metadata"]["name"] == name]
        data: Tree = found[0].get("data", {}) if found else {}
        return data

    def retries(self) -> Tree | None:
        """Counters; None before they are written."""
        text = self.data(COUNTERS, "vcjob-fault-npu-cm").get("remain-retry-times")
        found: Tree | None = None if text is None else json.loads(text or "{}")
        return found

    def restarts(self) -> Tree | None:
        text = self.data(REASONS, "job-reschedule-reason").get("recent-reschedule-records")
        found: Tree | None = None if text is None else json.loads(text or "{}")
        return found

    def reset(self) -> Tree:
        found: Tree = json.loads(self.data(MAPS, "reset-config-llm")["reset.json"])
        return found

    def put_reset(self, text: str, *, saves: str = "", **data: str) -> None:
        metadata = {"name": "reset-config-llm", "annotations": {"berth/saves": saves} if saves else {}}
        self.kube.put(MAPS, {"metadata": metadata, "data": {"reset.json": text, **data}})

    def writes(self, part: str) -> list[str]:
        return [call.method for call in self.kube.calls if part in call.path + str(call.body) and call.method != "GET"]

    def looks(self) -> int:
        """How often what agents read was looked at."""
        return sum(call.method == "GET" and "reset-config-llm" in call.path for call in self.kube.calls)

    async def until_retries(self, times: int | None) -> None:
        wanted = {} if times is None else {KEY: {"UUID": "5f2c", "Times": times}}
        await until(lambda: self.retries() == wanted, deadline_s=5, what=f"{times} retries are left")

    async def until_restarts(self, count: int) -> Tree:
        def listed() -> int:
            return len((self.restarts() or {}).get(KEY, {}).get("RescheduleRecords", []))

        await until(lambda: listed() == count, deadline_s=5, what=f"{count} restarts are told")
        found: Tree = (self.restarts() or {}).get(KEY, {})
        return found
