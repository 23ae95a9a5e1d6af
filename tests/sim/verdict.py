"""What must hold when a cell has come to rest, and whether it has."""

import asyncio
import re
from collections import Counter
from collections.abc import Container

from berth.core.errors import CoreError
from berth.core.explain.current_reasons import reason_of
from berth.core.explain.job_status import digest, status_of
from berth.core.scheduling.drained_gangs import DrainedGangs
from berth.core.state.cell import State
from berth.core.state.invariants import check
from berth.formats.ascend.pod_annotations import ATTEMPT, GROUP_NAME, JOB_UID
from berth.runtime.feeds import Feeds
from berth.schemas.chain import position_of
from berth.schemas.envelope import decode
from berth.schemas.refusal import LATE
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.fuzz.failure import Failure as FuzzFailure
from tests.fuzz.sleepers import see_nobody_sleeps
from tests.sim.errors import Failure
from tests.sim.middle import see_answered, see_refused
from tests.sim.process import Process
from tests.sim.queue_watch import charge_of
from tests.sim.queued_groups import see_admitted
from tests.sim.steady import AT_WORK
from tests.sim.users import BATCH_JOBS, PODS, REPLICA_SETS
from tests.sim.world import World
from tests.support.kube_rules import Tree
from tests.support.replays import entries_of, see_same
from tests.support.watch import summary

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
_STARTS_MAX = 10
_LOOKS_MAX = 3
_REASON_S = 2.0
_TASK = "volcano.sh/task-spec"
_SHORT = re.compile(r"\d+ of at least \d+ pods exists?")
"""Sentence of a gang of which pods are missing."""


def scored(world: World) -> set[tuple[str, str]]:
    """Jobs that wait and were scored, for whatever they were refused then."""
    found = ((key, status_of(world.observer.state, key, at_ms=0)) for key in world.observer.state.jobs)
    return {key for key, said in found if said is not None and said.refusal is not None and said.refusal.code != LATE}


def unrest(world: World, known: Container[tuple[str, str]] = ()) -> list[str]:
    """What a cell has still to do, in words.

    Args:
        world: The cell.
        known: Jobs that were scored once. Of several heavy jobs that wait and are tried again and again, one is always
            being scored.
    """
    observer = world.observer
    observer.catch_up()
    found: list[str] = ["the operator is at work"] if world.is_at_work else []
    # On a restored ledger nobody leads before the inventory knows all pods, which takes up to stranger_s.
    if not any(_leads(process) for process in world.cell.processes.values()):
        found.append("no dispatcher leads")
    for key in observer.state.jobs:
        status = status_of(observer.state, key, at_ms=0)
        if status is None or status.phase in AT_WORK:
            found.append(f"{key[1]} is {status.phase if status is not None else 'unknown'}")
        elif status.phase == "waiting" and status.refusal is None:
            found.append(f"{key[1]} waits and nobody says why")
        elif status.refusal is not None and status.refusal.code == LATE and key not in known:
            found.append(f"{key[1]} is not scored yet")
    return found


def is_led(world: World) -> bool:
    """Whether a dispatcher leads and the operator does nothing."""
    return not world.is_at_work and any(_leads(process) for process in world.cell.processes.values())


def _leads(process: Process) -> bool:
    registry = process.instruments.registry.collectors
    return not process.is_dead and registry.get_sample_value("berth_dispatcher_is_leader") == 1


async def see_rest(world: World) -> None:
    """See that everything is as it must be.

    Raises:
        Failure: Something is not.
    """
    observer = world.observer
    observer.catch_up()
    count = observer.count
    try:
        check(observer.state)
        see_same(entries_of(observer.facts, observer.records, position_of(observer.base)), observer.base)
        count["replay"] += 1
        now_ms = world.cell.clocks["bus"].now_ms()
        see_nobody_sleeps(observer.state.dump(observer.scheduler.dump()), now_ms)
        count["sleepers"] += 1
        world.middle.see_replayed()
        see_refused(observer)
        see_answered(observer)
    except FuzzFailure as failure:
        raise Failure(failure.kind, failure.details) from failure
    except (AssertionError, CoreError) as error:
        raise Failure(f"at rest: {type(error).__name__}", str(error)[:2000]) from error
    await _see_start(world)
    await _see_statuses(world)
    await _see_reasons(world)
    _see_chips(world)
    _see_pods(world)
    _see_held(world)
    see_admitted(world)


