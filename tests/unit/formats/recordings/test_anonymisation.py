"""Names in recordings: what counts as one, what is put in its place, and that everything is decided as before."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from berth.core.chips import form_selection, soft_share_table
from berth.core.cluster import domains
from berth.core.cluster.node_packing import pack_nodes
from berth.core.requests import gangs, job_validation
from berth.core.state.ledger import LedgerDump
from berth.core.topologies.blocks import request, validation
from berth.core.topologies.levels.request import AFFINITY_CONFIG, TOPOTREE
from berth.core.topologies.switches.demand import TOR_AFFINITY
from berth.formats.recordings.anonymisation import MESSAGES, Anonymiser
from berth.formats.recordings.anonymisation_rules import (
    JOB_KEY,
    KEPT_KEYS,
    LINKED,
    RULES,
    SERVICE_KEY,
    Kind,
    Special,
)
from berth.products.catalogue import FORMS, NODE_PRODUCTS
from berth.products.model import ANNOTATION_POLICY, LABEL_TYPE, MIN_AVAILABLE, SKIP_PLUGIN
from berth.runtime.recording import read_file, record
from berth.schemas.constraints import Expression, Term
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, Leaf, NodesSeen, PodPhase, TopologySeen
from berth.schemas.ledger import Round, Settings
from berth.schemas.message import Message
from berth.schemas.recording import BEGINNING, Entry, RecordingHead
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import StreamName
from tests.contract.sample_messages import samples
from tests.support.anonymous import Log, anonymised, decided, left_of, old_names, texts_in
from tests.support.cells import Cell, a_job, a_node
from tests.support.recordings import head_at

LARGE = "large-model-schema"


def structs_in(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """A struct and all that are inside it."""
    match kind:
        case inspect.StructType():
            yield kind
            for field in kind.fields:
                yield from structs_in(field.type)
        case inspect.UnionType():
            for inner in kind.types:
                yield from structs_in(inner)
        case inspect.ListType() | inspect.VarTupleType():
            yield from structs_in(kind.item_type)
        case inspect.DictType():
            yield from structs_in(kind.value_type)
        case _:
            pass


def has_text(kind: inspect.Type) -> bool:
    """Whether a field has texts of its own."""
    match kind:
        case inspect.LiteralType():
            return any(isinstance(value, str) for value in kind.values)
        case inspect.UnionType():
            return any(map(has_text, kind.types))
        case inspect.ListType() | inspect.VarTupleType():
            return has_text(kind.item_type)
        case inspect.TupleType():
            return any(map(has_text, kind.item_types))
        case inspect.DictType():
            return has_text(kind.key_type) or has_text(kind.value_type)
        case _:
            return isinstance(kind, inspect.StrType)


def all_structs() -> dict[str, inspect.StructType]:
    kinds = [inspect.type_info(kind) for kind in (*MESSAGES.values(), LedgerDump)]
    return {struct.cls.__name__: struct for kind in kinds for struct in structs_in(kind)}


def test_every_text_of_every_message_has_a_rule() -> None:
    structs = all_structs()
    assert set(RULES) == set(structs)
    for name, struct in structs.items():
        tables = {field.name for field in struct.fields if RULES[name].get(field.name) is Special.TABLE}
        assert set(RULES[name]) - tables == {field.name for field in struct.fields if has_text(field.type)}, name
        wanted = {"names", "nodes"} & {
            field.name for field in struct.fields if isinstance(field.type, inspect.BytesType)
        }
        assert tables == wanted, name


def test_labels_that_decide_by_their_value_are_kept() -> None:
    read = {
        MIN_AVAILABLE, SKIP_PLUGIN, TOR_AFFINITY, job_validation.SUB_HEALTHY, job_validation.GANG_PODS, job_validation.SHARE_AICORE, job_validation.SHARE_HBM,
        job_validation.SHARE_POLICY, *job_validation.LABEL_VALUES, ANNOTATION_POLICY, form_selection.SP_BLOCK, LABEL_TYPE,
        form_selection.STRATEGY_310, form_selection.DUO, form_selection.DISTRIBUTED, soft_share_table.ENABLE_LABEL, soft_share_table.MEMORY_LABEL, validation.RA_BLOCK,
        validation.SUPER_POD_AFFINITY, validation.UB_MEMORY, request.SP_FIT, AFFINITY_CONFIG,
        TOPOTREE, "framework",
    }  # fmt: skip
    for product in NODE_PRODUCTS.values():
        read.update(product.labels, product.selector, product.job_labels)
    for form in FORMS.values():
        if form.one_pod_label is not None:
            read.add(form.one_pod_label[0])
    assert read <= KEPT_KEYS
    assert SERVICE_KEY == request.SERVICE_LABEL
    assert JOB_KEY == gangs.BESIDE


@pytest.mark.parametrize(
    "message", [message for kind, message in samples().items() if kind in MESSAGES], ids=lambda one: one.KIND
)
def test_nothing_of_a_name_is_left_in_any_message(message: Message) -> None:
    is_fact = message.KIND.startswith("fact.")
    entry = Entry(1, encode(message), f"berth.c.{message.KIND}.x" if is_fact else "")
    anonymiser, log = anonymised(head_at(), [entry])
    made = decode(log[1][0].data, type(message))
    assert len(encode(made)) > 3
    assert left_of(anonymiser, log, but=("accepted",)) == []  # also the state of a job


def test_names_keep_their_order_and_numbers_stay_numbers() -> None:
    pods = [str(number) for number in (9, 10, 100)] + ["sp-b", "sp-a"]
    fact = NodesSeen(
        domain="d", names=b"", classes=[], class_index=b"", chips=b"", allocatable=b"", cpu_milli=b"", memory_mib=b"",
        superpods=pods, leaves=["leaf-z", "leaf-b", "10.1.1.1"], racks=["7", "r"], addresses=["10.0.0.2", "10.0.0.1"],
    )  # fmt: skip
    _, log = anonymised(head_at(), [Entry(1, encode(fact), "berth.x.fact.node.d")])
    made = decode(log[1][0].data, NodesSeen)
    assert made.superpods == ["9", "10", "100", "group-2", "group-1"]
    assert made.leaves == ["leaf-3", "leaf-2", "leaf-1"]
    assert made.racks == ["7", "rack-1"]
    assert made.addresses == ["address-2", "address-1"]
    assert log[1][0].subject == "berth.cell.fact.node.domain-1"


def test_a_domain_keeps_its_shard() -> None:
    domains = [f"domain of {number}" for number in range(40)]
    entries = [
        Entry(number, b"", f"berth.x.fact.node.{token}") for number, token in enumerate(map(escaped, domains), 1)
    ]
    rounds = [encode(Round(1, 0, 0, 0, 1, missing=[0], shards=count)) for count in (3, 8)]
    entries += [Entry(number, data) for number, data in enumerate(rounds, 1)]
    anonymiser, _ = anonymised(head_at(), entries)
    made = [anonymiser.name(Kind.DOMAIN, domain) for domain in domains]
    assert sorted(made) == [anonymiser.name(Kind.DOMAIN, domain) for domain in sorted(domains)]
    for count in (3, 8):
        assert [zlib.crc32(one.encode()) % count for one in made] == [
            zlib.crc32(one.encode()) % count for one in domains
        ]


def escaped(name: str) -> str:
    return name.replace(" ", "=20")


def test_refusals_that_speak_of_others_lose_their_names() -> None:
    refusals = [
        Refusal(
            code="name-in-use",
            field="name",
            value="team-red/llama",
            expected="another name, or the end of the job that has it (uid 1234-red)",
        ),
        Refusal(
            code="invalid-request",
            field="uid",
            value="1234-red",
            expected="another uid: the job team-red/llama has this one",
        ),
        Refusal(code="behind", ahead="team-red/llama"),
        Refusal(code="invalid-argument", field="labels.tor-affinity", value="odd", expected="one of a, b"),
        Refusal(
            code="invalid-argument", field="annotations.huawei.com/affinity-config.level1", value="3x", expected="a"
        ),
    ]
    facts = [
        JobSeen("team-red", "llama", "1234-red", "rejected", number, refusal=refusal)
        for number, refusal in enumerate(refusals, 1)
    ]
    entries = [Entry(number, encode(fact), "berth.x.fact.job.a.b") for number, fact in enumerate(facts, 1)]
    _, log = anonymised(head_at(), entries)
    made = [decode(entry.data, JobSeen).refusal for entry in log[1]]
    assert [(one.value, one.expected, one.ahead) for one in made if one is not None] == [
        ("ns-2/job-2", "another name, or the end of the job that has it (uid uid-1)", ""),
        ("uid-1", "another uid: the job ns-2/job-2 has this one", ""),
        ("", "", "ns-2/job-2"),
        ("odd", "one of a, b", ""),
        ("3x", "a", ""),
    ]
    assert not any("red" in text or "llama" in text for text in texts_in(log))


def test_who_approved_a_recovery_loses_the_name() -> None:
    causes = [f"pod of rank 0 on rack-red: CardUnhealthy; {by} approved it" for by in ("llama", "a person")]
    steps = [
        Recovery("team", "job", f"uid-{number}", 1, 1, "CardUnhealthy", cause, "pod", "grace", [0], [0], 9)
        for number, cause in enumerate(causes)
    ]
    _, log = anonymised(head_at(), [Entry(1, encode(Round(1, 0, 0, 9, 1, recoveries=steps)))])
    assert [step.cause for step in decode(log[1][0].data, Round).recoveries] == [
        "pod of rank 0 on node-1: CardUnhealthy; holder-1 approved it",
        "pod of rank 0 on node-1: CardUnhealthy; a person approved it",
    ]


def test_what_does_not_decode_stays_so_and_says_nothing() -> None:
    entries = [
        Entry(1, b"the secret", "berth.x.fact.job.secret.name"),
        Entry(2, msgspec.msgpack.encode(("fact.later", 1, ["the secret"])), "berth.x.fact.later.secret"),
        Entry(3, msgspec.msgpack.encode(("fact.timer", 1, ["the secret"])), "berth.x.secret"),
    ]
    _, log = anonymised(head_at(), entries)
    assert not any("secret" in text for text in texts_in(log))
    assert [entry.subject for entry in log[1]] == ["berth.cell.fact.job.ns-1.job-1", *["berth.cell.fact.strange"] * 2]


async def lived(cell: Cell) -> None:
    """Jobs of all policies come, wait, are placed, end; names are such that their order decides."""
    nodes = [
        a_node(name, labels=a_node(name).labels | {"zone": name[-1], "gen": str(len(name))})
        for name in ("zed", "adam", "mimi")
    ]
    nodes += [a_node(f"sw{leaf}{place}", leaf=f"tor-{leaf}", position=place) for leaf in range(3) for place in range(2)]
    nodes += [
        a_node(f"pod{pod}-{index}", "superpod910a3x16", superpod=pod)
        for pod in ("2", "10", "north")
        for index in range(4)
    ]
    await cell.nodes(nodes)
    leaves = [Leaf(f"tor-{leaf}", f"10.9.{leaf}.1", [f"sw{leaf}{place}" for place in range(2)]) for leaf in range(3)]
    topology = TopologySeen("switch", leaves, level="double_layer", places=2)
    await cell.user.publish(cell.user.subjects.fact_topology("switch"), encode(topology))
    await cell.turns()
    near_adam = [Term((Expression("metadata.name", "In", ("adam",)),))]
    strong = [Term((Expression("gen", "Gt", ("3",)), Expression("zone", "NotIn", ("i",))))]
    await cell.submit(a_job("plain", chips=4), a_job("wide", chips=8, replicas=2), a_job("huge", chips=8, replicas=60))
    for name, terms in (("tied", near_adam), ("picky", strong), ("hopeless", near_adam)):
        job = a_job(name, chips=8)
        await cell.submit(msgspec.structs.replace(job, tasks=[msgspec.structs.replace(job.tasks[0], affinity=terms)]))
    await cell.turns(2)
    await cell.submit(a_job("leafy", chips=8, replicas=4, labels={"tor-affinity": LARGE, "team": "blue"}))
    block = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": "32"}
    await cell.submit(
        a_job("blocky", chips=16, replicas=4, product="superpod910a3x16", annotations=block),
        a_job("odd", chips=3, labels={"tor-affinity": "odd"}),
    )
    await cell.turns(2)
    await cell.pods("wide", PodPhase.RUNNING, PodPhase.RUNNING)
    await cell.submit(a_job("late", chips=8), a_job("later", chips=8))
    await cell.turns()
    await cell.pods("wide", PodPhase.SUCCEEDED, PodPhase.SUCCEEDED)
    await cell.cancel("plain")
    await cell.turns(3)


async def recorded(cell: Cell, path: Path) -> Log:
    await record(cell.user, cell.clock, path)
    with read_file(path) as reading:
        return reading.head, list(reading)


@pytest.mark.parametrize("shards", [0, 3])
@pytest.mark.parametrize("late", [False, True])
async def test_a_recording_without_names_is_decided_as_before(shards: int, late: bool, tmp_path: Path) -> None:  # noqa: FBT001  # a parameter of the test
    cell = await Cell(shards=shards, round_gangs_max=2).open()
    if late:
        await cell.submit(a_job("early", chips=64))
        await cell.turns(2)
    await lived(cell)
    if late:
        await cell.dispatcher.snapshots.write()
        await cell.submit(a_job("after", chips=1), a_job("after-that", chips=2))
        await cell.turns(2)
        await cell.user.purge(StreamName.LEDGER, keep_from_seq=2)
    log = await recorded(cell, tmp_path / "named.rec")
    assert (log[0].start.ledger_seq > 0) == late
    rounds = decided(log)
    assert rounds >= (1 if late else 6)
    anonymiser, anonymous = anonymised(*log)
    assert decided(anonymous) == rounds
    assert len(old_names(anonymiser)) > 30
    assert left_of(anonymiser, anonymous) == []
    await cell.close()


def test_new_names_of_domains_keep_their_order_and_whether_their_nodes_are_linked() -> None:
    """A plan prefers nodes beside one another, and a fault waits for others of its SuperPoD or leaf switch."""
    assert domains.LINKED == LINKED
    names = ["bucket-0", "bucket-all", "leaf-a", "leaf-b", "rack-1", "superpod-0", "superpod-12", "ungrouped-0"]
    anonymiser = Anonymiser(RecordingHead("0.5", "cell", 1, Settings(), BEGINNING), LedgerDump)
    for number, name in enumerate(reversed(names), 1):
        fact = encode(pack_nodes(name, [], at_ms=1))
        anonymiser.learn(Entry(number, fact, f"berth.cell.fact.node.{name}"))
    anonymiser.settle()
    new = [anonymiser.name(Kind.DOMAIN, name) for name in names]
    assert new == sorted(new)
    assert [domains.is_linked(name) for name in new] == [domains.is_linked(name) for name in names]
    assert not set(names) & set(new)
