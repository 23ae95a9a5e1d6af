"""Bound pods compared with one another and with the ledger."""

import msgspec
import pytest

from berth.core.state.ledger import LedgerFold
from berth.core.verification.findings import RESTORE
from berth.core.verification.pod_check import BoundPod, are_records_lost, pod_finding, twice_given
from berth.schemas.columns import pack, pack_names
from berth.schemas.ledger import Adoption, Epoch, Round, Settings, Verdict
from berth.schemas.placement import Placement, Run

STREAM = "made then"
DELETE = "kubectl delete pod -n ns {}"


def place(*nodes: str, chips: tuple[int, ...]) -> Placement:
    """A place for one pod on each node, each with these chips."""
    return Placement(
        nodes=pack_names(list(nodes)),
        node_index=pack(range(len(nodes)), 4),
        runs=[Run(len(nodes), len(chips))],
        chips=pack(list(chips) * len(nodes), 1),
        resource="huawei.com/npu",
    )


@pytest.fixture
def fold() -> LedgerFold:
    made = LedgerFold()
    made.apply(1, made.encoded(Epoch(1, 0, 0, 10, "d", Settings())))
    made.apply(
        2,
        made.encoded(
            Round(
                1, 1, 0, 20, 1,
                verdicts=[Verdict("ns", "job", "uid-job", 1, place("a", "b", chips=(0, 1)))],
                adoptions=[Adoption("ns", "pod/old", "uid-old", place("a", chips=(5,)))],
            )
        ),
    )  # fmt: skip
    return made


POD = BoundPod(
    name="ns/first",
    uid="u1",
    node="a",
    chips=0b11,
    is_shared=False,
    job_uid="uid-job",
    attempt=1,
    rank=0,
    wrong="",
    stream=STREAM,
    sequence=2,
)


def code(pod: BoundPod, fold: LedgerFold, last_seq: int = 2) -> tuple[str, str]:
    found = pod_finding(pod, fold, stream=STREAM, last_seq=last_seq, are_lost=True)
    return ("", "") if found is None else (found.code, found.repair)


def changed(**fields: object) -> BoundPod:
    return msgspec.structs.replace(POD, **fields)


@pytest.mark.parametrize(
    "pod",
    [
        POD,
        changed(rank=1, node="b"),
        changed(stream="another", sequence=99),
        changed(stream="", sequence=0),
        changed(job_uid="", node="c", chips=0b1000),  # bound by another scheduler
        changed(uid="uid-old", job_uid="forgotten", attempt=7, rank=3, chips=0b100000),  # adopted
        changed(chips=0, is_shared=True),
    ],
)
def test_pods_at_the_places_of_the_ledger(pod: BoundPod, fold: LedgerFold) -> None:
    assert code(pod, fold) == ("", "")


@pytest.mark.parametrize(
    ("pod", "wanted"),
    [
        (changed(rank=1), "pod-elsewhere"),
        (changed(rank=2), "pod-elsewhere"),
        (changed(chips=0b111), "pod-elsewhere"),
        (changed(node="b", is_shared=True), "pod-elsewhere"),
        (changed(attempt=2), "pod-without-record"),
        (changed(job_uid="gone"), "pod-without-record"),
        (changed(job_uid="", wrong="annotation berth/rank is 'x'"), "unreadable-pod"),
    ],
)
def test_pods_that_are_not(pod: BoundPod, wanted: str, fold: LedgerFold) -> None:
    assert code(pod, fold) == (wanted, DELETE.format("first"))


@pytest.mark.parametrize(
    "pod", [changed(chips=0b1100), changed(chips=0b110), changed(uid="uid-old", job_uid="forgotten", chips=0b1)]
)
def test_pods_with_other_chips_of_their_nodes_stay(pod: BoundPod, fold: LedgerFold) -> None:
    assert code(pod, fold) == ("chips-elsewhere", "")


def test_a_pod_that_does_not_name_all_of_its_chips_has_them(fold: LedgerFold) -> None:
    assert code(changed(chips=0b10), fold) == ("", "")


def test_a_record_that_the_ledger_does_not_have(fold: LedgerFold) -> None:
    assert code(POD, fold, last_seq=1) == ("pod-ahead", RESTORE)
    assert code(changed(job_uid="gone"), fold, last_seq=1) == ("pod-ahead", RESTORE)


def test_one_node_alone_does_not_say_that_records_are_lost_where_pods_have_codes(fold: LedgerFold) -> None:
    one = changed(sequence=9, has_code=True)
    other = changed(name="ns/second", uid="u2", node="b", sequence=8, has_code=True)
    known = changed(name="ns/third", uid="u3", node="c", has_code=True)
    assert not are_records_lost([one, known], stream=STREAM, last_seq=2)
    assert are_records_lost([one, other], stream=STREAM, last_seq=2)
    assert are_records_lost([changed(sequence=9)], stream=STREAM, last_seq=2)
    found = pod_finding(one, fold, stream=STREAM, last_seq=2, are_lost=False)
    assert found is not None
    assert (found.code, found.repair) == ("pod-ahead", "kubectl get pod -n ns first -o yaml")


def test_ranks_that_gave_back_what_they_had_have_no_place(fold: LedgerFold) -> None:
    holding = fold.holdings["uid-job", 1]
    fold.holdings["uid-job", 1] = msgspec.structs.replace(holding, gone=[0])
    fold.load(fold.dump())
    assert code(POD, fold)[0] == "pod-elsewhere"
    assert code(changed(rank=1, node="b"), fold)[0] == ""


def test_chips_that_two_pods_have() -> None:
    pods = [
        POD,
        changed(name="ns/second", uid="u2", chips=0b110),
        changed(name="ns/third", uid="u3", node="b"),
        changed(name="ns/shared", uid="u4", is_shared=True),
        changed(name="ns/whole", uid="u5", chips=0b100),
    ]
    found = [(one.name, one.text.partition(";")[0], one.repair) for one in twice_given(pods)]
    assert found == [
        ("ns/second", "pod ns/first on node a has chips 1 too", DELETE.format("second")),
        ("ns/whole", "pod ns/second on node a has chips 2 too", DELETE.format("whole")),
    ]
