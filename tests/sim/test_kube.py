"""The simulated API server is like the one in memory, and does what a real one may do when something breaks."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from berth.formats.kubernetes.objects import ConfigMap
from berth.runtime.errors import AmbiguousError, FatalError, TransientError
from berth.runtime.kube.port import RefusedError
from tests.kube import test_fake_is_like_real as contract
from tests.sim.clock import SimClock
from tests.sim.kube import OTHERS, SimApi, SimKube, Weather
from tests.sim.loop import SimLoop
from tests.support.mirror import Mirror

MAPS = "/api/v1/namespaces/ns/configmaps"
PROMISES = sorted(
    name
    for name, promise in vars(contract).items()
    if name.startswith("test_") and set(inspect.signature(promise).parameters) == {"world"}
)


def run(test: Callable[[SimKube, SimApi], Coroutine[Any, Any, None]], seed: int = 1) -> SimLoop:
    """Run a test on virtual time."""
    loop = SimLoop(seed)
    rng = Random(seed)  # noqa: S311  # a simulation
    kube = SimKube(loop, SimClock(loop), rng)
    try:
        loop.run_until_complete(test(kube, SimApi(kube, loop.main, rng, delay_s=0.02)))
    finally:
        loop.close()
    assert loop.errors == []
    return loop


@pytest.mark.parametrize("name", PROMISES)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_simulated_server_keeps_the_promises_of_the_contract(name: str, seed: int) -> None:
    async def test(_: SimKube, api: SimApi) -> None:
        await getattr(contract, name)(contract.World(api, "ns"))

    run(test, seed)


def test_the_contract_is_there() -> None:
    assert len(PROMISES) >= 10


def a_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


def test_a_lost_answer_is_ambiguous_and_the_object_is_there() -> None:
    async def test(kube: SimKube, api: SimApi) -> None:
        api.lose_replies = 1
        with pytest.raises(AmbiguousError):
            await api.create(MAPS, a_map("one"))
        assert [found["metadata"]["name"] for found in kube.objects(MAPS)] == ["one"]

    assert run(test).time() > 10


def test_a_busy_server_says_when_to_come_again_and_does_nothing() -> None:
    async def test(kube: SimKube, api: SimApi) -> None:
        kube.weather = Weather(busy=1.0)
        with pytest.raises(TransientError) as caught:
            await api.create(MAPS, a_map("one"))
        assert not isinstance(caught.value, AmbiguousError)
        assert caught.value.retry_after_s == 1.0
        assert kube.objects(MAPS) == []
        assert kube.refusals == {"busy": 1}

    run(test)


def test_a_failing_server_may_have_done_it() -> None:
    async def test(kube: SimKube, api: SimApi) -> None:
        kube.weather = Weather(failing=0.5)
        landed = []
        for number in range(40):
            try:
                await api.create(MAPS, a_map(f"m{number}"))
            except AmbiguousError:
                landed.append(bool([one for one in kube.objects(MAPS) if one["metadata"]["name"] == f"m{number}"]))
        assert set(landed) == {True, False}

    run(test)


def test_conflicts_come_to_writes_that_name_a_version_and_to_no_others() -> None:
    async def test(kube: SimKube, api: SimApi) -> None:
        await api.create(MAPS, a_map("one"))
        kube.weather = Weather(conflicting=1.0)
        await api.patch(f"{MAPS}/one", {"data": {"a": "1"}})
        version = kube.object(f"{MAPS}/one")["metadata"]["resourceVersion"]
        with pytest.raises(RefusedError) as caught:
            await api.patch(f"{MAPS}/one", {"metadata": {"resourceVersion": version}, "data": {"a": "2"}})
        assert caught.value.is_conflict
        found = kube.object(f"{MAPS}/one")
        assert (found["data"], list(found["metadata"]["annotations"])) == ({"a": "1"}, [OTHERS])
        assert found["metadata"]["resourceVersion"] != version

    run(test)


def test_a_watch_that_lags_breaks_and_expires_ends_with_what_is_there() -> None:
    async def test(kube: SimKube, api: SimApi) -> None:
        mirror: Mirror[ConfigMap] = Mirror()
        reflection = api.reflect("/api/v1/configmaps", ConfigMap, mirror)
        task = api.loop.create_task(reflection.run())
        for number in range(60):
            kube.put(MAPS, a_map(f"m{number % 7}", at=str(number)))
            if number % 5 == 4:
                kube.confirm(f"{MAPS}/m{number % 7}")
            if number % 20 == 10:
                api.expire_watches()
            if number % 20 == 15:
                api.cut(0.3)
            await asyncio.sleep(0.03)
        await asyncio.sleep(5)
        assert sorted(mirror.objects) == sorted(found["metadata"]["name"] for found in kube.objects(MAPS))
        assert reflection.lists >= 2
        assert reflection.errors > 0
        task.cancel()

    for seed in range(4):
        run(test, seed)


def test_a_dead_process_does_nothing_more() -> None:
    async def test(kube: SimKube, api: SimApi) -> None:
        api.loop.call_later(0.001, api.sever)
        creating = api.loop.create_task(api.create(MAPS, a_map("one")))
        await asyncio.sleep(1)
        assert kube.objects(MAPS) == []
        creating.cancel()
        with pytest.raises(FatalError):
            await api.create(MAPS, a_map("two"))

    run(test)
