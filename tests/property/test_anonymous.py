"""Recordings without names, whatever the names are: order and shards are kept, names stay distinct, nothing is left."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_groups import group_key
from berth.core.state.ledger import LedgerDump
from berth.formats.recordings.anonymisation import Anonymiser
from berth.formats.recordings.anonymisation_rules import Kind
from berth.schemas.columns import pack, pack_names, unpack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, NodeClass, NodesSeen, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round
from berth.schemas.recording import Entry
from berth.schemas.subjects import Subjects
from tests.support.anonymous import anonymised, left_of
from tests.support.recordings import head_at

SUBJECTS = Subjects("cell of ours")
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
KUBE_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)


def nodes_seen(domain: str, names: list[str], superpods: list[str], labels: dict[str, str]) -> NodesSeen:
    rows = len(names)
    return NodesSeen(
        domain=domain,
        names=pack_names(sorted(names)),
        classes=[NodeClass("form", "huawei.com/Ascend910", labels)],
        class_index=pack([0] * rows, 2),
        chips=pack([255] * rows, 8),
        allocatable=pack([8] * rows, 2),
        cpu_milli=pack([1] * rows, 4),
        memory_mib=pack([1] * rows, 4),
        superpods=superpods,
    )


@given(st.sets(NAMES, min_size=1, max_size=30))
def test_names_of_every_kind_keep_their_order_and_two_names_stay_two(names: set[str]) -> None:
    ordered = sorted(names)
    entry = Entry(1, encode(nodes_seen("d", ordered, ordered, {"zone": "x"})), SUBJECTS.fact_node("d"))
    anonymiser, log = anonymised(head_at(), [entry])
    made = decode(log[1][0].data, NodesSeen)
    nodes = unpack_names(made.names)
    assert nodes == sorted(set(nodes))
    assert len(nodes) == len(ordered)
    assert nodes == [anonymiser.name(Kind.NODE, name) for name in ordered]
    assert len(set(made.superpods)) == len(ordered)
    by_new = sorted(range(len(ordered)), key=lambda index: group_key(made.superpods[index]))
    assert by_new == sorted(range(len(ordered)), key=lambda index: group_key(ordered[index]))


@given(st.sets(NAMES, min_size=1, max_size=12), st.sets(st.integers(2, 9), max_size=2))
def test_domains_keep_their_shard_for_every_number_of_shards_that_a_round_speaks_of(
    domains: set[str], shards: set[int]
) -> None:
    facts = [
        Entry(number, encode(nodes_seen(domain, ["n"], [], {})), SUBJECTS.fact_node(domain))
        for number, domain in enumerate(sorted(domains), 1)
    ]
    records = [
        Entry(number, encode(Round(1, 0, 0, 0, 1, missing=[0], shards=count))) for number, count in enumerate(shards, 1)
    ]
    anonymiser, log = anonymised(head_at(), [*facts, *records])
    made = [anonymiser.name(Kind.DOMAIN, domain) for domain in sorted(domains)]
    assert made == sorted(set(made))
    assert [decode(entry.data, NodesSeen).domain for entry in log[1][: len(facts)]] == made
    assert [entry.subject for entry in log[1][: len(facts)]] == [Subjects("cell").fact_node(name) for name in made]
    for count in shards:
        for old, new in zip(sorted(domains), made, strict=True):
            assert zlib.crc32(old.encode()) % count == zlib.crc32(new.encode()) % count


@given(st.lists(KUBE_NAMES, min_size=8, max_size=8, unique=True), st.integers(1, 3))
def test_nothing_is_left_and_what_belongs_together_still_does(names: list[str], attempt: int) -> None:
    marked = [f"{name}-zz{number}" for number, name in enumerate(names)]
    namespace, job, uid, node, value, queue, pod, domain = marked
    request = JobRequest(
        namespace=namespace,
        name=job,
        uid=uid,
        resource="huawei.com/Ascend910",
        tasks=[Task("main", 1, 1, node_selector={"kubernetes.io/hostname": node})],
        labels={"team": value, "tor-affinity": "normal-schema"},
        queue=queue,
    )
    pods = PodsSeen(
        namespace,
        job,
        uid,
        attempt,
        rank=pack([0], 4),
        nodes=pack_names([node]),
        node_index=pack([0], 4),
        phase=b"\1",
        chips=pack([1], 8),
        service=pod,
    )
    entries = [
        Entry(1, encode(nodes_seen(domain, [node], [pod], {"team": value})), SUBJECTS.fact_node(domain)),
        Entry(
            2, encode(JobSeen(namespace, job, uid, "accepted", 1, request=request)), SUBJECTS.fact_job(namespace, job)
        ),
        Entry(3, encode(pods), SUBJECTS.fact_pod(namespace, job)),
        Entry(4, b"\xc1" + value.encode(), SUBJECTS.fact_outcome(namespace, job)),
    ]
    anonymiser, log = anonymised(head_at(), entries)
    assert left_of(anonymiser, log) == []
    seen = decode(log[1][0].data, NodesSeen)
    known = decode(log[1][1].data, JobSeen)
    running = decode(log[1][2].data, PodsSeen)
    asked = known.request
    assert asked is not None
    assert (asked.namespace, asked.name, asked.uid) == (known.namespace, known.name, known.uid)
    assert (running.namespace, running.gang, running.uid) == (known.namespace, known.name, known.uid)
    assert asked.tasks[0].node_selector["kubernetes.io/hostname"] == unpack_names(seen.names)[0]
    assert asked.labels == {"team": seen.classes[0].labels["team"], "tor-affinity": "normal-schema"}
    assert log[1][1].subject == Subjects("cell").fact_job(known.namespace, known.name)
    again = Anonymiser(log[0], LedgerDump)
    assert again.head().cell == "cell"
