"""Why a job waits, in one plain sentence with numbers."""

import msgspec
import pytest

from berth.core.explain.refusal_text import reason_words, sentence, within
from berth.schemas.refusal import BlockLack, Code, NearGroup, NodeReason, ReasonCount, Refusal, SwitchLack

R = NodeReason


def no_room(counts: dict[int, int], *, fit: int = 0, have: int = 0, need: int = 1, **more: object) -> str:
    found = [ReasonCount(reason, nodes) for reason, nodes in counts.items()]
    total = fit + sum(counts.values())
    refusal = Refusal("no-room", pods_need=need, pods_have=have, nodes_total=total, nodes_fit=fit, counts=found, **more)  # type: ignore[arg-type]
    return sentence(refusal)


def test_nodes_are_counted_by_what_they_lack() -> None:
    assert no_room({R.TOPOLOGY: 300, R.CPU: 200, R.SHORTAGE: 12}, chips=4, form="module910x8") == (
        "0 of 512 nodes fit: 300 have fewer than 4 free chips in one ring, 200 have too little cpu,"
        " 12 have fewer than 4 free chips"
    )


def test_where_some_pods_find_room_the_sentence_says_how_many() -> None:
    assert no_room({R.SHORTAGE: 2}, fit=2, have=2, need=3, chips=8) == (
        "2 of 3 pods find room, and 2 of 4 nodes fit: 2 have fewer than 8 free chips"
    )
    assert no_room({}, fit=1, have=1, need=3) == "1 of 3 pods finds room, and 1 of 1 node fits"


@pytest.mark.parametrize("code", ["behind", "reserved"])
def test_a_job_ahead_has_a_name_within_its_namespace_alone(code: Code) -> None:
    refusal = Refusal(code, ahead="prod/secret", start_ms=1_000)
    words = sentence(refusal)
    assert within(words, refusal, "prod") == words
    assert "prod/secret" in words
    assert within(words, refusal, "team") == words.replace("prod/secret", "a job of another namespace")
    assert within(words, None, "team") == words


def test_a_cell_without_nodes_says_so() -> None:
    assert no_room({}) == "no node is known yet"


@pytest.mark.parametrize(
    ("reason", "one", "many"),
    [
        (R.OTHER_RESOURCE, "has no chips of this resource", "have no chips of this resource"),
        (R.NOT_READY, "is not ready", "are not ready"),
        (R.CORDONED, "is cordoned", "are cordoned"),
        (R.SELECTOR, "does not match the node selector or affinity", "do not match the node selector or affinity"),
        (R.TAINT, "has a taint that the job does not tolerate", "have a taint that the job does not tolerate"),
        (R.NODE_FAULT, "is faulty or takes no new work", "are faulty or take no new work"),
        (R.SUB_HEALTH, "is sub-healthy", "are sub-healthy"),
        (R.CPU, "has too little cpu", "have too little cpu"),
        (R.MEMORY, "has too little memory", "have too little memory"),
        (
            R.UNSTABLE,
            "reports more free chips than Kubernetes counts",
            "report more free chips than Kubernetes counts",
        ),
        (R.NO_CHIP_LIST, "reports no free chips", "report no free chips"),
        (R.TOO_MANY_CHIPS, "is of another product", "are of another product"),
        (R.SHORTAGE, "has fewer than 2 free chips", "have fewer than 2 free chips"),
        (
            R.TOPOLOGY,
            "has no 2 free chips that belong together",
            "have no 2 free chips that belong together",
        ),
        (
            R.TOPOLOGY_HELPED,
            "has no 2 free chips that belong together",
            "have no 2 free chips that belong together",
        ),
        (R.NODE_LABEL, "lacks a label that the product form needs", "lack a label that the product form needs"),
        (R.QUOTA, "has no chip with room for the quota", "have no chip with room for the quota"),
        (R.SHARD_MISSING, "belongs to a scorer that did not answer", "belong to a scorer that did not answer"),
        (R.UNKNOWN_PRODUCT, "is of an unknown product", "are of an unknown product"),
        (R.NO_SUPERPOD, "is in no SuperPoD or rack that is known", "are in no SuperPoD or rack that is known"),
        (R.NO_LEVEL, "lacks labels of the levels that the job needs", "lack labels of the levels that the job needs"),
    ],
)
def test_every_reason_has_words_for_one_node_and_for_many(reason: NodeReason, one: str, many: str) -> None:
    assert reason_words(reason, nodes=1, chips=2, form="") == one
    assert reason_words(reason, nodes=2, chips=2, form="") == many


def test_no_reason_is_without_words() -> None:
    words = {reason_words(reason, nodes=2, chips=4, form="") for reason in NodeReason if reason != NodeReason.FITS}
    assert len(words) == len(NodeReason) - 2, "one sentence is that of two reasons"


