"""A timeline played against a cell: what users and controllers did is done, what scheduler and kubelets did is awaited.

Whatever a user or controller did waits for all that scheduler and kubelets had done before, since it may be an answer
to it. After that the recorded pause passes, by the speed. A seed adds delays of its own, lets the watches of some kinds
lag behind those of others, and lets Volcano's controllers be away for a while, as others go on. Where the recording was
quiet, and at the end, pods and PodGroups must be as recorded. Which of equal pods of one owner runs is left open.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from tests.sim.scene import Scene
from tests.support.kube_rules import Place
from tests.timelines.objects import UNPLAYED, Played, Recorded
from tests.timelines.recording import Line, Timeline, Tree

CLUSTER: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 8, name: "b-{index}"}
"""
AGENTS: Final[dict[str, Any]] = {"controllers": [], "admit_s": 0.1, "start_s": 0.5}
"""Agents of nodes alone, with the delays of the recordings."""
SCHEDULER: Final = "volcano"
WAIT_S: Final = 10.0
"""What the recording shows must happen within this time."""
_REST_S: Final = 40.0
"""Time after the end until nothing is left."""
_LOOK_S: Final = 0.02
_QUIET_MS: Final = 1_000
"""Pods and PodGroups that did not change for so long are as scheduler and controllers want them."""
_JITTER_S: Final = 0.05
_CONTROLLERS: Final = "vc-controller-manager"
_AWAY_SHARE: Final = 0.1
"""So often controllers are away when they are to do something ..."""
_AWAY_MAX_S: Final = 4.0
"""... for at most so long."""
_LAGS_S: Final = (0.0, 0.0, 0.05, 0.3, 1.0)
_LAGGING: Final = ("pods", "podgroups", "jobs", "replicasets", "deployments", "statefulsets")
_GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1"
_MADE: Final = {"Pod": "pods", "PodGroup": "podgroups"}
_NOT_ADMITTED: Final = frozenset({"", "Pending"})
_ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})
_PHASES_AFTER: Final = {"Running": ("Running", "Succeeded", "Failed"), "Succeeded": ("Succeeded",)}


class _Owed(NamedTuple):
    """What scheduler and kubelets owe: ``number`` pods of an owner, or an object, ``bound``, ``gone`` or in a phase."""

    line: Line
    wanted: str
    owner: str = ""
    number: int = 0


