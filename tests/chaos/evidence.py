"""What is seen of a cell: looks at live pods while it runs, and what became of every job when it has come to rest."""

from collections import Counter, defaultdict
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import msgspec

from berth.formats.ascend.device_list import chip_mask
from berth.formats.ascend.pod_annotations import ATTEMPT, JOB_UID, RANK, RESOURCE_PREFIX
from berth.runtime.errors import TransientError
from berth.schemas.envelope import DecodeError, body_of, decode, open_envelope
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.programs.events import JobEvent
from berth.schemas.simulation import SimCounts
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.chaos.cell import GATEWAY_TOKEN, NAMESPACE, ChaosCell
from tests.chaos.checker import End, Evidence, Fate, LivePod, Placing, Request
from tests.chaos.operations import Action
from tests.chaos.users import JOBS, PODS, short
from tests.support.kube_api import RefusedError
from tests.support.waiting import pause

GROUPS: Final = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NAMESPACE}/podgroups"
_LOOK_S: Final = 0.7
_ASK_S: Final = 2.0
_ASKED_MAX: Final = 20
"""Jobs, those with the newest statuses, about which the gateway is asked one by one."""
_COUNTED: Final = ("double_allocations", "overcommits", "swapped", "admission_errors")
_LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
_FATES: Final[dict[str, Fate]] = {
    "waiting": "waiting", "placed": "restless", "bound": "restless", "running": "placed", "ending": "restless",
    "succeeded": "finished", "failed": "failed", "cancelled": "cancelled", "rejected": "refused",
}  # fmt: skip
_OBJECT_FATES: Final[dict[str, Fate]] = {
    "Completed": "finished", "Succeeded": "finished", "Failed": "failed", "Aborted": "failed", "Terminated": "failed",
    "Running": "placed",
}  # fmt: skip


