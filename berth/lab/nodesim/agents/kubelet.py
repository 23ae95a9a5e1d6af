"""Agents of one simulated node: kubelet, device plug-in and NodeD. Pure: observations and times in, effects out.

Kubelet admits the pods that were bound since its last step in an order of its own, picks ids of chips without regard to
topology, and calls the device plug-in, which guesses the pod. The scheduler is not trusted: accounts of chips, CPU and
memory are independent of the annotations.

Source: docs/reference/kubernetes.md, "Life of a pod" and "Life of a pod with reported lists".
"""

from random import Random
from typing import Final

from berth.formats.ascend import device_info, node_info
from berth.formats.ascend.pod_annotations import ASCEND_REAL, KLT_DEV
from berth.lab.nodesim.accounts import Accounts, ResourceUse
from berth.lab.nodesim.agents.device_plugin import Allocated, AllocateError, DevicePlugin, consumption, shares_of
from berth.lab.nodesim.agents.device_report import Place, device_data, device_list, node_data, other_release
from berth.lab.nodesim.agents.effects import (
    AgentEffect,
    AgentRules,
    Alarm,
    Annotate,
    Confirm,
    Report,
    SetNode,
    SetPresence,
    SetStatus,
    Tally,
)
from berth.lab.nodesim.agents.hosted_pods import NEVER, HostedPod, Step
from berth.lab.nodesim.agents.pod_statuses import (
    UNEXPECTED_ADMISSION,
    PodAddresses,
    failed,
    refused,
    running,
    succeeded,
)
from berth.lab.nodesim.agents.pods import (
    AgentPod,
    chip_ids,
    chips_asked,
    cpu_and_memory,
    is_consumed,
    other_chips,
    runs_for_ms,
    share_of,
    started_ms,
)
from berth.lab.nodesim.agents.registration import base_device_infos, node_status
from berth.lab.nodesim.breakage import OF_CHIPS, Breakages, Broken
from berth.schemas.nodes import NodeDescription
from berth.schemas.units import UnixMs

_OF_PLUGIN: Final = OF_CHIPS | {"switch"}