async def _started(world: World) -> tuple[dict[str, object], dict[str, object]]:
    """What a reader that starts now comes to, and what the observer knows after that."""
    started = State(keeps=True)
    feeds = Feeds(world.user, world.cell.clocks["bus"], started)
    await feeds.start()
    await feeds.stop()
    world.observer.catch_up()
    return summary(started), summary(world.observer.state)


async def _see_start(world: World) -> None:
    """A start from what is stored comes to the same state.

    Raises:
        Failure: It is not so.
    """
    found, wanted = await _started(world)
    for _ in range(_STARTS_MAX):
        if (found["facts"], found["head"]) == (wanted["facts"], wanted["head"]):
            break
        found, wanted = await _started(world)  # something was stored meanwhile, such as another try to bind a pod
    world.observer.count["starts"] += 1
    if found != wanted:
        names = [name for name in wanted if wanted[name] != found[name]]
        raise Failure(
            f"a start comes to another state: {', '.join(names)}",
            str({name: (found[name], wanted[name]) for name in names})[:2000],
        )


async def _see_reasons(world: World) -> None:
    """Each job that waits says why it does not fit now; a reason may be two seconds old.

    Raises:
        Failure: It is not so.
    """
    wrong = await _wrong_reasons(world)
    for _ in range(_LOOKS_MAX):
        if not wrong:
            return
        await asyncio.sleep(_REASON_S)
        now = await _wrong_reasons(world)
        wrong = {key: words for key, words in now.items() if key in wrong}
    raise Failure("a job says why it waited before", str(wrong)[:2000])


