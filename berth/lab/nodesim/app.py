"""Wiring of the simulated cluster: read the file, compare with what earlier runs published, restore pods, serve."""

import asyncio

import msgspec

from berth.core.cluster.domains import leaving
from berth.core.cluster.node_packing import SWITCHES, pack_health, pack_nodes, unpack_nodes
from berth.formats.ascend.pod_annotations import SHARE_LABEL
from berth.formats.clusters.topology_file import Cluster, TopologyError, parse_cluster
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.kube.app import play
from berth.lab.nodesim.loop import Loop
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.lab.nodesim.sim_nodes import SimNodes
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError
from berth.runtime.inboxes import CALLERS
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, body_of, decode, open_envelope
from berth.schemas.facts import HealthSeen, JobSeen, NodesSeen, PodPhase, PodsSeen, TopologySeen
from berth.schemas.placement import Share
from berth.schemas.subjects import StreamName

_LIVE = frozenset({PodPhase.PENDING, PodPhase.RUNNING, PodPhase.TERMINATING})


async def serve(
    bus: Bus, clock: Clock, config: NodesimConfig, instruments: Instruments[NodesimMetrics], stop: asyncio.Event
) -> None:
    """Be a simulated cluster until ``stop`` is set.

    Raises:
        FatalError: The topology file cannot be read or does not describe a cluster.
        RefusedError: The API server rejects the registration of nodes.
        TransientError: The bus did not answer at the start.
    """
    cluster = read_cluster(config)
    if config.kube is not None:
        async with await KubeApi.connect(
            config.kube, clock=clock, user_agent="berth-nodesim", log=instruments.log
        ) as api:
            return await play(api, bus, clock, config, cluster, instruments, stop)
    sim_nodes = SimNodes(cluster, start_ms=clock.now_ms())
    loop = Loop(bus, clock, config, sim_nodes, instruments)
    await bus.ensure_streams(replicas=config.bus.replicas, waits_for=config.bus.waits_for)
    await _publish_changed_nodes(bus, clock, config, sim_nodes, loop)
    await _restore_pods(bus, config, loop, instruments.log)
    await loop.outbox.flush()
    served = [
        await bus.serve(bus.subjects.sim(verb), handler, callers=CALLERS["nodesim"])
        for verb, handler in (
            ("bind", loop.bind),
            ("evict", loop.evict),
            ("counts", loop.counts),
            ("break", loop.break_node),
        )
    ]
    instruments.log.info(
        "cluster ready", nodes=len(sim_nodes.nodes), domains=len(sim_nodes.domains), faults=len(cluster.faults)
    )
    instruments.readiness.ready()
    try:
        await loop.run(stop)
    finally:
        for handler in served:
            await handler.stop()


def read_cluster(config: NodesimConfig) -> Cluster:
    """Cluster that the settings name.

    Raises:
        FatalError: Its file cannot be read, or does not describe a cluster.
    """
    try:
        return parse_cluster(config.topology_file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"cannot read {config.topology_file}: {error}") from error
    except TopologyError as error:
        raise FatalError(f"{config.topology_file}: {error}") from error


async def _publish_changed_nodes(
    bus: Bus, clock: Clock, config: NodesimConfig, sim_nodes: SimNodes, loop: Loop
) -> None:
    """Publish what differs from the published facts: first where nodes have left, then the rest."""
    subjects = bus.subjects
    await bus.wait_mirror(
        StreamName.LATEST, at_least=(await bus.state(StreamName.FACTS)).last_seq, timeout_s=config.mirror_wait_s
    )
    published: dict[str, NodesSeen | HealthSeen] = {}
    old: dict[str, NodesSeen] = {}
    for stored in await bus.read(StreamName.LATEST, filters=(subjects.facts("node"), subjects.facts("health"))):
        message = _known(stored.data)
        if message is not None:
            published[stored.subject] = message
        if isinstance(message, NodesSeen):
            old[message.domain] = message
    now_ms = clock.now_ms()
    names = {domain: [node.name for node in unpack_nodes(message)] for domain, message in old.items()}
    for domain, stay in leaving(names, sim_nodes.domains).items():
        kept = set(stay)
        rest = [node for node in unpack_nodes(old[domain]) if node.name in kept]
        loop.outbox.put(subjects.fact_node(domain), pack_nodes(domain, rest, at_ms=now_ms))
        if domain not in sim_nodes.domains:
            loop.outbox.put(subjects.fact_health(domain), pack_health(domain, [], at_ms=now_ms))
        published.pop(subjects.fact_node(domain), None)
    await loop.outbox.flush()
    loop.publish_nodes(list(sim_nodes.domains), published)
    switches = sim_nodes.switches(now_ms)
    before = await bus.last(StreamName.LATEST, subjects.fact_topology(SWITCHES))
    if before is None or not _is_published(before.data, switches):
        loop.outbox.put(subjects.fact_topology(SWITCHES), switches)
    await loop.outbox.flush()


def _is_published(data: bytes, switches: TopologySeen) -> bool:
    """Whether a fact has the same switches; one that cannot be read has not, and is overwritten."""
    try:
        return msgspec.structs.replace(decode(data, TopologySeen), at_ms=switches.at_ms) == switches
    except DecodeError:
        return False


def _known(data: bytes) -> NodesSeen | HealthSeen | None:
    """A node or health fact; None for bytes that are neither, which are then overwritten."""
    try:
        envelope = open_envelope(data)
        if envelope.kind == HealthSeen.KIND:
            return body_of(envelope, HealthSeen)
        return body_of(envelope, NodesSeen)
    except DecodeError:
        return None


async def _restore_pods(bus: Bus, config: NodesimConfig, loop: Loop, log: Logger) -> None:
    """Take up the pods that earlier runs left running."""
    await bus.wait_mirror(
        StreamName.LATEST, at_least=(await bus.state(StreamName.FACTS)).last_seq, timeout_s=config.mirror_wait_s
    )
    for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("pod"),)):
        try:
            seen = decode(stored.data, PodsSeen)
        except DecodeError as error:
            log.warning("pod fact unreadable", subject=stored.subject, reason=error.reason)
            continue
        if seen.foreign or not any(phase in _LIVE for phase in seen.phase):
            continue
        run_ms, share = await _declared(bus, seen)
        loop.restore(seen, run_ms=run_ms, share=share)


async def _declared(bus: Bus, seen: PodsSeen) -> tuple[int, Share | None]:
    """Run time and quota that the gang's job declared; 0 and None when the job is no longer known."""
    stored = await bus.last(StreamName.LATEST, bus.subjects.fact_job(seen.namespace, seen.gang))
    try:
        job = decode(stored.data, JobSeen) if stored is not None else None
    except DecodeError:
        job = None
    if job is None or job.uid != seen.uid or job.request is None:
        return 0, None
    return job.request.run_ms, _share(job.request.labels)


def _share(labels: dict[str, str]) -> Share | None:
    """Quota of a soft-share job.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """
    aicore, hbm, policy = (labels.get(SHARE_LABEL + key, "") for key in ("aicoreQuota", "hbmQuota", "policy"))
    if not (aicore.isdigit() and hbm.isdigit() and policy):
        return None
    return Share(aicore=int(aicore), hbm_mib=int(hbm), policy=policy)
