"""What tenants send: for each entrance something hostile, and as many requests of tenants that behave well."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec

from berth.runtime.errors import PoisonError, TransientError
from berth.schemas.envelope import encode
from berth.schemas.intake import ANNOTATIONS, LABELS, SHAPES, TERMS, TOLERATIONS, JobRequest, Task
from tests.hostile.cell import DECENT, TENANT, HostileCell
from tests.support.cells import a_job
from tests.support.programs import job_file

Send = Callable[[HostileCell, int], Awaitable[object]]
"""Sends one request, by its number."""
Tree = dict[str, Any]
_ANSWER_S: Final = 30.0
_NAME: Final = "name-of-a-job"
_OFFSETS: Final = 5
"""Jobs at the bounds with so many different shapes of a task."""
_KINDS: Final = 6
"""Jobs beyond the bounds."""


class Load(NamedTuple):
    """Requests through one entrance.

    Attributes:
        name: What it is about.
        hostile: Sends one as a tenant that means harm.
        decent: Sends one as tenants do that behave well.
        per_s: Requests of either in a second.
    """

    name: str
    hostile: Send
    decent: Send
    per_s: float


async def drive(cell: HostileCell, send: Send, *, per_s: float, stop: asyncio.Event) -> int:
    """Send requests at a pace until ``stop`` is set; returns their number.

    Refusals, also those of the transport, are what is asked for: nothing is made of them here.
    """
    loop = asyncio.get_running_loop()
    began_s, number = loop.time(), 0
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            group.create_task(_sent(cell, send, number))
            number += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(began_s + number / per_s):
                    await stop.wait()
    return number


async def _sent(cell: HostileCell, send: Send, number: int) -> None:
    with contextlib.suppress(TransientError, PoisonError, aiohttp.ClientError, TimeoutError):
        await send(cell, number)


def small(number: int, namespace: str) -> Tree:
    """A small valid job that asks for the nodes that tenants share."""
    return job_file(f"small-{number}", namespace=namespace, uid="", product="module910bx8", chips=8, runFor="1s")


@cache
def _at_the_bounds(offset: int) -> bytes:
    tasks = [
        {
            "name": f"t{task}",
            "chips": 1,
            "cpu": f"{offset + task + 1}m",
            "tolerations": [{"key": f"key-{task}", "operator": "Exists"}],
        }
        for task in range(SHAPES.most)
    ]
    tasks[0] |= {
        "tolerations": [{"key": f"key-{one}", "operator": "Exists"} for one in range(TOLERATIONS.most)],
        "affinity": [
            {"matchExpressions": [{"key": f"zone-{one}", "operator": "In", "values": ["a", "b"]}]}
            for one in range(TERMS.most)
        ],
    }
    job = job_file(_NAME, namespace=TENANT, uid="", product="module910bx8", tasks=tasks)
    job["metadata"] |= {
        "labels": {f"huawei.com/sched{one:05}": "x" for one in range(LABELS.most)},
        "annotations": {f"huawei.com/schedule-polic{one}": "x" for one in range(ANNOTATIONS.most - 1)},
    }
    return json.dumps(job).encode()


def at_the_bounds(number: int) -> bytes:
    """A job that has of everything as much as one may have, or a little less."""
    return _at_the_bounds(number % _OFFSETS).replace(_NAME.encode(), f"large-{number}".encode())


@cache
def beyond_the_bounds(kind: int) -> bytes:
    """A job that has too much of something, of each kind something else.

    Made once: who sends them shares a process with the clock of the bystander.
    """
    job = small(kind, TENANT)
    spec, metadata = job["spec"], job["metadata"]
    match kind:
        case 0:
            metadata["annotations"] = {f"huawei.com/sched{one:05}": "x" for one in range(16_000)}
        case 1:
            del spec["chips"]
            spec["tasks"] = [{"name": f"t{one}", "chips": 1, "cpu": f"{one + 1}m"} for one in range(2_000)]
        case 2:
            spec["tolerations"] = [{"key": f"k{one}", "operator": "Exists"} for one in range(5_000)]
        case 3:
            spec["affinity"] = [
                {"matchExpressions": [{"key": "k", "operator": "In", "values": [f"v{one}"]}]} for one in range(5_000)
            ]
        case 4:
            metadata["labels"] = {"k" * 5_000: "x" * 300_000}
        case _:
            spec["nodeSelector"] = {f"k{one}": "x" for one in range(5_000)}
    return json.dumps(job).encode()


async def _post(cell: HostileCell, identity: str, job: Tree | bytes) -> None:
    await cell.gateway.ask("POST", "/api/v1/jobs", identity=identity, body=job)


async def _ask(cell: HostileCell, verb: str, identity: str, data: bytes) -> None:
    await cell.bus.request(cell.bus.subjects.api_as(verb, identity), data, timeout_s=_ANSWER_S)


def _decent(number: int) -> str:
    return DECENT[number % len(DECENT)]


async def _decent_job(cell: HostileCell, number: int) -> None:
    name = _decent(number)
    await _post(cell, name, small(number, name))


async def _decent_status(cell: HostileCell, number: int) -> None:
    name = _decent(number)
    await _ask(cell, "status", name, json.dumps({"namespace": name, "name": f"small-{number}"}).encode())


async def _decent_request(cell: HostileCell, number: int) -> None:
    name = _decent(number)
    await _store(cell, a_job(f"stored-{number}", namespace=name, uid=f"{name}/{number}", chips=8))


async def _store(cell: HostileCell, request: JobRequest) -> None:
    await cell.bus.publish(cell.bus.subjects.intake_request(request.namespace, request.name), encode(request))


async def _large_http(cell: HostileCell, number: int) -> None:
    await _post(cell, TENANT, at_the_bounds(number))


async def _too_large_http(cell: HostileCell, number: int) -> None:
    await _post(cell, TENANT, beyond_the_bounds(number % _KINDS))


async def _many_http(cell: HostileCell, number: int) -> None:
    await _post(cell, TENANT, small(number, TENANT))


async def _broken_http(cell: HostileCell, number: int) -> None:
    bodies: Mapping[int, bytes] = {0: b"[" * 50_000, 1: b'{"metadata": ', 2: b"\xff" * 100_000, 3: b"{}" * 40_000}
    await cell.gateway.ask("POST", "/api/v1/jobs", identity=TENANT, body=bodies[number % len(bodies)])


async def _broken_nats(cell: HostileCell, number: int) -> None:
    data = (b"[" * 50_000, b'{"job": {', b"\xff" * 100_000, b'{"namespace": "' + b"x" * 200_000 + b'"}')[number % 4]
    await _ask(cell, ("submit", "status", "explain", "cancel")[number % 4], TENANT, data)


async def _many_nats(cell: HostileCell, number: int) -> None:
    verb, asked = (
        ("nodes", b'{"limit": 1000}'),
        ("rights", b"{}"),
        ("status", b'{"namespace": "tenant", "name": "x"}'),
    )[number % 3]
    await _ask(cell, verb, TENANT, asked)


@cache
def _stored(kind: int) -> JobRequest:
    request = a_job("stored", namespace=TENANT, uid=TENANT, chips=8)
    if kind % 4 == 1:
        tasks = [Task(f"t{one}", 1, 1, cpu_milli=one + 1) for one in range(2_000)]
        return msgspec.structs.replace(request, tasks=tasks)
    if kind % 4 == 2:
        near = {f"huawei.com/sched{one:05}": "x" for one in range(16_000)}
        return msgspec.structs.replace(request, annotations=near)
    tasks = [Task(f"t{one}", 1, 1, cpu_milli=kind + one + 1) for one in range(SHAPES.most)]
    return msgspec.structs.replace(request, tasks=tasks)


async def _large_intake(cell: HostileCell, number: int) -> None:
    """Through the intake itself, as ``berth submit`` and the inventory do."""
    name = f"stored-{number}"
    if number % 4 == 3:
        await cell.bus.publish(cell.bus.subjects.intake_request(TENANT, name), b"\x93" * 20_000)
        return
    request = _stored(number % (4 * _OFFSETS))
    await _store(cell, msgspec.structs.replace(request, name=name, uid=f"{TENANT}/{number}"))


LOADS: Final = (
    Load("jobs-at-the-bounds", _large_http, _decent_job, 20),
    Load("jobs-beyond-the-bounds", _too_large_http, _decent_job, 40),
    Load("many-small-jobs", _many_http, _decent_job, 100),
    Load("broken-http", _broken_http, _decent_job, 60),
    Load("broken-nats", _broken_nats, _decent_status, 100),
    Load("many-requests", _many_nats, _decent_status, 400),
    Load("intake", _large_intake, _decent_request, 10),
)
