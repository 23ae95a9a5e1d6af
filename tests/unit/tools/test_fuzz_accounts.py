"""The accounts of the long run over random histories: each rule of recoveries notices what breaks it, and no more.

Longer than 400 lines because all rules are tried on one book of two jobs.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import msgspec
import pytest

from berth.products.model import LABEL_CHIP_MEMORY
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import JobSeen, NodeHealth, PodPhase, PodsSeen
from berth.schemas.ledger import Adoption, Correction, Eviction, Release, Round, Verdict
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.placement import Placement, Run, Share, placement_of
from berth.schemas.recovery import HeldPlaces, How, Recovery, Scope
from tests.fuzz.accounts import Accounts, Pod
from tests.fuzz.failure import Failure
from tests.support.cells import a_job, a_node
from tests.support.kube_binder import RESOURCE

JOB, OTHER = "uid-j", "uid-k"
CPU, MEMORY = 1_000, 2_000
FIRST, SECOND, THIRD, FOURTH = (0, 1), (2, 3), (4, 5), (6, 7)
"""Chips of a pod."""
Place = tuple[str, tuple[int, ...]]


def places(*found: Place, cpu_milli: int = CPU, memory_mib: int = MEMORY) -> Placement:
    """Two chips of a node for each rank."""
    runs = [Run(len(found), len(found[0][1]), cpu_milli, memory_mib)]
    return placement_of([node for node, _ in found], [chips for _, chips in found], runs, resource=RESOURCE)


def step(
    *ranks: int, to: Placement | None = None, how: How = "force", scope: Scope = "pod", uid: str = JOB, attempt: int = 1
) -> Recovery:
    backups = [f"backup-of-{rank}" for rank in ranks] if how == "backup" else []
    return Recovery(
        "default", uid.removeprefix("uid-"), uid, attempt, 1, "CardUnhealthy", "its chip 0 is unhealthy", scope, how,
        list(ranks), [], 1, placement=to, backups=backups,
    )  # fmt: skip


def let_go(*ranks: int, uid: str = JOB, backup: bool = False) -> Release:
    return Release(uid, 1, "backup" if backup else "fault", ranks=list(ranks))


def held(*ranks: int, uid: str = JOB) -> HeldPlaces:
    return HeldPlaces("default", uid.removeprefix("uid-"), uid, 1, list(ranks), 99 if ranks else 0)


class Book:
    """Accounts with two jobs that run: ``j`` has two chips each of a and b, ``k`` others of them. Node c is empty."""

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.nodes: dict[str, NodeDescription] = {
            name: a_node(name, cpu_milli=3 * CPU, labels={LABEL_CHIP_MEMORY: "32G"}) for name in "abc"
        }
        self.conditions: dict[str, NodeCondition] = {}
        self.pods: Mapping[tuple[str, str], PodsSeen] = {}
        task = msgspec.structs.replace(a_job("j", chips=2, replicas=2).tasks[0], cpu_milli=CPU, memory_mib=MEMORY)
        requests = [msgspec.structs.replace(a_job(name), tasks=[task]) for name in "jk"]
        self.jobs: Mapping[tuple[str, str], JobSeen] = {
            (one.namespace, one.name): JobSeen(one.namespace, one.name, one.uid, "accepted", 1, request=one)
            for one in requests
        }
        self.write(verdicts=[self.verdict(JOB, ("a", FIRST), ("b", FIRST))])
        self.write(verdicts=[self.verdict(OTHER, ("a", SECOND), ("b", SECOND))])

    @staticmethod
    def verdict(uid: str, *found: Place, attempt: int = 1) -> Verdict:
        return Verdict("default", uid.removeprefix("uid-"), uid, attempt, places(*found))

    def write(self, **parts: object) -> None:
        """Take a record."""
        record = Round(1, 1, 0, 0, 1, **parts)  # type: ignore[arg-type]  # fields of it
        self.accounts.take(record, self.nodes, self.conditions, self.jobs, self.pods)

    def recover(self, *steps: Recovery) -> None:
        self.write(recoveries=list(steps))

    def release(self, *releases: Release, keeps: Sequence[HeldPlaces] = ()) -> None:
        self.write(releases=list(releases), held=list(keeps))

    def restart(self, *ranks: int, uid: str = JOB) -> None:
        """A job starts anew as a whole, and places of ranks stay held."""
        self.recover(step(0, 1, scope="job", uid=uid))
        self.release(Release(uid, 1, "fault", again=True), keeps=[held(*ranks, uid=uid)] if ranks else [])

    def places_of(self, uid: str, attempt: int = 1) -> dict[int, Place]:
        return {rank: place_of(pod) for rank, pod in self.accounts.owned[uid, attempt].items()}

    def expected_of(self, uid: str) -> dict[int, Place]:
        return {rank: place_of(pod) for rank, pod in self.accounts.expected((uid, 1))}


def place_of(pod: Pod) -> Place:
    return pod.node, pod.chips


Plant = Callable[[Book], None]


def recovers_unplaced(book: Book) -> None:
    book.recover(step(0, uid="uid-nobody"))


def recovers_an_earlier_attempt(book: Book) -> None:
    book.restart()
    book.recover(step(0))


def recovers_pods_that_are_adopted(book: Book) -> None:
    book.write(adoptions=[Adoption("default", "pod/x", "uid-x", places(("c", FIRST)))])
    book.recover(step(0, uid="uid-x", attempt=0))


def releases_a_rank_twice(book: Book) -> None:
    book.recover(step(1))
    book.release(let_go(1))
    book.release(let_go(1))


def releases_an_attempt_that_has_nothing(book: Book) -> None:
    book.restart()
    book.release(let_go(1))


def gives_a_backup_back_that_never_was(book: Book) -> None:
    book.recover(step(1, to=places(("c", FIRST))))
    book.release(let_go(1, backup=True))


def gives_a_backup_back_twice(book: Book) -> None:
    book.recover(step(1, how="backup", to=places(("c", FIRST))))
    book.release(let_go(1, backup=True))
    book.release(let_go(1, backup=True))


def gives_a_backup_back_that_has_the_rank(book: Book) -> None:
    book.recover(step(1, how="backup", to=places(("c", FIRST))))
    book.release(let_go(1))
    book.release(let_go(1, backup=True))


def holds_places_of_another_attempt(book: Book) -> None:
    book.restart()
    book.write(held=[held(0)])


def holds_a_rank_that_is_released(book: Book) -> None:
    book.recover(step(1))
    book.release(let_go(1))
    book.restart(0, 1)


def holds_twice(book: Book) -> None:
    book.recover(step(0, 1, scope="job"))
    book.write(held=[held(0), held(1)])


def ends_a_hold_that_never_was(book: Book) -> None:
    book.write(held=[held()])


def ends_a_hold_twice(book: Book) -> None:
    book.restart(0)
    book.write(held=[held()])
    book.write(held=[held()])


def gives_a_place_that_another_has(book: Book) -> None:
    book.recover(step(1, to=places(("a", SECOND))))


def gives_a_place_that_is_reserved(book: Book) -> None:
    book.recover(step(1, to=places(("c", FIRST))))
    book.recover(step(1, to=places(("c", FIRST)), uid=OTHER))


def gives_a_place_that_a_rank_still_leaves(book: Book) -> None:
    book.recover(step(1, to=places(("c", FIRST))))
    book.recover(step(1, to=places(("b", FIRST)), uid=OTHER))


def gives_a_place_of_another_rank_of_the_job(book: Book) -> None:
    book.recover(step(1, to=places(("a", FIRST))))


def gives_a_place_that_a_backup_has(book: Book) -> None:
    book.recover(step(1, how="backup", to=places(("c", FIRST))))
    book.recover(step(1, to=places(("c", FIRST)), uid=OTHER))


def gives_a_backup_the_place_of_its_rank_and_another(book: Book) -> None:
    book.recover(step(0, 1, how="backup", to=places(("c", FIRST), ("c", FIRST))))


def gives_a_held_place(book: Book) -> None:
    book.restart(0)
    book.recover(step(1, to=places(("a", FIRST)), uid=OTHER))


def places_a_job_where_another_holds(book: Book) -> None:
    book.restart(0, uid=OTHER)
    book.restart()
    book.write(verdicts=[book.verdict(JOB, ("a", SECOND), ("c", FIRST), attempt=2)])


def keeps_the_place_of_a_backup_after_the_end(book: Book) -> None:
    book.recover(step(1, how="backup", to=places(("c", FIRST))))
    book.write(evictions=[Eviction(JOB, 1, "cancelled")])
    book.recover(step(1, to=places(("c", FIRST)), uid=OTHER))


def gives_a_node_that_is_gone(book: Book) -> None:
    del book.nodes["c"]
    book.recover(step(1, to=places(("c", FIRST))))


def gives_a_node_that_is_cordoned(book: Book) -> None:
    book.nodes["c"] = msgspec.structs.replace(book.nodes["c"], cordoned=True)
    book.recover(step(1, to=places(("c", FIRST))))


def gives_a_chip_that_is_unhealthy(book: Book) -> None:
    book.conditions["c"] = NodeCondition("c", unhealthy=0b10)
    book.recover(step(1, to=places(("c", FIRST))))


def gives_a_backup_a_chip_that_is_withheld(book: Book) -> None:
    book.conditions["c"] = NodeCondition("c", withheld=0b10)
    book.recover(step(1, how="backup", to=places(("c", FIRST))))


def gives_a_node_that_takes_no_new_work(book: Book) -> None:
    book.conditions["c"] = NodeCondition("c", level=NodeHealth.NO_NEW_WORK)
    book.recover(step(1, how="place", to=places(("c", FIRST))))


def gives_more_cpu_than_what_is_reserved_leaves(book: Book) -> None:
    book.recover(step(0, 1, to=places(("c", FIRST), ("c", SECOND))))
    book.recover(step(0, 1, to=places(("c", THIRD), ("c", FOURTH)), uid=OTHER))


def gives_more_memory_than_what_is_held_leaves(book: Book) -> None:
    book.nodes["a"] = msgspec.structs.replace(book.nodes["a"], memory_mib=2 * MEMORY)
    book.restart(0)
    book.recover(step(1, to=places(("a", THIRD), cpu_milli=0), uid=OTHER))


def places_an_attempt_twice(book: Book) -> None:
    book.write(verdicts=[book.verdict(JOB, ("c", FIRST), ("c", SECOND))])


def reserves_a_shared_chip_by_another_policy(book: Book) -> None:
    shared = [
        msgspec.structs.replace(places(("c", (0,)), cpu_milli=0, memory_mib=0), share=Share(50, 1, policy))
        for policy in ("elastic", "fixed-share")
    ]
    book.recover(step(1, to=shared[0]), step(1, to=shared[1], uid=OTHER))


def reserves_more_of_a_shared_chip_than_there_is(book: Book) -> None:
    shared = msgspec.structs.replace(places(("c", (0,)), cpu_milli=0, memory_mib=0), share=Share(51, 1, "elastic"))
    book.recover(step(1, to=shared), step(1, to=shared, uid=OTHER))


def reserves_more_memory_of_a_shared_chip_than_there_is(book: Book) -> None:
    shared = msgspec.structs.replace(
        places(("c", (0,)), cpu_milli=0, memory_mib=0), share=Share(20, 20 * 1024, "elastic")
    )
    book.recover(step(1, to=shared), step(1, to=shared, uid=OTHER))


def reserves_a_shared_chip_that_somebody_has_whole(book: Book) -> None:
    shared = msgspec.structs.replace(places(("a", (2,)), cpu_milli=0, memory_mib=0), share=Share(50, 1, "elastic"))
    book.recover(step(1, to=shared))


PLANTED: Mapping[str, tuple[Plant, ...]] = {
    "recovers what nobody has": (
        recovers_unplaced,
        recovers_an_earlier_attempt,
        recovers_pods_that_are_adopted,
    ),
    "a rank is released twice": (releases_a_rank_twice,),
    "released what nobody has": (releases_an_attempt_that_has_nothing,),
    "a backup pod gives back what it does not have": (
        gives_a_backup_back_that_never_was,
        gives_a_backup_back_twice,
        gives_a_backup_back_that_has_the_rank,
    ),
    "holds what it does not own": (holds_places_of_another_attempt, holds_a_rank_that_is_released, holds_twice),
    "places are held no longer that were not held": (ends_a_hold_that_never_was, ends_a_hold_twice),
    "a chip has two owners": (
        gives_a_place_that_another_has,
        gives_a_place_that_is_reserved,
        gives_a_place_that_a_rank_still_leaves,
        gives_a_place_of_another_rank_of_the_job,
        gives_a_place_that_a_backup_has,
        gives_a_backup_the_place_of_its_rank_and_another,
        gives_a_held_place,
        places_a_job_where_another_holds,
        keeps_the_place_of_a_backup_after_the_end,
    ),
    "placed on a node that takes nothing": (gives_a_node_that_is_gone, gives_a_node_that_is_cordoned),
    "placed on a chip that is not to be had": (gives_a_chip_that_is_unhealthy, gives_a_backup_a_chip_that_is_withheld),
    "placed on a node that takes no new work": (gives_a_node_that_takes_no_new_work,),
    "more cpu is given than there is": (gives_more_cpu_than_what_is_reserved_leaves,),
    "more memory is given than there is": (gives_more_memory_than_what_is_held_leaves,),
    "an attempt is placed twice": (places_an_attempt_twice,),
    "a chip has two policies": (reserves_a_shared_chip_by_another_policy,),
    "more than a chip's cores are given": (reserves_more_of_a_shared_chip_than_there_is,),
    "more memory of a chip is given than there is": (reserves_more_memory_of_a_shared_chip_than_there_is,),
    "a shared chip is owned": (reserves_a_shared_chip_that_somebody_has_whole,),
}
"""What each rule must notice."""


@pytest.mark.parametrize(
    ("rule", "plant"),
    [pytest.param(rule, plant, id=plant.__name__) for rule, plants in PLANTED.items() for plant in plants],
)
def test_what_breaks_a_rule_is_noticed(rule: str, plant: Plant) -> None:
    with pytest.raises(Failure) as caught:
        plant(Book())
    assert caught.value.kind == f"accounts: {rule}"


def test_a_rank_has_its_old_place_until_it_is_released_and_then_its_new_one() -> None:
    book = Book()
    book.recover(step(1, to=places(("c", FIRST))))
    assert book.expected_of(JOB) == {1: ("c", FIRST)}
    assert book.places_of(JOB) == {0: ("a", FIRST), 1: ("b", FIRST)}
    book.release(let_go(1))
    assert (book.places_of(JOB)[1], book.expected_of(JOB)) == (("c", FIRST), {})
    book.recover(step(1, to=places(("b", FIRST)), uid=OTHER))


def test_a_rank_may_get_its_own_place_back_which_it_has_once() -> None:
    book = Book()
    book.recover(step(1, to=places(("b", FIRST))))
    assert book.expected_of(JOB) == {}
    book.release(let_go(1))
    assert book.places_of(JOB)[1] == ("b", FIRST)


def test_a_later_step_frees_what_was_reserved_before_it() -> None:
    book = Book()
    book.recover(step(1, to=places(("c", FIRST))))
    book.recover(step(1))
    book.recover(step(1, to=places(("c", FIRST)), uid=OTHER))
    book.release(let_go(1))
    book.recover(step(1, how="place", to=places(("c", SECOND))))
    assert book.places_of(JOB)[1] == ("c", SECOND)


def test_the_end_of_an_attempt_frees_what_is_reserved_but_for_backups() -> None:
    book = Book()
    book.recover(step(0, to=places(("c", FIRST))), step(1, how="backup", to=places(("c", SECOND))))
    book.recover(step(0, 1, scope="job"))
    assert book.expected_of(JOB) == {1: ("c", SECOND)}
    book.recover(step(1, to=places(("c", FIRST)), uid=OTHER))
    book.release(let_go(1, backup=True), Release(JOB, 1, "fault", again=True))
    book.recover(step(1, to=places(("c", SECOND)), uid=OTHER))


def found_on(node: str, *pods: tuple[int, int], number: int = 1) -> PodsSeen:
    """Pods of job ``j`` (rank, chips as a mask) that run on a node, and were bound for a step of this number."""
    return PodsSeen(
        "default", "j", JOB, 1, rank=pack([rank for rank, _ in pods], 4), nodes=pack_names([node]),
        node_index=pack([0] * len(pods), 4), phase=bytes(PodPhase.RUNNING for _ in pods),
        chips=pack([mask for _, mask in pods], 8), steps=pack([number] * len(pods), 4),
    )  # fmt: skip


def test_a_step_that_is_known_from_its_pods_gives_what_these_have_even_if_it_is_more_than_there_is() -> None:
    book = Book()
    book.nodes["c"] = a_node("c", cpu_milli=CPU)
    book.pods = {("default", "j"): found_on("c", (0, 0b11), (1, 0b1100))}
    book.recover(step(0, 1, to=places(("c", FIRST), ("c", SECOND))))
    assert book.expected_of(JOB) == {0: ("c", FIRST), 1: ("c", SECOND)}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(found_on("c", (0, 0b11), (1, 0b1100), number=2), id="pods of another step"),
        pytest.param(found_on("c", (0, 0b11)), id="a pod of one rank alone"),
        pytest.param(found_on("c", (0, 0b11), (1, 0b110000)), id="other chips"),
        pytest.param(found_on("b", (0, 0b11), (1, 0b1100)), id="another node"),
    ],
)
def test_a_step_to_places_other_than_those_of_its_pods_gives_no_more_than_there_is(seen: PodsSeen) -> None:
    book = Book()
    book.nodes["c"] = a_node("c", cpu_milli=CPU)
    book.pods = {("default", "j"): seen}
    with pytest.raises(Failure, match="more cpu is given"):
        book.recover(step(0, 1, to=places(("c", FIRST), ("c", SECOND))))


def placed_with_a_pod_that_is_gone(*, is_seen: bool) -> Book:
    """Job ``j`` has nothing on c: rank 0 asks for nothing, and rank 1, which asks for memory, is gone."""
    book = Book()
    task = msgspec.structs.replace(a_job("j").tasks[0], replicas=1, chips=0, cpu_milli=0, memory_mib=0)
    tasks = [task, msgspec.structs.replace(task, name="rest", memory_mib=MEMORY)]
    request = msgspec.structs.replace(a_job("j"), tasks=tasks)
    book.jobs = {("default", "j"): JobSeen("default", "j", JOB, "accepted", 1, request=request)}
    if is_seen:
        book.pods = {("default", "j"): msgspec.structs.replace(found_on("c", (0, 0)), attempt=2)}
    placement = placement_of(["c", "c"], [(), ()], [Run(1, 0, 0, 0), Run(1, 0, 0, 0)], resource="")
    book.write(verdicts=[Verdict("default", "j", JOB, 2, placement)])
    return book


def test_of_pods_that_are_found_one_that_is_gone_may_have_nothing_beside_one_that_asks_for_nothing() -> None:
    book = placed_with_a_pod_that_is_gone(is_seen=True)
    assert book.places_of(JOB, 2) == {0: ("c", ()), 1: ("c", ())}


def test_a_pod_that_asks_for_memory_gets_some_where_none_is_found() -> None:
    with pytest.raises(Failure, match="a gang is not what was asked for"):
        placed_with_a_pod_that_is_gone(is_seen=False)


def test_a_job_that_restarts_for_a_place_has_it_reserved_until_it_is_placed() -> None:
    book = Book()
    book.recover(step(0, 1, scope="job", to=places(("c", FIRST), ("b", FIRST))))
    book.release(let_go(0))
    assert book.expected_of(JOB) == {0: ("c", FIRST)}, "no rank of this attempt gets it"
    with pytest.raises(Failure, match="a chip has two owners"):
        deepcopy(book).recover(step(1, to=places(("c", FIRST)), uid=OTHER))
    book.release(Release(JOB, 1, "fault", again=True), keeps=[held(0, 1)])
    assert {rank: place_of(pod) for rank, pod in book.accounts.held[JOB].items()} == {0: ("c", FIRST), 1: ("b", FIRST)}


def test_a_mark_changes_nothing() -> None:
    book = Book()
    book.recover(step(1, to=places(("c", FIRST))))
    book.recover(step(1, how="mark"))
    assert book.expected_of(JOB) == {1: ("c", FIRST)}


def test_a_job_returns_to_what_is_held_or_leaves_it_to_others() -> None:
    book = Book()
    book.restart(0)
    book.write(verdicts=[book.verdict(JOB, ("a", FIRST), ("c", FIRST), attempt=2)], held=[held()])
    assert book.places_of(JOB, 2) == {0: ("a", FIRST), 1: ("c", FIRST)}
    assert book.accounts.held == {}
    book.restart(0, 1, uid=OTHER)
    book.write(held=[held(uid=OTHER)])
    book.write(recoveries=[msgspec.structs.replace(step(1, to=places(("b", SECOND))), attempt=2)])
    assert (book.accounts.held, list(book.accounts.owned)) == ({}, [(JOB, 2)])


def test_a_corrected_rank_has_the_chips_of_its_pod() -> None:
    book = Book()
    book.write(corrections=[Correction(JOB, 1, [0], [list(THIRD)])])
    assert [(pod.node, pod.chips) for pod in book.accounts.owned[JOB, 1].values()] == [("a", THIRD), ("b", FIRST)]
    with pytest.raises(Failure, match="a rank that has nothing is corrected"):
        book.write(corrections=[Correction(JOB, 2, [0], [list(THIRD)])])
