"""Wiring of the inventory: read the facts of earlier runs, list the cluster, then publish differences."""

import asyncio
from functools import partial
from typing import Final

from berth.formats.kubernetes.objects import PODGROUP_VERSION, ConfigMap, Node, Pod
from berth.formats.kubernetes.policies import DisruptionBudget, PriorityClass, Queue
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.instruments import Instruments
from berth.runtime.keys.mark_keys import marks_of
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.port import Api, Reflection
from berth.runtime.waits import all_set
from berth.schemas.subjects import StreamName
from berth.services.inventory.bus_facts import Intake, follow_facts, follow_statuses, restore, watch_ledger
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.constraint_facts import CAPACITIES
from berth.services.inventory.loop import Loop
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.nodes.leaf_switches import PATH, SELECTOR
from berth.services.inventory.podgroups.decision_feed import follow_decisions
from berth.services.inventory.watching.reflections import Taking, reflect_groups, reflect_if_allowed, serves

CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
QUEUES: Final = f"/apis/{PODGROUP_VERSION}/queues"


async def serve(
    bus: Bus, clock: Clock, config: InventoryConfig, instruments: Instruments[InventoryMetrics], stop: asyncio.Event
) -> None:
    """Publish the state on the API server until ``stop`` is set.

    Raises:
        FatalError: As :func:`serve_on`, or no API server is reachable.
        TransientError: The bus did not answer at the start.
    """
    api = await KubeApi.connect(config.kube, clock=clock, user_agent="berth-inventory", log=instruments.log)
    instruments.metrics.watches.measure(api.silence_s)
    try:
        await serve_on(bus, api, clock, config, instruments, stop)
    finally:
        await api.close()


async def serve_on(
    bus: Bus,
    api: Api,
    clock: Clock,
    config: InventoryConfig,
    instruments: Instruments[InventoryMetrics],
    stop: asyncio.Event,
) -> None:
    """Tell what ``api`` shows until ``stop`` is set.

    Raises:
        ConfigError: The keys of pod marks cannot be read.
        TransientError: The bus did not answer at the start.
        ExceptionGroup: Holds a :class:`FatalError` when the history of facts broke; the next start begins again.
    """
    instruments.readiness.wait("nodes, pods and groups are listed")
    await bus.ensure_streams(replicas=config.bus.replicas, waits_for=config.bus.waits_for)
    marks = marks_of(config.marks_file, instruments.log)
    loop = Loop(bus, api, clock, config, instruments, marks=marks)
    intake = Intake(loop, instruments.log)
    facts = await bus.state(StreamName.FACTS)
    statuses = await bus.state(StreamName.STATUS)
    loop.note_ledger((await bus.state(StreamName.LEDGER)).created)
    await restore(bus, loop, intake, facts, instruments.log)
    followers = [follow_facts(bus, intake, facts)]
    follow_statuses(bus, intake, followers, after=statuses)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(intake.fail_on_gap(), name="watch for gaps")
            watching = group.create_task(watch_ledger(bus, loop.note_ledger), name="watch the ledger's stream")
            deciding = group.create_task(
                follow_decisions(bus, loop.policies.note_decisions, loop.policies.are_declared, instruments.log),
                name="follow decisions",
            )
            serving = group.create_task(_serve(api, config, loop, instruments, stop), name="serve")
            serving.add_done_callback(lambda _: intake.end())
            serving.add_done_callback(lambda _: (watching.cancel(), deciding.cancel()))
    finally:
        for follower in followers:
            await follower.stop()


async def _serve(
    api: Api, config: InventoryConfig, loop: Loop, instruments: Instruments[InventoryMetrics], stop: asyncio.Event
) -> None:
    """Reflect the cluster and work on it until ``stop`` is set."""
    nodes = api.reflect("/api/v1/nodes", Node, Taking(loop.replace_nodes, loop.change_nodes))
    always: list[Reflection] = [
        nodes,
        api.reflect("/api/v1/pods", Pod, Taking(loop.replace_pods, loop.change_pods)),
        api.reflect(PATH, ConfigMap, Taking(loop.replace_switches, loop.change_switches), params=SELECTOR),
    ]
    always += loop.constraints.reflections(
        api, has_capacities=await serves(api, config, CAPACITIES, stop, instruments.log)
    )
    groups_known, devices_known, classes_known, queues_known, budgets_known = (asyncio.Event() for _ in range(5))
    policies = loop.policies
    groups = Taking(loop.replace_groups, loop.change_groups)
    classes = Taking(policies.replace_classes, policies.change_classes)
    queues = Taking(policies.replace_queues, policies.change_queues)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one.run(), name="reflect") for one in always]
        tasks.append(
            group.create_task(
                reflect_groups(api, config, groups, groups_known, instruments.log), name="reflect PodGroups"
            )
        )
        allowed = partial(reflect_if_allowed, api, config, instruments.log)
        tasks.append(group.create_task(allowed(CLASSES, PriorityClass, classes, classes_known), name="reflect classes"))
        tasks.append(group.create_task(allowed(QUEUES, Queue, queues, queues_known), name="reflect queues"))
        if config.gangs.preempt:
            budgets = allowed(BUDGETS, DisruptionBudget, loop.budgets, budgets_known)
            tasks.append(group.create_task(budgets, name="reflect budgets"))
        else:
            budgets_known.set()
        tasks.append(group.create_task(loop.owner_watches.run(allowed), name="reflect owners"))
        reports = loop.devices.reflect(api, nodes.synced, devices_known)
        tasks.append(group.create_task(reports, name="reflect reports"))
        calls = group.create_task(loop.api_tasks.run(stop), name="calls")
        events = [
            groups_known,
            devices_known,
            classes_known,
            queues_known,
            budgets_known,
            *(one.synced for one in always),
        ]
        if await all_set(events, stop):
            instruments.readiness.ready()
            instruments.log.info("cluster listed", nodes=loop.nodes.count, bound_pods=len(loop.pods))
            await loop.run(stop)
        await calls
        for task in tasks:
            task.cancel()
