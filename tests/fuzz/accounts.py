"""Owners of chips by the records alone, counted by other means than the core, and compared with the facts of nodes.

Longer than 400 lines because whatever a record gives or takes changes the same accounts.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from berth.core.chips.soft_share_table import memory_of
from berth.core.state.holdings.pod_phases import ENDED
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.blocks.validation import SOFT, SUPER_POD_AFFINITY
from berth.products.model import LABEL_CHIP_MEMORY
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import JobSeen, NodeHealth, PodsSeen
from berth.schemas.ledger import Correction, Release, Reservation, Round, Verdict
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.placement import Placement, Share
from berth.schemas.recovery import Awaited, HeldPlaces, Recovery
from tests.fuzz.failure import Failure

_PERCENT = 100


class Pod(NamedTuple):
    """What a pod owns."""

    node: str
    chips: tuple[int, ...]
    cpu_milli: int
    memory_mib: int
    share: Share | None


class Attempt(NamedTuple):
    """An attempt that a record placed."""

    namespace: str
    name: str
    uid: str
    placement: Placement
    """As it was at first."""


class Accounts:
    """What every attempt owns. ``nodes`` and ``conditions`` are what the facts say now, by node."""

    def __init__(self) -> None:
        self.owned: dict[tuple[str, int], dict[int, Pod]] = {}
        """Pods by rank, of each attempt."""
        self.attempts: dict[tuple[str, int], Attempt] = {}
        """Attempts that were placed, not adopted."""
        self.reserved: dict[tuple[str, int], dict[int, Pod]] = {}
        """Places of ranks that still leave their old ones, and of backup pods, of each attempt."""
        self.backed: dict[tuple[str, int], set[int]] = {}
        """Ranks of which a backup pod has the reserved place."""
        self.ending: set[tuple[str, int]] = set()
        """Attempts that end with a step of the whole job: what is reserved then is for the next one."""
        self.held: dict[str, dict[int, Pod]] = {}
        """Places that stay held for jobs (uid) that start anew."""
        self.promised: dict[str, tuple[dict[int, Pod], list[Awaited]]] = {}
        """Places of jobs (uid) for which others leave, and those others."""

    def take(
        self,
        record: Round,
        nodes: Mapping[str, NodeDescription],
        conditions: Mapping[str, NodeCondition],
        jobs: Mapping[tuple[str, str], JobSeen],
        pods: Mapping[tuple[str, str], PodsSeen] = MappingProxyType({}),
    ) -> None:
        """Fold a record that counts. A job whose pods run gets their places, whatever these are like by now.

        Raises:
            Failure: It gives what is not there to give.
        """
        for verdict in record.verdicts:
            if verdict.placement is not None:
                self._keep_promise(verdict, verdict.placement)
                is_found = follows_pods(verdict, pods)
                self._see_whole(verdict, verdict.placement, jobs, is_found=is_found)
                key = (verdict.uid, verdict.attempt)
                self._give(key, verdict.placement)
                self.attempts[key] = Attempt(verdict.namespace, verdict.name, verdict.uid, verdict.placement)
                if not is_found:
                    self._see_sound(verdict, nodes, conditions)
                self._see_blocks(verdict.placement, jobs[verdict.namespace, verdict.name], nodes)
        for correction in record.corrections:
            self._correct(correction)
        for recovery in record.recoveries:
            self._recover(recovery, nodes, conditions, is_found=follows_pods_of_step(recovery, pods))
        for eviction in record.evictions:
            self._end((eviction.uid, eviction.attempt))
        placed = {verdict.uid for verdict in record.verdicts if verdict.placement is not None}
        for held in record.held:
            self._hold(held, is_placed=held.uid in placed)
        self._promise(record.reserved)
        self._release_all(record.releases)
        for adoption in record.adoptions:
            self._give((adoption.uid, 0), adoption.placement)
        self._see_single()

    def _promise(self, entries: Iterable[Reservation]) -> None:
        """Places become those of gangs that wait.

        Raises:
            Failure: One of them has a place already.
        """
        for entry in entries:
            if entry.uid in self.promised or entry.uid in self.held:
                raise Failure("accounts: a place is reserved twice", entry.uid)
            self.promised[entry.uid] = (dict(enumerate(_pods_of(entry.placement))), entry.awaits)

    def _keep_promise(self, verdict: Verdict, placement: Placement) -> None:
        """A gang that waits for a place gets it once others have left, and no sooner.

        Raises:
            Failure: Others have it still.
        """
        self.held.pop(verdict.uid, None)
        promised = self.promised.pop(verdict.uid, None)
        if promised is None:
            return
        pods, awaits = promised
        if pods == dict(enumerate(_pods_of(placement))) and any(True for one in awaits for _ in self._left_by(one)):
            raise Failure("accounts: a place is given before others have left it", verdict.uid)

    def _correct(self, correction: Correction) -> None:
        """Ranks have the chips that their pods have.

        Raises:
            Failure: They had none.
        """
        owned = self.owned.get((correction.uid, correction.attempt), {})
        for rank, chips in zip(correction.ranks, correction.chips, strict=True):
            if rank not in owned:
                raise Failure("accounts: a rank that has nothing is corrected", f"{correction.uid} {rank}")
            owned[rank] = owned[rank]._replace(chips=tuple(chips))

    def _release_all(self, releases: Iterable[Release]) -> None:
        for release in releases:
            self._release(release)
        for uid, (places, awaits) in self.promised.items():
            self.promised[uid] = (places, [one for one in awaits if any(True for _ in self._left_by(one))])

    def _release(self, release: Release) -> None:
        """Ranks that gave back what they had get what was reserved for them.

        Raises:
            Failure: They had nothing.
        """
        key = (release.uid, release.attempt)
        if key not in self.owned:
            raise Failure("accounts: released what nobody has", str(key))
        if release.reason == "backup":
            for rank in release.ranks:
                self._lose_backup(key, rank)
            return
        if not release.ranks:
            del self.owned[key]
            self.reserved.pop(key, None)
            self.backed.pop(key, None)
            self.ending.discard(key)
        for rank in release.ranks:
            if rank not in self.owned[key]:
                raise Failure("accounts: a rank is released twice", f"{key} {rank}")
            del self.owned[key][rank]
            if rank in self.reserved.get(key, {}) and key not in self.ending:
                self.owned[key][rank] = self.reserved[key].pop(rank)
                self.backed.get(key, set()).discard(rank)

    def _lose_backup(self, key: tuple[str, int], rank: int) -> None:
        """A place of a backup pod is free.

        Raises:
            Failure: There is none.
        """
        if rank not in self.backed.get(key, set()):
            raise Failure("accounts: a backup pod gives back what it does not have", f"{key} {rank}")
        self.backed[key].remove(rank)
        del self.reserved[key][rank]

    def _end(self, key: tuple[str, int]) -> None:
        """An attempt ends: only its backup pods keep what is reserved."""
        self.ending.discard(key)
        backed = self.backed.get(key, set())
        self.reserved[key] = {rank: pod for rank, pod in self.reserved.get(key, {}).items() if rank in backed}

    def _hold(self, held: HeldPlaces, *, is_placed: bool) -> None:
        """Places of an attempt that ends stay held, or are held no longer.

        The record in which their time is over may also place the job.

        Raises:
            Failure: It does not own them, or the attempt is not released with this record.
        """
        if not held.ranks:
            if self.promised.pop(held.uid, None) is not None:
                return
            if self.held.pop(held.uid, None) is None and not is_placed:
                raise Failure("accounts: places are held no longer that were not held", held.uid)
            return
        key = (held.uid, held.attempt)
        owned, backed = self.owned.get(key, {}), self.backed.get(key, set())
        if key in self.ending:
            owned = owned | {rank: pod for rank, pod in self.reserved.get(key, {}).items() if rank not in backed}
        if held.uid in self.held or not set(held.ranks) <= owned.keys():
            raise Failure("accounts: holds what it does not own", f"{held.uid} {held.ranks}")
        self.held[held.uid] = {rank: owned[rank] for rank in held.ranks}

    def _recover(
        self,
        recovery: Recovery,
        nodes: Mapping[str, NodeDescription],
        conditions: Mapping[str, NodeCondition],
        *,
        is_found: bool,
    ) -> None:
        """Ranks leave, or get places; those that a rank had to expect before go.

        Places that are found with their pods, of a step whose record is lost, are as they are.

        Raises:
            Failure: An attempt recovers that is not there, or a new place is not to be had.
        """
        key = (recovery.uid, recovery.attempt)
        if key not in self.attempts or key not in self.owned:
            raise Failure("accounts: recovers what nobody has", str(key))
        if recovery.how == "mark":
            return
        if recovery.scope == "job":
            self._end(key)
            self.ending.add(key)
        owned, reserved = self.owned[key], self.reserved.setdefault(key, {})
        backed = self.backed.setdefault(key, set())
        for rank in recovery.ranks:
            if rank not in backed:
                reserved.pop(rank, None)
        if recovery.how == "backup":
            backed.update(recovery.ranks)
        if recovery.placement is None:
            return
        for rank, pod in zip(recovery.ranks, _pods_of(recovery.placement), strict=True):
            (reserved if rank in owned else owned)[rank] = pod
            if not is_found:
                self._see_sound_pod(recovery.name, pod, nodes, conditions)

    def _give(self, key: tuple[str, int], placement: Placement) -> None:
        if key in self.owned:
            raise Failure("accounts: an attempt is placed twice", str(key))
        self.owned[key] = dict(enumerate(_pods_of(placement)))

    def expected(self, key: tuple[str, int]) -> list[tuple[int, Pod]]:
        """Ranks of an attempt with places that they get elsewhere."""
        owned = self.owned.get(key, {})
        return [(rank, pod) for rank, pod in self.reserved.get(key, {}).items() if owned.get(rank) != pod]

    def _all(self) -> Iterator[Pod]:
        """What is owned, reserved or held; a rank that goes back to its own place has it once."""
        for key, pods in self.owned.items():
            yield from pods.values()
            yield from (pod for _, pod in self.expected(key))
        for places in self.held.values():
            yield from places.values()
        for places, awaits in self.promised.values():
            yield from self._free_of(places, awaits)

    def _left_by(self, one: Awaited) -> Iterator[Pod]:
        """What an attempt that leaves, or ranks that it gives up, still have."""
        owned = self.owned.get((one.uid, one.attempt), {})
        yield from (pod for rank, pod in owned.items() if rank in one.ranks or not one.ranks)
        if not one.ranks:
            yield from self.reserved.get((one.uid, one.attempt), {}).values()

    def _free_of(self, places: Mapping[int, Pod], awaits: list[Awaited]) -> Iterator[Pod]:
        """What others have left of places; on their nodes chips alone."""
        left = [pod for one in awaits for pod in self._left_by(one)]
        chips = {(pod.node, chip) for pod in left for chip in pod.chips}
        nodes = {pod.node for pod in left}
        for pod in places.values():
            free = tuple(chip for chip in pod.chips if (pod.node, chip) not in chips)
            yield pod if pod.node not in nodes else Pod(pod.node, free, 0, 0, pod.share)

    def _pods(self, node: str) -> Iterator[Pod]:
        return (pod for pod in self._all() if pod.node == node)

    def _see_single(self) -> None:
        """No chip has two owners; who shares one shares it by one policy and within its bounds.

        Raises:
            Failure: That is not so.
        """
        whole: set[tuple[str, int]] = set()
        shared: dict[tuple[str, int], list[Share]] = {}
        for pod in self._all():
            for chip in pod.chips:
                if pod.share is not None:
                    shared.setdefault((pod.node, chip), []).append(pod.share)
                elif (pod.node, chip) in whole:
                    raise Failure("accounts: a chip has two owners", f"{pod.node} {chip}")
                else:
                    whole.add((pod.node, chip))
        for key, shares in shared.items():
            if key in whole:
                raise Failure("accounts: a shared chip is owned", str(key))
            if len({share.policy for share in shares}) > 1:
                raise Failure("accounts: a chip has two policies", str(key))
            if sum(share.aicore for share in shares) > _PERCENT:
                raise Failure("accounts: more than a chip's cores are given", str(key))

    @staticmethod
    def _see_whole(
        verdict: Verdict, placement: Placement, jobs: Mapping[tuple[str, str], JobSeen], *, is_found: bool
    ) -> None:
        """A gang is placed as it was asked for, all of it.

        Raises:
            Failure: It is not.
        """
        job = jobs.get((verdict.namespace, verdict.name))
        if job is None or job.request is None or job.uid != verdict.uid or job.state != "accepted":
            raise Failure("accounts: placed without a job that asks for it", verdict.name)
        if job.hold is not None and not is_found:
            raise Failure("accounts: placed although it is held", verdict.name)
        asked = [
            (min(task.chips, 1) if placement.share is not None else task.chips, task.cpu_milli, task.memory_mib)
            for task in job.request.tasks
            for _ in range(task.replicas)
        ]
        runs = [(run.chips, run.cpu_milli, run.memory_mib) for run in placement.runs for _ in range(run.pods)]
        if asked != runs and len(asked) == len(runs) and (is_found or any(run != (0, 0, 0) for run in runs)):
            # Of an attempt that a restored ledger did not know, pods that have ended or are gone get nothing.
            # Chips of its pods that others own follow later.
            pairs = zip(asked, runs, strict=True)
            asked = [run if run == (0, 0, 0) or (is_found and run[0] < one[0]) else one for one, run in pairs]
        if asked != runs or [chips for chips, _, _ in runs] != [len(chips) for chips in placement.chips_by_rank()]:
            raise Failure("accounts: a gang is not what was asked for", verdict.name)

    def _see_sound(
        self,
        verdict: Verdict,
        nodes: Mapping[str, NodeDescription],
        conditions: Mapping[str, NodeCondition],
    ) -> None:
        """New chips are on nodes that may be used, and are there, well and listed.

        Raises:
            Failure: They are not.
        """
        for pod in self.owned[verdict.uid, verdict.attempt].values():
            self._see_sound_pod(verdict.name, pod, nodes, conditions)

    def _see_sound_pod(
        self, name: str, pod: Pod, nodes: Mapping[str, NodeDescription], conditions: Mapping[str, NodeCondition]
    ) -> None:
        """As :meth:`_see_sound`, for one pod.

        Raises:
            Failure: It is not so.
        """
        node = nodes.get(pod.node)
        if node is None or node.cordoned or not node.ready:
            raise Failure("accounts: placed on a node that takes nothing", f"{name} {pod.node}")
        condition = conditions.get(pod.node, NodeCondition(pod.node))
        bad = condition.unhealthy | condition.recovering | condition.withheld | ~node.chips
        if any(bad >> chip & 1 for chip in pod.chips):
            raise Failure("accounts: placed on a chip that is not to be had", f"{name} {pod}")
        if condition.level >= NodeHealth.NO_NEW_WORK:
            raise Failure("accounts: placed on a node that takes no new work", f"{name} {pod.node}")
        self._see_room(name, pod, node)

    def _see_room(self, name: str, pod: Pod, node: NodeDescription) -> None:
        pods = list(self._pods(pod.node))
        if pod.cpu_milli and sum(one.cpu_milli for one in pods) > node.cpu_milli:
            raise Failure("accounts: more cpu is given than there is", f"{name} {pod.node}")
        if pod.memory_mib and sum(one.memory_mib for one in pods) > node.memory_mib:
            raise Failure("accounts: more memory is given than there is", f"{name} {pod.node}")
        if pod.share is not None and pod.chips:
            given = sum(one.share.hbm_mib for one in pods if one.share is not None and one.chips == pod.chips)
            if given > memory_of(node.labels.get(LABEL_CHIP_MEMORY, "")):
                raise Failure("accounts: more memory of a chip is given than there is", f"{name} {pod}")

    @staticmethod
    def _see_blocks(placement: Placement, job: JobSeen, nodes: Mapping[str, NodeDescription]) -> None:
        """A placement names the SuperPoDs in which its nodes are; those of a block are in one, unless the gang lets
        blocks be split.

        Raises:
            Failure: They are not.
        """
        part = block_of(placement)
        if part is None or part.variant not in {"a3", "850", "rack"}:
            return
        homes: dict[int, dict[str, None]] = {}
        superpods = unpack(part.superpod_index, 2)
        for name, block, told in zip(placement.names(), unpack(part.block_index, 2), superpods, strict=True):
            if block:
                homes.setdefault(block, {})[nodes[name].superpod] = None
                if part.superpods[told - 1] != nodes[name].superpod:
                    raise Failure("accounts: a placement names another SuperPoD than its node's", job.name)
        is_soft = job.request is not None and job.request.labels.get(SUPER_POD_AFFINITY) == SOFT
        if not is_soft and any(len(found) > 1 for found in homes.values()):
            raise Failure("accounts: a block is in several SuperPoDs", f"{job.name} {homes}")


def follows_pods(verdict: Verdict, pods: Mapping[tuple[str, str], PodsSeen]) -> bool:
    """Whether a verdict gives an attempt the places where its pods are found: those of each of them that lives.

    Chips that others own follow later.
    """
    seen = pods.get((verdict.namespace, verdict.name))
    if (
        verdict.placement is None
        or seen is None
        or seen.foreign
        or (seen.uid, seen.attempt) != (verdict.uid, verdict.attempt)
    ):
        return False
    places = dict(enumerate(_places_of(verdict.placement)))
    live = [(rank, place) for rank, _, place in _live(seen)]
    return bool(live) and all(_is_part(places.get(rank), place) for rank, place in live)


def follows_pods_of_step(recovery: Recovery, pods: Mapping[tuple[str, str], PodsSeen]) -> bool:
    """Whether a step gives its ranks the places where pods are found that were bound for a step of this number."""
    seen = pods.get((recovery.namespace, recovery.name))
    if recovery.placement is None or seen is None or (seen.uid, seen.attempt) != (recovery.uid, recovery.attempt):
        return False
    places = dict(zip(recovery.ranks, _places_of(recovery.placement), strict=True))
    live = {rank: place for rank, step, place in _live(seen) if step == recovery.step}
    return places.keys() == live.keys() and all(_is_part(places[rank], place) for rank, place in live.items())


def _is_part(place: tuple[str, int] | None, pod: tuple[str, int]) -> bool:
    """Whether a place has no other chips than a pod that was found."""
    return place is not None and place[0] == pod[0] and not place[1] & ~pod[1]


def _places_of(placement: Placement) -> list[tuple[str, int]]:
    """Node and chips, as a mask, of each rank."""
    masks = [sum(1 << chip for chip in chips) for chips in placement.chips_by_rank()]
    return list(zip(placement.names(), masks, strict=True))


def _live(seen: PodsSeen) -> list[tuple[int, int, tuple[str, int]]]:
    """Rank, step of a recovery, and place of each pod that lives."""
    names = unpack_names(seen.nodes)
    steps = unpack(seen.steps, 4) or [0] * len(seen.phase)
    columns = (unpack(seen.rank, 4), steps, seen.phase, unpack(seen.node_index, 4), unpack(seen.chips, 8))
    rows = zip(*columns, strict=True)
    return [(rank, step, (names[node], mask)) for rank, step, phase, node, mask in rows if phase not in ENDED]


def _pods_of(placement: Placement) -> list[Pod]:
    """What each rank of a placement owns."""
    runs = [run for run in placement.runs for _ in range(run.pods)]
    parts = zip(placement.names(), placement.chips_by_rank(), runs, strict=True)
    return [Pod(node, chips, run.cpu_milli, run.memory_mib, placement.share) for node, chips, run in parts]
