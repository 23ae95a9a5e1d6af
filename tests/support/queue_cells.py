"""Cells with queues in force, for tests of what these do."""

import msgspec

from berth.core.explain.refusal_text import sentence
from berth.core.queues.refusals import text_of
from berth.core.state.ledger import Holding
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.ledger import Settings
from berth.schemas.queues.facts import QueueSeen, WaitingGroup
from berth.schemas.queues.queue import CHIP, Queue
from tests.support.team_cell import Team

NPU = "huawei.com/Ascend910"


def limits(chips: int) -> dict[str, int]:
    return {NPU: chips * CHIP}


class Shared(Team):
    """A cell whose queues are in force."""

    def __init__(self, nodes: int, *queues: Queue, policy: str = "skip", shards: tuple[int, ...] = ()) -> None:
        super().__init__(nodes, Settings(queue_policy=policy, reserve_chips=16, unknown_run_ms=1_000, queues=1), shards)
        for queue in queues:
            self.queue(queue)

    def queue(self, queue: Queue, *, gone: bool = False) -> None:
        self.fact(f"queue.{queue.name}", QueueSeen(queue, gone=gone))

    def submitted(self, name: str, queue: str, chips: int = 8, namespace: str = "team", **fields: object) -> None:
        self.job(name, namespace, chips=chips, queue=queue, **fields)

    def group(self, name: str, queue: str = "a", chips: int = 8, namespace: str = "team", **fields: object) -> None:
        """A PodGroup waits for its admission."""
        waiting = WaitingGroup(queue, limits(chips), is_declared=True, pods=1, created_ms=1, job=f"pg-{name}")
        waiting = msgspec.structs.replace(waiting, **fields)
        self.fact(f"group.{namespace}.{name}", GroupSeen(namespace, name, f"uid-{name}", waiting=waiting))

    def no_group(self, name: str, namespace: str = "team") -> None:
        """A PodGroup is gone, or needs no admission."""
        self.fact(f"group.{namespace}.{name}", GroupSeen(namespace, name, gone=True))

    def decided(self) -> dict[str, str]:
        """What the ledger says of each PodGroup, by name: why it waits; empty for one that is admitted."""
        found = sorted(self.seat.state.fold.admissions.values(), key=lambda one: one.name)
        return {one.name: "" if one.refusal is None else text_of(one.refusal) for one in found}

    def settle(self) -> None:
        """Rounds until there is nothing to decide.

        Raises:
            AssertionError: There is no end of them.
        """
        fold = self.seat.state.fold
        for _ in range(50):
            head = fold.head
            self.round()
            if fold.head == head and not self.seat.scheduler.has_work:
                return
        raise AssertionError("rounds without end")

    def held(self, queue: str, dimension: str = NPU) -> int:
        tree = self.seat.state.queues.tree()
        assert tree is not None
        return self.seat.state.queues.usage(tree).held(queue, dimension)

    def holding(self, name: str) -> Holding:
        (found,) = (one for one in self.seat.state.fold.holdings.values() if one.name == name)
        return found

    def text(self, name: str) -> str:
        (found,) = (one for one in self.seat.state.fold.gangs.values() if one.name == name)
        assert found.refusal is not None
        return sentence(found.refusal)


class Ordered(Shared):
    """A cell whose queues order their jobs."""

    def __init__(self, nodes: int, *queues: Queue, **terms: object) -> None:
        super().__init__(nodes, *queues, shards=(1, 3, 8))
        self.begin(Settings(reserve_chips=16, unknown_run_ms=1_000, queues=2, **terms))  # type: ignore[arg-type]  # settings