@pytest.mark.parametrize(
    ("reason", "form", "words"),
    [
        (R.SHORTAGE, "", "1 has fewer than 1 free chip"),
        (R.TOPOLOGY, "", "1 has no usable free chip"),
        (R.TOPOLOGY, "310-card", "1 has fewer than 1 free chip on one card"),
    ],
)
def test_one_chip_is_not_said_as_many(reason: NodeReason, form: str, words: str) -> None:
    assert no_room({reason: 1}, chips=1, form=form) == f"0 of 1 node fits: {words}"


@pytest.mark.parametrize(
    ("form", "where"),
    [
        ("module910x8", "in one ring"),
        ("module910bx16", "in one ring, or as pairs across the rings"),
        ("module910a3x16", "in whole pairs"),
        ("module910a3x8", "in whole pairs"),
        ("chip4-node8", "in whole meshes of 4"),
        ("chip4-node16", "in whole meshes of 4"),
        ("310-card", "on one card"),
        ("310p-duo-card", "on one card"),
        ("310p-duo-chip", "on whole cards"),
    ],
)
def test_chips_that_do_not_belong_together_are_told_in_the_words_of_the_product(form: str, where: str) -> None:
    assert reason_words(R.TOPOLOGY, nodes=3, chips=4, form=form) == f"have fewer than 4 free chips {where}"


def test_a_wrong_field_is_named_with_its_value_and_what_was_expected() -> None:
    refusal = Refusal("invalid-request", field="tasks[0].chips", value="3", expected="1 to 8 except 3, 5, 6, 7")
    assert sentence(refusal) == "tasks[0].chips is '3', expected 1 to 8 except 3, 5, 6, 7"
    assert sentence(Refusal("undecodable")) == "undecodable"


def test_a_job_larger_than_the_cluster_is_told_both_numbers() -> None:
    refusal = Refusal(
        "larger-than-cluster",
        field="tasks[0].replicas",
        value="3",
        expected="the job asks for 24 chips of huawei.com/npu, and there are 16 in all, on 2 nodes",
    )
    assert sentence(refusal) == (
        "larger than the cluster: tasks[0].replicas is 3; the job asks for 24 chips of huawei.com/npu,"
        " and there are 16 in all, on 2 nodes"
    )


def test_a_job_for_chips_that_no_node_has_is_told_so_and_not_that_it_is_too_large() -> None:
    refusal = Refusal(
        "larger-than-cluster",
        field="tasks[0].replicas",
        value="1",
        expected="the job asks for 1 chips of huawei.com/Ascend310, and there are 0 in all, on 0 nodes",
        nodes_total=5,
        counts=[ReasonCount(R.OTHER_RESOURCE, 5)],
    )
    assert sentence(refusal) == (
        "no node has such chips: the job asks for 1 chip of huawei.com/Ascend310, and there are 0 in all, on 0 nodes"
    )
    assert sentence(msgspec.structs.replace(refusal, nodes_total=0, counts=[])).startswith("larger than the cluster")


def test_a_job_that_could_not_be_bound_is_told_how_often_it_was_tried() -> None:
    assert sentence(Refusal("bind-failed", value="1")) == "its pods could not be bound in 1 attempt"
    assert sentence(Refusal("bind-failed", value="5")) == "its pods could not be bound in 5 attempts"


def lacking(code: Code, lack: SwitchLack | None, *, fit: int = 64, counts: dict[int, int] | None = None) -> str:
    found = [ReasonCount(reason, nodes) for reason, nodes in (counts or {}).items()]
    total = fit + sum(count.nodes for count in found)
    return sentence(Refusal(code, nodes_total=total, nodes_fit=fit, counts=found, chips=8, switch=lack))


def a_lack(rule: str, need: int, have: int = 0, **more: object) -> SwitchLack:
    fields: dict[str, object] = {
        "policy": "1.0", "rule": rule, "need": need, "have": have, "leaf": "172.16.0.3", "leaf_have": 9, "places": 16,
        "leaves": 6,
    } | more  # fmt: skip
    return SwitchLack(**fields)  # type: ignore[arg-type]  # a builder for tests