class Observer:
    """Looks at a cell.

    Attributes:
        looks: Live pods, at several times; equal looks one after the other are one.
        told: Highest counts of the simulated cluster between its starts, summed.
        asked: Looks that were answered.
        untold: What programs did not know yet when :meth:`is_told` last looked.
    """

    def __init__(self, cell: ChaosCell) -> None:
        self.looks: list[tuple[LivePod, ...]] = []
        self.told: Counter[str] = Counter()
        self.asked = 0
        self.untold = ""
        self._cell = cell
        self._is_over = False

    async def run(self) -> None:
        """Look again and again until :meth:`stop`."""
        while not self._is_over:
            try:
                await self._look()
                self.asked += 1
            except (aiohttp.ClientError, TimeoutError, TransientError, RefusedError):
                pass  # somebody is down
            await pause(_LOOK_S)

    def stop(self) -> None:
        """Look no more."""
        self._is_over = True

    async def _look(self) -> None:
        cell = self._cell
        if cell.api is not None:
            pods = await cell.api.items(PODS, fieldSelector=_LIVE)
            look = tuple(sorted(_live(pod) for pod in pods))
            if not self.looks or self.looks[-1] != look:
                self.looks.append(look)
        counts = decode(await cell.bus.request(cell.bus.subjects.sim("counts"), b"", timeout_s=_ASK_S), SimCounts)
        for name in _COUNTED:
            self.told[name] = max(self.told[name], getattr(counts, name))

    async def evidence(self) -> Evidence:
        """All that was seen; the cell has come to rest."""
        placings = await self._placings()
        accepted, withdrawn = self._accepted()
        return Evidence(
            ends=await self.ends(),
            uids={name: frozenset(uids) for name, uids in accepted.items()},
            withdrawn=frozenset(withdrawn),
            placings=placings,
            looks=self.looks,
            told=self.told,
            requests=await self._requests(),
            events=await self._events(),
            is_deleted_by_cancel=self._cell.api is not None,
        )

    async def _placings(self) -> list[Placing]:
        watch = self._cell.watch
        await watch.reach_heads()
        placings = []
        for holding in watch.history:
            chips = holding.placement.chips_by_rank()
            places = tuple(
                (node, sum(1 << chip for chip in own))
                for node, own in zip(holding.placement.names(), chips, strict=True)
            )
            placings.append(Placing(short(holding.name), holding.uid, holding.attempt, places))
        return placings

    async def is_told(self) -> bool:
        """Whether programs know what the ledger says: all its events are stored, and the gateway has the statuses."""
        try:
            evidence = Evidence(placings=await self._placings(), events=await self._events())
            self.untold = ", ".join(evidence.lacking_events) or await self._other_status()
        except (aiohttp.ClientError, TimeoutError, TransientError) as error:
            self.untold = f"no answer: {error!r}"
        return not self.untold

    async def _other_status(self) -> str:
        """A job of which the gateway says something else than its status; empty if there is none."""
        headers = {"Authorization": f"Bearer {GATEWAY_TOKEN}"}
        timeout = aiohttp.ClientTimeout(total=_ASK_S)
        async with aiohttp.ClientSession(self._cell.gateway_url, headers=headers, timeout=timeout) as session:
            for message in (await self._cell.bus.read(StreamName.STATUS))[-_ASKED_MAX:]:
                status = decode(message.data, JobStatus)
                async with session.get(f"/api/v1/jobs/{status.namespace}/{status.name}") as answer:
                    phase = (await answer.json())["phase"] if answer.status == HTTPStatus.OK else answer.status
                if phase != status.phase:
                    return f"{status.name} is {status.phase} by STATUS {message.sequence}, {phase} by the gateway"
        return ""

    async def ends(self) -> dict[str, End]:
        """What has become of each job so far, by name."""
        found = {}
        for message in await self._cell.bus.read(StreamName.STATUS):
            status = decode(message.data, JobStatus)
            found[short(status.name)] = _end(status)
        return found if self._cell.api is None else await self._objects(found)

    async def _objects(self, statuses: dict[str, End]) -> dict[str, End]:
        """What has become of each job that is an object; those that wait have their reason from the status."""
        assert self._cell.api is not None
        found: dict[str, End] = {}
        for group in await self._cell.api.items(GROUPS):
            for owner in group["metadata"].get("ownerReferences", ()):
                if (reason := _not_admitted(group)) and owner["name"] not in statuses:
                    statuses[owner["name"]] = End("refused", reason)
        for job in await self._cell.api.items(JOBS):
            phase = job.get("status", {}).get("state", {}).get("phase", "")
            found[job["metadata"]["name"]] = _end_of_object(phase, statuses.get(job["metadata"]["name"]))
        for pod in await self._cell.api.items(PODS):
            if not pod["metadata"].get("ownerReferences"):
                name = pod["metadata"]["name"]
                found[name] = _end_of_object(pod["status"].get("phase", ""), statuses.get(name))
        return found

    async def _events(self) -> Counter[str]:
        bus = self._cell.bus
        found = await bus.read(StreamName.EVENTS, filters=(f"{bus.subjects.root}event.job.>",))
        return Counter(msgspec.json.decode(one.data, type=JobEvent).id for one in found)

    async def _requests(self) -> dict[int, Request]:
        found = {}
        for one in await self._cell.bus.read(StreamName.INTAKE):
            envelope = open_envelope(one.data)
            body: JobRequest | JobCancel
            if envelope.kind == JobRequest.KIND:
                action: Action = "submit"
                body = body_of(envelope, JobRequest)
            else:
                action = "cancel"
                body = body_of(envelope, JobCancel)
            found[one.sequence] = Request(action, short(body.name))
        return found

    def _accepted(self) -> tuple[dict[str, set[str]], set[str]]:
        """Uids under which each name was accepted, and those that were cancelled before another one was."""
        found: dict[str, set[str]] = defaultdict(set)
        cancelled: dict[str, set[str]] = defaultdict(set)
        withdrawn: set[str] = set()
        for fact in self._cell.watch.facts:
            try:
                envelope = open_envelope(fact.data)
                if envelope.kind != JobSeen.KIND:
                    continue
                seen = body_of(envelope, JobSeen)
            except DecodeError:
                continue
            if seen.namespace != NAMESPACE:
                continue
            name = short(seen.name)
            if seen.state == "accepted":
                found[name].add(seen.uid)
                withdrawn |= cancelled[name] - {seen.uid}
            elif seen.state == "cancelled":
                cancelled[name].add(seen.uid)
        return found, withdrawn


def _end(status: JobStatus) -> End:
    fate = _FATES[status.phase]
    if fate == "waiting" and status.refusal is not None:
        fate = "refused"
    return End(fate, status.sentence if fate in {"refused", "failed", "waiting"} else "")


def _not_admitted(group: dict[str, Any]) -> str:
    """Why a PodGroup has no pods yet; nothing if it may have them."""
    status = group.get("status", {})
    if status.get("phase") not in {"", "Pending", None}:
        return ""
    return "; ".join(one.get("message", "") for one in status.get("conditions", ()) if one.get("status") == "True")


def _end_of_object(phase: str, status: End | None) -> End:
    fate = _OBJECT_FATES.get(phase)
    if fate is not None:
        return End(fate, "its object says so" if fate == "failed" else "")
    return status if status is not None and status.fate == "refused" else End("waiting", f"its object is {phase!r}")


def _live(pod: dict[str, Any]) -> LivePod:
    annotations = pod["metadata"].get("annotations", {})
    resources = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    resource = next((name for name in resources if name.startswith(RESOURCE_PREFIX)), "")
    return LivePod(
        uid=pod["metadata"]["uid"],
        job_uid=annotations.get(JOB_UID, ""),
        attempt=int(annotations.get(ATTEMPT, "0")),
        rank=int(annotations.get(RANK, "0")),
        node=pod["spec"]["nodeName"],
        chips=chip_mask(annotations.get(resource, "")),
    )
