"""What a client of an API server meets in trouble, told once for a real server and for a simulated one."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from berth.formats.kubernetes.objects import ConfigMap, Listed, Pod
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.kube.port import Api, Body, RefusedError
from tests.contract.bus_troubles import error_of
from tests.support.mirror import Mirror
from tests.support.waiting import until, until_true

DEADLINE_S: Final = 30.0
_TRIES: Final = 4
_LANDS_S: Final = 3.0
_OURS: Final = {"labelSelector": "test=ours"}


class Trial(Protocol):
    """Two clients of a server, and what may go wrong between the first one and the server."""

    @property
    def api(self) -> Api:
        """The client in trouble."""

    @property
    def other(self) -> Api:
        """A client that is well."""

    @property
    def namespace(self) -> str:
        """Namespace of the objects."""

    async def lose_answers(self) -> None:
        """Let the server get what the client writes, and lose what it answers."""

    async def hold(self) -> None:
        """Let what the client sends wait on its way."""

    async def cut(self) -> None:
        """Break all connections, and let no new one in."""

    async def heal(self) -> None:
        """End all of that. What had to be lost is lost, what waited arrives."""

    async def expire(self) -> None:
        """Forget the history of all objects: a watch of an old version is told 410."""

    async def guard(self, pod: str) -> None:
        """Let a disruption budget hold back evictions of a pod."""

    async def let_go(self) -> None:
        """End that."""

    async def deny(self) -> None:
        """Let admission refuse all pods; returns once it does."""

    async def admit(self) -> None:
        """End that."""


def maps(trial: Trial, name: str = "") -> str:
    """Path of the ConfigMaps, or of one."""
    return f"/api/v1/namespaces/{trial.namespace}/configmaps{name and f'/{name}'}"


def pods(trial: Trial, name: str = "", sub: str = "") -> str:
    """Path of the pods, of one, or of what belongs to it."""
    return "/".join(filter(None, (f"/api/v1/namespaces/{trial.namespace}/pods", name, sub)))


def a_map(name: str, **data: str) -> Body:
    """A ConfigMap."""
    return {"metadata": {"name": name, "labels": {"test": "ours"}}, "data": data}


async def names(trial: Trial) -> list[str]:
    """ConfigMaps that are there."""
    found = await trial.other.get(maps(trial), Listed[ConfigMap], params=_OURS)
    return sorted(item.metadata.name for item in found.items or ())


async def works(trial: Trial) -> None:
    """Wait until the client in trouble gets answers again."""

    async def answers() -> bool:
        try:
            await trial.api.get(maps(trial), Listed[ConfigMap], params=_OURS)
        except TransientError:
            return False
        return True

    await until_true(answers, deadline_s=DEADLINE_S, what="an answer")


async def a_lost_answer(trial: Trial) -> None:
    """A write without an answer is ambiguous, and the object is there; a second one finds it."""
    await works(trial)
    await trial.lose_answers()
    assert isinstance(await error_of(trial.api.create(maps(trial), a_map("one"))), AmbiguousError)
    await trial.heal()
    await works(trial)
    assert await names(trial) == ["one"]
    again = await error_of(trial.api.create(maps(trial), a_map("one")))
    assert isinstance(again, RefusedError)
    assert again.is_conflict


async def what_is_held_lands_late(trial: Trial) -> None:
    """A write that waits on its way is ambiguous for its sender, and may have its effect afterwards.

    A server that sees that its client has left, before it has stored the object, may give up.
    """
    has_landed = False
    for part in range(_TRIES):
        name = f"late-{part}"
        await works(trial)
        await trial.hold()
        assert isinstance(await error_of(trial.api.create(maps(trial), a_map(name))), AmbiguousError)
        assert name not in await names(trial)
        await trial.heal()
        has_landed = await _lands(trial, name)
        if has_landed:
            break
    assert has_landed, f"none of {_TRIES} held objects was stored"


async def _lands(trial: Trial, name: str) -> bool:
    """Whether an object is there soon."""

    async def has_landed() -> bool:
        return name in await names(trial)

    try:
        await until_true(has_landed, deadline_s=_LANDS_S, what=f"{name} is there")
    except AssertionError:
        return False
    return True


async def a_broken_connection(trial: Trial) -> None:
    """What is under way is ambiguous; what comes while the server is out of reach is not sent, and is not there."""
    await works(trial)
    await trial.hold()
    under_way = asyncio.get_running_loop().create_task(
        error_of(trial.api.create(maps(trial), a_map("under-way"))), name="create"
    )
    await asyncio.sleep(0.1)
    await trial.cut()
    assert isinstance(await under_way, AmbiguousError)
    refused = await error_of(trial.api.create(maps(trial), a_map("not-sent")))
    assert isinstance(refused, TransientError)
    assert not isinstance(refused, AmbiguousError)
    await trial.heal()
    await works(trial)
    assert "not-sent" not in await names(trial)


async def a_reflection_through_all_of_it(trial: Trial) -> None:
    """A reflection shows what is there after its watch broke, was cut off for a while, and expired."""
    seen: Mirror[ConfigMap] = Mirror()
    reflection = trial.api.reflect(maps(trial), ConfigMap, seen, params=_OURS)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflection.run(), name="reflection")
        await until(reflection.synced.is_set, deadline_s=DEADLINE_S, what="the first list")
        for part in range(3):
            await trial.other.create(maps(trial), a_map(f"before-{part}"))
            await until(lambda: f"before-{part}" in seen.objects, deadline_s=DEADLINE_S, what="before")  # noqa: B023  # awaited here
            await trial.cut()
            await trial.other.create(maps(trial), a_map(f"while-{part}"))
            await trial.other.delete(maps(trial, f"before-{part}"))
            if part == 1:
                await trial.expire()
            await trial.heal()
            wanted = [f"while-{number}" for number in range(part + 1)]
            await until(lambda: seen.names == wanted, deadline_s=DEADLINE_S, what="all that is there")  # noqa: B023  # awaited here
        assert reflection.errors >= 1
        assert reflection.lists >= 2
        task.cancel()
    assert await names(trial) == seen.names


async def an_old_version_conflicts(trial: Trial) -> None:
    """A write that names an old version is refused as a conflict, and changes nothing; without a version it counts."""
    await trial.api.create(maps(trial), a_map("one", at="0"))
    old = (await trial.api.get(maps(trial, "one"), ConfigMap)).metadata.resource_version
    await trial.other.patch(maps(trial, "one"), {"data": {"at": "1"}})
    refused = await error_of(
        trial.api.patch(maps(trial, "one"), {"metadata": {"resourceVersion": old}, "data": {"at": "2"}})
    )
    assert isinstance(refused, RefusedError)
    assert refused.is_conflict
    assert (await trial.api.get(maps(trial, "one"), ConfigMap)).data == {"at": "1"}
    await trial.api.patch(maps(trial, "one"), {"data": {"at": "3"}})
    assert (await trial.api.get(maps(trial, "one"), ConfigMap)).data == {"at": "3"}


def a_pod(name: str) -> Body:
    """A pod."""
    return {
        "metadata": {"name": name, "labels": {"test": "ours"}},
        "spec": {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0},
    }


async def an_admission_that_refuses(trial: Trial) -> None:
    """What admission refuses is refused for good, as no conflict, and is not there; later the same is created."""
    await trial.deny()
    refused = await error_of(trial.api.create(pods(trial), a_pod("one")))
    assert isinstance(refused, RefusedError)
    assert (refused.status, refused.is_conflict, refused.is_absent) == (403, False, False)
    assert not (await trial.other.get(pods(trial), Listed[Pod])).items
    await trial.api.create(maps(trial), a_map("others-are-admitted"))
    await trial.admit()

    async def is_created() -> bool:
        with suppress(RefusedError):  # the server has not noticed yet
            await trial.api.create(pods(trial), a_pod("one"))
        return bool((await trial.other.get(pods(trial), Listed[Pod])).items)

    await until_true(is_created, deadline_s=DEADLINE_S, what="the pod")


async def an_eviction_that_is_held_back(trial: Trial) -> None:
    """A disruption budget answers with a time to come again, and the pod stays; without it the pod goes."""
    await trial.api.create(pods(trial), a_pod("one"))
    target = {"kind": "Node", "name": "node-1"}
    await trial.api.create(pods(trial, "one", "binding"), {"metadata": {"name": "one"}, "target": target})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await trial.api.patch(pods(trial, "one", "status"), {"status": ready})
    await trial.guard("one")
    eviction = {"metadata": {"name": "one"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    held = await error_of(trial.api.create(pods(trial, "one", "eviction"), eviction))
    assert isinstance(held, TransientError)
    assert not isinstance(held, AmbiguousError)
    assert held.retry_after_s > 0
    assert (await trial.api.get(pods(trial, "one"), Pod)).metadata.deletion_timestamp is None
    await trial.let_go()

    async def is_gone() -> bool:
        with suppress(RefusedError, TransientError):  # it is gone already, or the budget is not gone yet
            await trial.api.create(pods(trial, "one", "eviction"), eviction)
        found = await trial.api.get(pods(trial), Listed[Pod])
        return not found.items

    await until_true(is_gone, deadline_s=DEADLINE_S, what="the pod is gone")


TROUBLES: Final[tuple[Callable[[Trial], Awaitable[None]], ...]] = (
    a_lost_answer,
    what_is_held_lands_late,
    a_broken_connection,
    a_reflection_through_all_of_it,
    an_old_version_conflicts,
    an_admission_that_refuses,
    an_eviction_that_is_held_back,
)
"""All of them."""