@pytest.mark.parametrize(
    ("code", "lack", "words"),
    [
        ("no-leaf", a_lack("one-leaf", 12, 9), "needs 12 nodes under one leaf; the best leaf, 172.16.0.3, has 9"),
        ("no-leaf", a_lack("one-leaf", 1, leaf_have=0), "needs 1 node under one leaf; no leaf has a usable one"),
        ("no-leaf", a_lack("one-leaf", 3, 2, places=2), "needs 3 nodes under one leaf, and a leaf has 2 places"),
        ("no-leaf", a_lack("leaf-size", 18), "18 pods are more than the 16 nodes below a leaf"),
        ("no-leaf", a_lack("leaf-size", 2, places=1), "2 pods are more than the 1 node below a leaf"),
        (
            "no-rows",
            a_lack("logical-switches", 12, 15, places=8, rows=1, rest=4, barred=2),
            "needs 1 complete logical switch of 8 nodes and 4 nodes of another; 0 complete ones can be made of 15 usable"
            " nodes on 6 leaves, 2 of them excluded because of cross jobs",
        ),
        (
            "no-rows",
            a_lack("logical-switches", 16, 15, places=8, rows=2, rows_have=1, leaves=1, barred=1),
            "needs 2 complete logical switches of 8 nodes; 1 complete one can be made of 15 usable nodes on 1 leaf,"
            " excluded because of cross jobs",
        ),
        (
            "no-rows",
            a_lack("logical-switches", 12, 15, places=8, rows=1, rest=4, rows_have=1),
            "needs 1 complete logical switch of 8 nodes and 4 nodes of another; 1 complete one can be made of 15 usable"
            " nodes on 6 leaves, but no further one with 4 nodes",
        ),
        (
            "no-rows",
            a_lack("logical-switches", 12, 15, rest=12),
            "needs 12 nodes under one leaf, or at as many positions; the best leaf, 172.16.0.3, has 9; the positions of 15"
            " usable nodes on 6 leaves are fewer",
        ),
        (
            "no-rows",
            a_lack("logical-switches", 140, 200, places=130, rows=1, rest=10),
            "needs 1 complete logical switch of 130 nodes and 10 nodes of another; leaves of 130 places make no logical"
            " switches, 128 is the most",
        ),
        (
            "no-leaves",
            a_lack("idle-and-shared", 20, 17, policy="2.0", idle=12, shared=5),
            "needs 20 nodes on free leaves and on as many shared ones as a job may use; free leaves have 12 and the best"
            " shared ones 5",
        ),
        (
            "no-leaves",
            a_lack("idle-and-shared", 12, 10, policy="2.0", idle=8, shared=2),
            "needs 12 nodes under one leaf, or on free leaves and on as many shared ones as a job may use; the best leaf,"
            " 172.16.0.3, has 9; free leaves have 8 and the best shared ones 2",
        ),
        (
            "no-leaves",
            a_lack("any-leaf", 20, 17, policy="2.0", idle=12, shared=5),
            "needs 20 nodes on any leaves; the leaves that are open to it have 17",
        ),
        ("no-leaf", a_lack("by-moon", 2, 1), "needs 2 nodes; the places that are open to it have 1"),
        (
            "no-leaves",
            a_lack("any-leaf", 20, 17, barred=1),
            "needs 20 nodes on any leaves; it can use 17 on 6 leaves, 1 of them excluded because of cross jobs",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_below_leaf_switches_is_told_with_numbers(code: Code, lack: SwitchLack, words: str) -> None:
    assert lacking(code, lack) == words


def test_nodes_that_do_not_fit_are_counted_behind_what_is_missing_below_leaves() -> None:
    lack = a_lack("one-leaf", 12, 9)
    head = lacking("no-leaf", lack)
    assert lacking("no-leaf", lack, fit=40, counts={R.SHORTAGE: 24}) == (
        f"{head}; 40 of 64 nodes fit: 24 have fewer than 8 free chips"
    )
    assert lacking("no-leaf", lack, fit=0) == f"{head}; no node is known yet"


def test_switches_that_are_not_known_are_told_with_the_name_of_their_source() -> None:
    assert lacking("no-topology", None) == (
        "the leaf switches are not known: ConfigMap basic-tor-node-cm is not read yet, or has no leaf"
    )


def test_a_job_outside_what_its_policy_supports_is_told_the_setting() -> None:
    refusal = Refusal(
        "product-support",
        field="labels.tor-affinity",
        value="normal-schema",
        expected="a job that the policy supports (setting strict_product_support): switch affinity 2.0 is meant for PyTorch,"
        " not for MindSpore",
    )
    assert sentence(refusal).endswith("switch affinity 2.0 is meant for PyTorch, not for MindSpore")


def without_blocks(lack: BlockLack, *, fit: int = 64, counts: dict[int, int] | None = None) -> str:
    found = [ReasonCount(reason, nodes) for reason, nodes in (counts or {}).items()]
    total = fit + sum(count.nodes for count in found)
    return sentence(Refusal("no-blocks", nodes_total=total, nodes_fit=fit, counts=found, chips=16, blocks=lack))


THREE = NearGroup("3", 15, 1)


@pytest.mark.parametrize(
    ("lack", "words"),
    [
        (
            BlockLack("blocks", 4, 3, 8, 32, 38, [NearGroup("3", 16, 2), NearGroup("4", 15, 1), NearGroup("5", 7, 0)]),
            "needs 4 logical SuperPoDs of 8 nodes; 3 can be placed: SuperPoD 3 has 16 usable nodes (2 blocks), SuperPoD 4 has 15"
            " (1 block), SuperPoD 5 has 7",
        ),
        (
            BlockLack("blocks", 1, 0, 8, 8, 1, [NearGroup("east", 1, 0)]),
            "needs 1 logical SuperPoD of 8 nodes; none can be placed: SuperPoD east has 1 usable node",
        ),
        (
            BlockLack("blocks", 9, 7, 1, 9, 7, [NearGroup("0", 1, 1), NearGroup("1", 1, 1), NearGroup("2", 1, 1)]),
            "needs 9 logical SuperPoDs of 1 node; 7 can be placed, among others: SuperPoD 0 has 1 usable node (1 block),"
            " SuperPoD 1 has 1 (1 block), SuperPoD 2 has 1 (1 block)",
        ),
        (
            BlockLack("blocks", 2, 0, 8, 16, 15, [THREE]),  # in racks, nodes beside one another make no block
            "needs 2 logical SuperPoDs of 8 nodes; none can be placed: SuperPoD 3 has 15 usable nodes",
        ),
        (BlockLack("nodes", 4, 3, 8, 32, 30, [THREE]), "needs 32 nodes, and 30 fit"),
        (BlockLack("nodes", 2, 0, 1, 2, 1), "needs 2 nodes, and 1 fits"),
        (BlockLack("nodes", 1, 0, 1, 1, 0), "needs 1 node, and none fits"),
        (
            BlockLack("incomplete", 2, 1, 8, 16, 14, []),
            "needs 16 nodes in logical SuperPoDs of 8; the SuperPoDs give 14",
        ),
        (
            BlockLack("size", 1, 6, 8, 8, 50, [NearGroup("7", 50, 6)]),
            "a SuperPoD has more usable nodes than super_pod_size allows: SuperPoD 7 has 50 usable nodes (6 blocks)",
        ),
        (BlockLack("size", 1, 6, 8), "a SuperPoD has more usable nodes than super_pod_size allows"),
        (
            BlockLack("service", 2, 1, 8, 16, 15, [THREE]),
            "needs 2 logical SuperPoDs of 8 nodes for its inference service; 1 can be placed: SuperPoD 3 has 15 usable nodes"
            " (1 block)",
        ),
        (
            BlockLack("affinity", 2, 1, 8, 16, 15, [THREE]),
            "needs 2 logical SuperPoDs of 8 nodes near the pods that it prefers; 1 can be placed: SuperPoD 3 has 15 usable"
            " nodes (1 block)",
        ),
        (
            BlockLack("rack", 1, 1, 8, 8, 15, [THREE]),
            "needs 8 nodes of one rack; no rack has as many usable ones: SuperPoD 3 has 15 usable nodes (1 block)",
        ),
        (
            BlockLack("rack", 2, 1, 8, 16, 15, [THREE]),
            "needs 16 nodes of racks that share memory; no such racks have as many usable ones: SuperPoD 3 has 15 usable nodes"
            " (1 block)",
        ),
        (BlockLack("wait", 2, 0, 8, 16, 12), "waits for its own nodes: 12 of 16 nodes are free again"),
        (
            BlockLack("home", 1, 0, 8, 3, 1),
            "needs 3 nodes in the SuperPoDs where its damaged blocks have to stay, and 1 fits",
        ),
        (
            BlockLack("level", 4, 3, 8, 32, 30, [NearGroup("hall", 3, 3)]),
            "needs 4 groups of 8 nodes; 3 can be placed in tree hall, which comes closest",
        ),
        (BlockLack("level", 1, 0, 1, 1, 0), "needs 1 group of 1 node; none can be placed"),
        (BlockLack("level", 3, 2, 0), "needs a tree of 3 levels; the highest one has 2"),
        (
            BlockLack("by-moon", 2, 1, 8),
            "needs 2 logical SuperPoDs of 8 nodes; 1 can be placed",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_in_superpods_is_told_with_numbers(lack: BlockLack, words: str) -> None:
    assert without_blocks(lack) == words


def test_nodes_that_do_not_fit_are_counted_behind_what_is_missing_in_superpods() -> None:
    lack = BlockLack("nodes", 4, 3, 8, 32, 30)
    assert without_blocks(lack, fit=30, counts={R.SHORTAGE: 33, R.NO_SUPERPOD: 1}) == (
        "needs 32 nodes, and 30 fit; 30 of 64 nodes fit: 33 have fewer than 16 free chips, 1 is in no SuperPoD or rack that is"
        " known"
    )
    assert without_blocks(lack, fit=0) == "needs 32 nodes, and 30 fit; no node is known yet"
    assert sentence(Refusal("no-blocks", nodes_total=2, nodes_fit=2)) == "no-blocks"