async def _wrong_reasons(world: World) -> dict[tuple[str, str], tuple[str, str]]:
    """Jobs whose reason is not that of now: what they say, and what would be right."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    told = await _told(world)
    world.observer.catch_up()
    state, scheduler = world.observer.state, world.observer.scheduler
    scorer, now_ms = scheduler.new_scorer(), world.cell.clocks["bus"].now_ms()
    drained, oracle = DrainedGangs(state, now_ms), world.observer.queues.now(state)
    for key, job in state.jobs.items():
        said, record = told.get(key), state.fold.gangs.get(job.uid)
        if said is None or said.refusal is None or record is None or record.refusal is None or job.request is None:
            continue
        if said.phase != "waiting" or record.phase != "waiting" or said.refusal.missing_shards:
            continue
        gang = drained.applied(scheduler.gang(job, job.request, record.attempt))
        right = reason_of(state, scorer, gang, said.refusal, at_ms=0).sentence
        world.observer.count["reasons"] += 1
        if right != said.sentence:
            found[key] = said.sentence, right
        elif oracle is not None and said.refusal.queue is not None:
            world.observer.count["reasons of queues"] += 1
            why = oracle.why(charge_of(job.request))
            if why is None or why.text not in said.sentence:
                found[key] = said.sentence, why.text if why is not None else "its queue lets it in"
    return found


async def _told(world: World) -> dict[tuple[str, str], JobStatus]:
    """Stored statuses."""
    found = [decode(message.data, JobStatus) for message in await world.user.read(StreamName.STATUS)]
    return {(said.namespace, said.name): said for said in found}


async def _see_statuses(world: World) -> None:
    """Each job has the status that the ledger gives it.

    Raises:
        Failure: It is not so.
    """
    state = world.observer.state
    told = await _told(world)
    for key, job in state.jobs.items():
        now = status_of(state, key, at_ms=0)
        if now is None or job.state == "tombstone":
            continue
        world.observer.count["statuses"] += 1
        if key not in told:
            raise Failure("a job has no status", f"{key}: {now}")
        if digest(told[key]) != digest(now):
            raise Failure("a status is not what the ledger says", f"{key}: {told[key]} instead of {now}")


def _see_chips(world: World) -> None:
    """No chip is held for nobody: each attempt that holds chips has a pod that lives.

    Raises:
        Failure: It is not so.
    """
    live: Counter[tuple[str, int]] = Counter()
    holdings = world.observer.state.fold.holdings
    for pod in world.cell.kube.objects(PODS):
        annotations, adopted = pod["metadata"].get("annotations") or {}, (pod["metadata"]["uid"], 0)
        if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            continue
        if adopted in holdings:  # a stranger that came late runs on
            live[adopted] += 1
        elif JOB_UID in annotations:
            live[annotations[JOB_UID], int(annotations[ATTEMPT])] += 1
    for key, holding in holdings.items():
        world.observer.count["holdings at rest"] += 1
        if not live[key]:
            raise Failure("chips are held for nobody", f"{holding.name} {key}")
    for key in live:
        if key not in holdings:
            raise Failure("a pod lives and holds nothing", f"{key}")


def _see_pods(world: World) -> None:
    """A pod that waits has a job that says why, and PodGroups are as their pods are.

    Raises:
        Failure: It is not so.
    """
    count, kube = world.observer.count, world.cell.kube
    groups = {group["metadata"]["name"]: group for group in kube.objects(GROUPS)}
    phases: dict[str, list[str]] = {}
    for pod in kube.objects(PODS):
        count["pods at rest"] += 1
        phase = (pod.get("status") or {}).get("phase", "")
        annotations = pod["metadata"].get("annotations") or {}
        phases.setdefault(annotations.get(GROUP_NAME, ""), []).append(phase)
        if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
            _see_reason(pod, groups.get(annotations.get(GROUP_NAME, "")))
    for group in kube.objects(GROUPS):
        found = phases.get(group["metadata"]["name"], [])
        status = group.get("status") or {}
        said, collected = status.get("phase", ""), status.get("succeeded", 0) + status.get("failed", 0)
        if not found:
            continue
        count["PodGroups"] += 1
        runs = collected or any(phase in {"Running", "Succeeded", "Failed"} for phase in found)
        if said == "Running" and not runs:
            raise Failure("a PodGroup runs and its pods do not", f"{group['metadata']['name']}: {said}, {found}")
        if said in {"", "Pending", "Inqueue"} and set(found) == {"Running"}:
            raise Failure("the pods of a PodGroup run and it does not", f"{group['metadata']['name']}: {said}, {found}")


def _see_held(world: World) -> None:
    """No pod waits for others although its PodGroup has as many as it needs: those that run and have ended count.

    Raises:
        Failure: One does.
    """
    pods = [pod for pod in world.cell.kube.objects(PODS) if "deletionTimestamp" not in pod["metadata"]]
    for group in world.cell.kube.objects(GROUPS):
        name, spec = group["metadata"]["name"], group.get("spec") or {}
        members = [pod for pod in pods if (pod["metadata"].get("annotations") or {}).get(GROUP_NAME) == name]
        members = [pod for pod in members if (pod.get("status") or {}).get("phase") != "Failed"]
        tasks = Counter((pod["metadata"].get("annotations") or {}).get(_TASK, "") for pod in members)
        is_whole = len(members) >= max(spec.get("minMember") or 0, _size(world, group)) and all(
            tasks[task] >= least for task, least in (spec.get("minTaskMember") or {}).items()
        )
        world.observer.count["PodGroups with all pods"] += is_whole
        for pod in members if is_whole else ():
            said = _unscheduled(pod).get("message", "")
            if _SHORT.fullmatch(said):
                raise Failure("a pod waits for pods that are there", f"{pod['metadata']['name']} of {name}: {said}")


def _size(world: World, group: Tree) -> int:
    """Pods that the ReplicaSet or Job of a PodGroup wants, which may all have to start together; 0 without one."""
    for owner in group["metadata"].get("ownerReferences") or ():
        plurals = {("ReplicaSet", "apps/v1"): REPLICA_SETS, ("Job", "batch/v1"): BATCH_JOBS}
        path = plurals.get((owner["kind"], owner["apiVersion"]))
        found = [one for one in world.cell.kube.objects(path) if one["metadata"]["uid"] == owner["uid"]] if path else []
        for one in found:
            return int(one["spec"].get("replicas") or one["spec"].get("completions") or 0)
    return 0


def _unscheduled(pod: Tree) -> Tree:
    """Why a pod has no node, as its condition says it; empty without such a condition."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    found = (one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False")
    return {} if pod["spec"].get("nodeName") else next(found, {})


def _see_reason(pod: Tree, group: Tree | None) -> None:
    """A pod that waits says why, or its PodGroup does.

    Raises:
        Failure: Neither does.
    """
    of_pod = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    of_group = {one["type"]: one for one in ((group or {}).get("status") or {}).get("conditions") or ()}
    scheduled, unschedulable = of_pod.get("PodScheduled", {}), of_group.get("Unschedulable", {})
    is_told = scheduled.get("status") == "False" and scheduled.get("message")
    if not is_told and not (unschedulable.get("status") == "True" and unschedulable.get("message")):
        raise Failure("a pod waits and nothing says why", f"{pod['metadata']['name']}: {of_pod}, {of_group}")