class Player:
    """Plays one timeline once.

    Args:
        timeline: The recording.
        speed: How many times as fast as recorded users and controllers act.
        seed: Of delays and of the order of events; 0 adds no delays.
        controllers: Those of Volcano's that nodesim plays; what the recorded ones did is left out then.
    """

    def __init__(self, timeline: Timeline, *, speed: float, seed: int, controllers: Sequence[str] = ()) -> None:
        self._timeline = timeline
        self._speed = speed
        self._seed = seed
        self._rng = Random(f"{seed} {timeline.name}")  # noqa: S311  # a simulation
        agents = {**AGENTS, "controllers": list(controllers), "scheduler_names": [SCHEDULER]}
        self._scene = Scene(CLUSTER, seed=seed + 1, agents=agents, gangs={"scheduler_names": (SCHEDULER,)})
        self._is_by_nodesim = bool(controllers)
        self._made: Counter[tuple[str, str]] = Counter()
        """How often a pod or PodGroup of each name was made."""
        self._recorded = Recorded()
        self._played = Played(self._scene.kube)
        self._found: dict[str, None] = {}
        self._owed: list[_Owed] = []
        self._late: deque[tuple[Line, list[_Owed]]] = deque()
        """What controllers that are away are to do, each with what it may be an answer to."""
        self._back_s = 0.0
        self._in_vain: set[tuple[str, str]] = set()
        """What was awaited in vain once: it is not awaited again."""
        self._see = self._scene.kube.on_change
        self._scene.kube.on_change = self._changed

    def play(self) -> list[str]:
        """Play it, and return what differs from the recording, each once, in order."""
        if self._seed:
            self._scene.kube.lags = {plural: self._rng.choice(_LAGS_S) for plural in _LAGGING}
        self._scene.play(self._go)
        return list(self._found)

    async def _go(self, scene: Scene) -> None:
        scene.put("/api/v1/namespaces", {"metadata": {"name": self._timeline.header.scenario}})
        for made in self._timeline.header.start:
            self._played.start(made)
        before_ms = changed_ms = 0
        for line in self._timeline.lines:
            gap_s, before_ms = max(line.t - before_ms, 0) / 1000 / self._speed, max(line.t, before_ms)
            if line.mark or line.kind in UNPLAYED:
                await self._pass(gap_s)
                if line.mark and line.t - changed_ms >= _QUIET_MS:
                    await self._compare(line.mark)
                continue
            if line.kind in {"Pod", "PodGroup"}:
                changed_ms = line.t
            if self._is_by_nodesim and line.actor == _CONTROLLERS:
                await scene.after(gap_s)
                self._recorded.follow(line)
            elif _is_awaited(line):
                self._owe(line)
            elif line.actor == _CONTROLLERS and (self._late or self._are_away()):
                self._recorded.follow(line)
                self._late.append((line, list(self._owed)))
            else:
                await self._do(line, gap_s)
        await self._compare("the end")
        self._compare_made()
        await self._until(lambda: not self._left(), _REST_S)
        for one in self._left():
            self._note(f"at the end: {one}")

    # What users and controllers did.

    async def _do(self, line: Line, gap_s: float) -> None:
        if not line.actor.startswith("kube-controller-manager/"):
            await self._drain()
        await self._await_owed()
        await self._pass(self._later_s(gap_s))
        self._recorded.follow(line)
        await self._play(line)
        if line.verb == "deleted":
            self._owe(line)

    async def _play(self, line: Line) -> None:
        if self._is_by_nodesim and line.verb != "added":
            self._played.adopt(line)
        if line.verb == "added":
            name = self._played.here(line.name).rpartition("/")[2]
            if not await self._until(lambda: line.kind != "Pod" or name not in self._pods()):
                self._note(f"Pod {name} is not made: another one has its name")
                return
            self._played.add(line)
        elif line.verb == "modified":
            self._played.change(line)
        else:
            self._played.remove(line)

    def _are_away(self) -> bool:
        """Whether Volcano's controllers are away from now on, by the seed."""
        if not self._seed or self._rng.random() >= _AWAY_SHARE:
            return False
        self._back_s = asyncio.get_running_loop().time() + self._rng.uniform(0.5, _AWAY_MAX_S)
        return True

    async def _pass(self, seconds: float) -> None:
        """Let time pass, in which controllers that are back do what they left."""
        clock_s = asyncio.get_running_loop().time
        until_s = clock_s() + seconds
        while self._late and max(clock_s(), self._back_s) < until_s:
            line, owed = self._late[0]
            await self._scene.after(max(self._back_s - clock_s(), 0.0))
            if all(map(self._is_fulfilled, owed)) or clock_s() >= self._back_s + WAIT_S:
                self._late.popleft()
                await self._play(line)
            else:
                await self._scene.after(_LOOK_S)
        await self._scene.after(max(until_s - clock_s(), 0.0))

    async def _drain(self) -> None:
        """Wait until controllers have done all that they left."""
        while self._late:
            await self._pass(_LOOK_S)

    def _later_s(self, gap_s: float) -> float:
        """A pause by the seed: half to twice as long, and a little more."""
        return gap_s * 2 ** self._rng.uniform(-1, 1) + self._rng.random() * _JITTER_S if self._seed else gap_s

    # What scheduler and kubelets did.

    def _owe(self, line: Line) -> None:
        """Follow a line, and note what it means if that is awaited."""
        self._recorded.follow(line)
        wanted = _meaning(line)
        if wanted == "bound" or wanted in _PHASES_AFTER:
            owner = _owner_of(self._recorded.now[line.uid])
            count = _number(self._recorded.of_kind("Pod"), owner, wanted)
            self._owed.append(_Owed(line, wanted, self._played.here(owner), count))
        elif wanted:
            self._owed.append(_Owed(line, wanted))

    async def _await_owed(self) -> None:
        owed, self._owed = self._owed, []
        for one in owed:
            what = (one.owner or one.line.uid, one.wanted)
            if what not in self._in_vain and not await self._until(partial(self._is_fulfilled, one)):
                self._in_vain.add(what)
                self._note(f"{one.line.kind} {one.line.name.rpartition('/')[2]} is not {one.wanted}")

    def _is_fulfilled(self, owed: _Owed) -> bool:
        if owed.owner:
            return _number(self._pods().values(), owed.owner, owed.wanted) >= owed.number
        found = self._played.find(owed.line.uid)
        return found is None or (owed.wanted == "admitted" and _phase_of(found) not in _NOT_ADMITTED)

    async def _until(self, is_so: Callable[[], bool], seconds: float = WAIT_S) -> bool:
        """Wait until something is so; False if it is not so in time."""
        for _ in range(round(seconds / _LOOK_S)):
            if is_so():
                return True
            await self._pass(_LOOK_S)
        return False

    # What there is.

    def _pods(self) -> dict[str, Tree]:
        found = self._scene.kube.objects(f"/api/v1/namespaces/{self._timeline.header.scenario}/pods")
        return {pod["metadata"]["name"]: pod for pod in found}

    async def _compare(self, when: str) -> None:
        """See that pods and PodGroups become as they are recorded."""
        await self._drain()
        await self._await_owed()
        await self._until(lambda: not self._differences())
        for one in self._differences():
            self._note(f"before {when}: {one}")

    def _compare_made(self) -> None:
        """See that pods and PodGroups were made as often as in the recording."""
        lines = [line for line in self._timeline.lines if line.verb == "added" and line.kind in _MADE]
        wanted = Counter((_MADE[line.kind], self._played.here(line.name)) for line in lines)
        for plural, name in sorted({*wanted, *self._made}):
            count, found = wanted[plural, name], self._made[plural, name]
            if count != found:
                self._note(f"at the end: {plural} {name} was made {found} times instead of {count}")

    def _differences(self) -> list[str]:
        lines = []
        wanted, found = _states(self._recorded.of_kind("Pod")), _states(self._pods().values())
        names = {self._played.here(owner): owner for owner in wanted}
        for owner in sorted({*names, *found}):
            recorded, here = wanted.get(names.get(owner, ""), Counter()), found.get(owner, Counter())
            if recorded != here:
                name = names.get(owner, owner).partition(" ")[2]
                lines.append(f"pods of {name}: {_told(here)} instead of {_told(recorded)}")
        phases = {group["metadata"]["name"]: _phase_of(group) for group in self._recorded.of_kind("PodGroup")}
        groups = self._scene.kube.objects(f"{_GROUPS}/namespaces/{self._timeline.header.scenario}/podgroups")
        now = {group["metadata"]["name"]: _phase_of(group) for group in groups}
        for name, phase in sorted(phases.items()):
            is_here = now.pop(self._played.here(name), "gone")
            if is_here != phase:
                lines.append(f"PodGroup {name}: {is_here} instead of {phase}")
        return [*lines, *(f"PodGroup {name}: {phase} instead of gone" for name, phase in now.items())]

    def _left(self) -> list[str]:
        """What the cell still knows of jobs that are over."""
        phases = self._scene.phases()
        lines = [f"{holding.name} holds chips" for holding in self._scene._observer.state.fold.holdings.values()]
        return lines + [f"job {name} is {phase}" for name, phase in phases.items() if phase not in _ENDED]

    def _changed(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        """See a change: no pod is deleted that the recording does not delete."""
        if self._see is not None:
            self._see(place, old, new)
        if old is None and place.plural in _MADE.values():
            self._made[place.plural, f"{place.namespace}/{place.name}"] += 1
        if place.plural != "pods" or old is None or self._is_by_nodesim or "deletionTimestamp" in old["metadata"]:
            return
        is_deleted = new is None or "deletionTimestamp" in new["metadata"]
        if is_deleted and old["metadata"]["uid"] not in self._played.asked:
            self._note(f"Pod {place.name} is deleted, and nobody of the recording does it")

    def _note(self, what: str) -> None:
        self._found.setdefault(what)


def _is_awaited(line: Line) -> bool:
    """Whether the cell does what a line says; containers that fail are those of the recording."""
    is_failure = _phase_of(line.patch) == "Failed"
    return line.actor.startswith("scheduler/") or (line.actor == "kubelet" and not is_failure)


def _meaning(line: Line) -> str:
    """What a line means for pods and PodGroups; empty for nothing that is awaited."""
    phase = _phase_of(line.patch)
    if line.verb == "deleted":
        return "gone" if line.kind == "Pod" else ""
    if line.via == "create binding":
        return "bound"
    if line.kind == "PodGroup":
        return "admitted" if phase not in _NOT_ADMITTED else ""
    return phase if line.kind == "Pod" and phase in _PHASES_AFTER else ""


def _number(pods: Iterable[Tree], owner: str, wanted: str) -> int:
    """Pods of an owner that are bound, or in a phase or beyond it."""
    own = [pod for pod in pods if _owner_of(pod) == owner]
    if wanted == "bound":
        return sum(bool(pod["spec"].get("nodeName")) for pod in own)
    return sum(_phase_of(pod) in _PHASES_AFTER[wanted] for pod in own)


def _owner_of(pod: Tree) -> str:
    """Controller of a pod: uid, kind and name; of a pod without one its own name."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner['uid']} {owner['kind']} {owner['name']}"
    return f"pod {pod['metadata']['name']}"


def _states(pods: Iterable[Tree]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for pod in pods:
        found.setdefault(_owner_of(pod), Counter())[_state_of(pod)] += 1
    return found


def _state_of(pod: Tree) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "ending"
    phase = _phase_of(pod)
    return phase if phase != "Pending" else "bound" if pod["spec"].get("nodeName") else "waiting"


def _phase_of(found: Tree) -> str:
    return str((found.get("status") or {}).get("phase") or "")


def _told(states: Counter[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