class NodeAgents:
    """Agents of one node.

    Args:
        node: The node.
        place: Its place in a SuperPoD.
        rules: Their behaviour.
        accounts: Accounts of all nodes.
        tally: Counters of all nodes.
        addresses: Addresses of all pods.
        rng: Source of kubelet's random choices.
    """

    def __init__(
        self,
        node: NodeDescription,
        place: Place,
        *,
        rules: AgentRules,
        accounts: Accounts,
        tally: Tally,
        addresses: PodAddresses,
        rng: Random,
    ) -> None:
        self.node = node
        self.place = place
        self.breakages = Breakages()
        self.infos = base_device_infos(node, place, reversed_ids=rules.reversed_ids)
        self._rules = rules
        self._report_release = other_release(node.name) if rules.other_releases else "this"
        self._accounts = accounts
        self._tally = tally
        self._addresses = addresses
        self._rng = rng
        self._plugin = DevicePlugin(node, self.infos, place, preset_virtual_devices=rules.preset_virtual_devices)
        self._hosted: dict[str, HostedPod] = {}
        self._stepped_ms: UnixMs = -1
        self._is_there = True
        self._reported_status: tuple[int, bool] = (node.chips.bit_count(), node.ready)
        self._reported_device: tuple[object, ...] = ()
        self._reported_device_ms: UnixMs = -NEVER
        self._reported_node: tuple[object, ...] | None = None

    @property
    def pods_live(self) -> int:
        """Number of pods that use resources of the node."""
        return sum(1 for item in self._hosted.values() if item.step in {Step.ADMITTED, Step.RUNNING})

    @property
    def used(self) -> int:
        """Bitmap of the chips that are mounted."""
        mask = 0
        for item in self._hosted.values():
            mask |= item.mask if item.step in {Step.ADMITTED, Step.RUNNING} else 0
        return mask

    @property
    def repeats_ms(self) -> UnixMs:
        """Time at which the device plug-in repeats its report."""
        return self._reported_device_ms + self._rules.unchanged_ms if self.node.resource else NEVER

    def mounted(self, uid: str) -> tuple[int, ...]:
        """Real chips of a pod; empty for an unknown pod or one without chips."""
        found = self._hosted.get(uid)
        return found.chips if found is not None else ()

    def see(self, pod: AgentPod, now_ms: UnixMs) -> None:
        """Take the current state of a pod of the node."""
        item = self._hosted.get(pod.metadata.uid)
        if item is None:
            item = self._hosted[pod.metadata.uid] = self._new(pod, now_ms)
        item.pod = pod
        if pod.is_over and item.step is not Step.OVER:
            self._release(item)
        if pod.is_leaving and item.leaves_ms is None:
            waits = item.step in {Step.ADMITTED, Step.RUNNING}
            item.leaves_ms = now_ms + self._rules.terminating_ms if waits else now_ms

    def gone(self, uid: str) -> None:
        """Take the deletion of a pod."""
        item = self._hosted.pop(uid, None)
        if item is not None:
            self._release(item)
        self._plugin.forget(uid)
        self._addresses.release(uid)

    def next_due_ms(self, now_ms: UnixMs) -> UnixMs | None:
        """Time of the next :meth:`step` with effects; None for never."""
        turn = self.breakages.next_turn_ms(self._stepped_ms)
        if self._is_dead(self.breakages.at(now_ms)):
            return turn
        dues = [item.due_ms for item in self._hosted.values() if item.leaves_ms is None]
        dues += [item.leaves_ms for item in self._hosted.values() if item.leaves_ms is not None]
        found = min(dues if turn is None else [*dues, turn], default=NEVER)
        return found if found < NEVER else None

    def step(self, now_ms: UnixMs) -> list[AgentEffect]:
        """Execute the due steps of the kubelet."""
        self._stepped_ms = now_ms
        broken = self.breakages.at(now_ms)
        effects: list[AgentEffect] = []
        if broken.gone == self._is_there:
            self._is_there = not broken.gone
            effects.append(SetPresence(self.node.name, self._is_there))
            self._reported_status = (self.node.chips.bit_count(), self.node.ready)  # as it is registered
            self._reported_device = ()
        if not self._is_dead(broken):
            self._finish_deletions(now_ms, effects)
            self._admit(broken, now_ms, effects)
            self._move(now_ms, effects)
        self._report_node(broken, now_ms, effects)
        return effects

    def report(self, now_ms: UnixMs) -> list[AgentEffect]:
        """One reporting period of the device plug-in and NodeD."""
        broken = self.breakages.at(now_ms)
        effects: list[AgentEffect] = []
        if self.node.resource and not broken.plugin:
            for item in self._hosted.values():
                if item.given and not item.is_reported and item.step in {Step.ADMITTED, Step.RUNNING}:
                    item.is_reported = True
                    annotations = self._plugin.report(item.pod, _merged(item.given))
                    if annotations:
                        effects.append(Annotate(item.pod, annotations))
            self._report_devices(broken, now_ms, effects)
        self._report_faults(broken, now_ms, effects)
        return effects

    def fail(self, key: str, exit_code: int, now_ms: UnixMs) -> list[AgentEffect]:
        """Let the containers of a running pod, as :meth:`running` finds it, end with an exit code."""
        item = self._running(key)
        if item is None:
            return []
        status = failed(item.pod, exit_code=exit_code, started_ms=item.started_ms, now_ms=now_ms)
        if status["phase"] == "Failed":
            self._release(item)
        return [SetStatus(item.pod, status)]

    def running(self, key: str) -> AgentPod | None:
        """A running pod by namespace and name, or the first by name; None if there is no such pod."""
        item = self._running(key)
        return item.pod if item is not None else None

    def _running(self, key: str) -> HostedPod | None:
        items = [item for item in self._hosted.values() if item.is_running and key in {"", item.pod.key}]
        return min(items, key=lambda item: item.pod.key, default=None)

    def _is_dead(self, broken: Broken) -> bool:
        return broken.kubelet or not self.node.ready

    def _new(self, pod: AgentPod, now_ms: UnixMs) -> HostedPod:
        if pod.is_over:
            return HostedPod(pod, Step.OVER, NEVER)
        is_running = pod.status.phase == "Running"
        if not is_running and not is_consumed(pod):
            return HostedPod(pod, Step.NEW, now_ms + self._rules.admit_ms)
        return self._restored(pod, now_ms, is_running=is_running)

    def _restored(self, pod: AgentPod, now_ms: UnixMs, *, is_running: bool) -> HostedPod:
        """A pod that an earlier run of the agents admitted."""
        if pod.status.pod_ip:
            self._addresses.note(pod.metadata.uid, pod.status.pod_ip)
        item = HostedPod(pod, Step.ADMITTED, now_ms + self._rules.start_ms)
        published = chip_ids(pod.metadata.annotation(ASCEND_REAL)) or self._plugin.annotated(pod) or ()
        real = tuple(chip for chip in published if self.node.chips >> chip & 1)
        if chips_asked(pod, self.node.resource) and real:
            free = [klt for klt in self._free_ids() if self._plugin.stands_for(klt) in real]
            rest = [klt for klt in self._free_ids() if klt not in free]
            listed = chip_ids(pod.metadata.annotation(KLT_DEV)) or ()
            ids = listed if listed and set(listed) <= {*free, *rest} else tuple((free + rest)[: len(real)])
            self._plugin.remember(ids, real)
            item.given = [Allocated(ids, tuple(sorted(real)), None)]
        self._book(item)
        if is_running:
            item.step = Step.RUNNING
            item.started_ms = started_ms(pod) or now_ms
            item.due_ms = self._ends_ms(item)
        return item

    def _ends_ms(self, item: HostedPod) -> UnixMs:
        lasts_ms = runs_for_ms(item.pod, default_ms=self._rules.run_default_ms)
        return NEVER if lasts_ms is None else item.started_ms + lasts_ms

    def _finish_deletions(self, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        for item in self._hosted.values():
            if item.leaves_ms is not None and item.leaves_ms <= now_ms:
                item.leaves_ms = NEVER
                self._release(item)
                effects.append(Confirm(item.pod))

    def _admit(self, broken: Broken, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        """Admit all new pods when one of them is due."""
        new = [item for item in self._hosted.values() if item.step is Step.NEW and item.leaves_ms is None]
        if not any(item.due_ms <= now_ms for item in new):
            return
        if self._rules.shuffle:
            self._rng.shuffle(new)
        for item in new:
            self._take(item, broken, now_ms, effects)

    def _take(self, item: HostedPod, broken: Broken, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        pod = item.pod
        asked = chips_asked(pod, self.node.resource) if self.node.resource else []
        free = self._healthy_ids(broken)
        if other := other_chips(pod, self.node.resource):
            return self._refuse(item, f"OutOf{other}", f"Node didn't have enough resource: {other}", now_ms, effects)
        if sum(asked) > len(free):
            kind = self.node.resource
            text = f"Node didn't have enough resource: {kind}, requested: {sum(asked)}, free: {len(free)}"
            return self._refuse(item, f"OutOf{kind}", text, now_ms, effects)
        try:
            for count in asked:
                picked = sorted(self._rng.sample(self._healthy_ids(broken), count))
                given = self._plugin.allocate(picked, [other.pod for other in self._hosted.values()])
                item.given.append(given)
                if given.source is not None:
                    effects.append(Annotate(given.source, consumption()))
        except AllocateError as error:
            self._tally.admission_errors += 1
            text = f"Allocate failed due to rpc error: {error}, which is unexpected"
            return self._refuse(item, UNEXPECTED_ADMISSION, text, now_ms, effects)
        return self._account(item, now_ms, effects)

    def _account(self, item: HostedPod, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        """Book the resources of a pod. Without CPU or memory it is refused; chips of another pod raise an alarm."""
        overcommits = self._accounts.overcommits
        reason = self._book(item)
        if reason:
            effects.append(Alarm(item.pod, reason))
        if overcommits != self._accounts.overcommits:
            word = "cpu" if " cpu " in reason else "memory"
            return self._refuse(item, f"OutOf{word}", reason, now_ms, effects)
        own = self._plugin.annotated(item.pod)
        if item.given and own is not None and set(own) != set(item.chips):
            self._tally.swapped += 1
        self._tally.bound += 1
        item.step = Step.ADMITTED
        item.due_ms = now_ms + self._rules.start_ms
        return None

    def _book(self, item: HostedPod) -> str:
        cpu, memory = cpu_and_memory(item.pod)
        item.use = ResourceUse(
            self.node.name,
            item.mask,
            self.node.resource if item.given else "",
            cpu,
            memory,
            share=share_of(item.pod) if shares_of(self.node) > 1 else None,
            repeated=len(set(item.chips)) != len(item.chips),
        )
        reason = self._accounts.take(item.use)
        item.is_booked = not reason
        return reason

    def _refuse(self, item: HostedPod, reason: str, text: str, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        self._tally.failed += 1
        item.given = []
        item.step = Step.OVER
        item.due_ms = NEVER
        effects.append(SetStatus(item.pod, refused(reason, text, now_ms)))

    def _move(self, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        for item in self._hosted.values():
            if item.due_ms > now_ms or item.leaves_ms is not None:
                continue
            if item.step is Step.ADMITTED:
                item.step = Step.RUNNING
                item.started_ms = now_ms
                item.due_ms = self._ends_ms(item)
                address = self._addresses.take(item.pod.metadata.uid)
                status = running(item.pod, address=address, host=self.node.address, now_ms=now_ms)
                effects.append(SetStatus(item.pod, status))
            elif item.step is Step.RUNNING:
                effects.append(SetStatus(item.pod, succeeded(item.pod, started_ms=item.started_ms, now_ms=now_ms)))
                self._release(item)

    def _release(self, item: HostedPod) -> None:
        if item.step in {Step.ADMITTED, Step.RUNNING}:
            self._tally.ended += 1
        if item.use is not None and item.is_booked:
            self._accounts.release(item.use)
        item.use, item.is_booked = None, False
        item.given = []
        item.step, item.due_ms = Step.OVER, NEVER

    def _free_ids(self) -> list[int]:
        """Ids that kubelet has not allocated."""
        given = {klt for item in self._hosted.values() for part in item.given for klt in part.ids}
        return [klt for klt in self._plugin.ids if klt not in given]

    def _healthy_ids(self, broken: Broken) -> list[int]:
        """Ids that kubelet may allocate; none when the plug-in is dead."""
        if broken.plugin:
            return []
        unhealthy = broken.unhealthy(self.used) | broken.recovering
        return [klt for klt in self._free_ids() if not unhealthy >> self._plugin.stands_for(klt) & 1]

    def _report_node(self, broken: Broken, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        if broken.gone:
            return
        if broken.kubelet:
            status = (self._reported_status[0], False)
        else:
            unhealthy = broken.unhealthy(self.used) | broken.recovering
            healthy = 0 if broken.plugin else (self.node.chips & ~unhealthy).bit_count()
            status = (healthy, self.node.ready)
        if status != self._reported_status:
            self._reported_status = status
            body = node_status(self.node, status[0], is_ready=status[1], now_ms=now_ms)
            effects.append(SetNode(self.node.name, body))

    def _report_devices(self, broken: Broken, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        taken = 0
        for item in self._hosted.values():
            if item.step is not Step.OVER:
                reported = item.mask if item.is_reported else 0
                real = chip_ids(item.pod.metadata.annotation(ASCEND_REAL)) or ()
                taken |= sum(1 << chip for chip in set(real)) or reported
        lists = device_list(self.node, broken, taken=taken, used=self.used)
        report = (tuple(lists.items()), tuple(item for item in broken.items if item.kind in _OF_PLUGIN))
        if report == self._reported_device and now_ms - self._reported_device_ms < self._rules.unchanged_ms:
            return
        self._reported_device, self._reported_device_ms = report, now_ms
        data = device_data(self.node, self.place, broken, lists, now_ms, self._report_release)
        effects.append(Report(device_info.NAMESPACE, device_info.NAME_PREFIX + self.node.name, data))

    def _report_faults(self, broken: Broken, now_ms: UnixMs, effects: list[AgentEffect]) -> None:
        """Report of NodeD: its ConfigMap exists while the node has a fault."""
        faults = tuple(broken.of("node"))
        if faults == self._reported_node or broken.kubelet:
            return
        self._reported_node = faults
        name = node_info.NAME_PREFIX + self.node.name
        effects.append(Report(node_info.NAMESPACE, name, node_data(broken, now_ms, self._report_release)))


def _merged(given: list[Allocated]) -> Allocated:
    """Allocations of all containers of a pod, merged."""
    ids = tuple(klt for part in given for klt in part.ids)
    chips = tuple(chip for part in given for chip in part.chips)
    return Allocated(ids, tuple(sorted(chips)), None)
