"""A round decides what a plain search decides that scores every node anew before every pod."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.core.changes import ChangesBuilder
from berth.core.chips.soft_share_scoring import pick_chip, share_row
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.cluster.shared_use import SharedNode
from berth.core.gangs import ClassKey, Gang
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.near_pods import near_bonus
from berth.core.placement.offers import OwnRows, candidates_of, check_possible, merge, offer_of
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.state.cell import State
from berth.core.state.invariants import check
from berth.core.state.ledger import pods_of
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.constraints import Expression, Taint, Term, Toleration
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.offers import Shape
from berth.schemas.placement import Run, Share
from berth.schemas.refusal import NodeReason
from berth.schemas.subjects import Subjects
from tests.support.cells import a_node

SUBJECTS = Subjects("cell")
FORMS = {"module910bx8": (1, 2, 8), "module910x8": (1, 2, 4, 8), "module910a3x16": (2, 4, 16), "chip4-node8": (1, 4, 8)}
PRODUCTS = (*FORMS, "soft-share")
KINDS = st.shared(st.lists(st.sampled_from(PRODUCTS), min_size=1, max_size=2, unique=True), key="products")
"""Products of one example: nodes and gangs are of the same few, so that they meet."""
RARE = st.sampled_from((False,) * 9 + (True,))


@st.composite
def nodes_of(draw: st.DrawFn, *, least: int = 3) -> list[NodeDescription]:
    products = draw(st.lists(st.sampled_from(draw(KINDS)), min_size=least, max_size=10))
    names = draw(st.permutations([f"n{number}" for number in range(len(products))]))
    nodes = []
    for name, product in zip(names, products, strict=True):
        full = a_node(name, product)
        lost = 0xFC if product == "soft-share" else draw(st.sampled_from((0, 0, 0, 0, 1, 0x81)))
        chips = full.chips & ~lost
        nodes.append(
            a_node(
                name,
                product,
                chips=chips,
                allocatable=chips.bit_count() - draw(RARE),
                leaf=draw(st.sampled_from(("a", "b", "c"))),
                labels=full.labels | draw(st.sampled_from(({}, {"zone": "red"}, {"zone": "blue", "size": "7"}))),
                taints=[Taint("team", "a")] if draw(RARE) else [Taint("soft", "", "PreferNoSchedule")],
                cordoned=draw(RARE),
                ready=not draw(RARE),
                cpu_milli=draw(st.sampled_from((4_000, 8_000))),
                memory_mib=draw(st.sampled_from((4_000, 8_000))),
            )
        )
    return nodes


CONDITIONS = st.builds(
    NodeCondition,
    name=st.just(""),
    unhealthy=st.sampled_from((0, 0, 0, 1, 6)),
    recovering=st.sampled_from((0, 0, 0, 8)),
    network_unhealthy=st.sampled_from((0, 0, 0, 2, 0x30)),
    level=st.sampled_from(
        (NodeHealth.OK, NodeHealth.OK, NodeHealth.OK, NodeHealth.SUB_HEALTHY, NodeHealth.NO_NEW_WORK)
    ),
    network_known=RARE.map(lambda rare: not rare),
)


@st.composite
def shapes_of(draw: st.DrawFn, *, pods: int, share: Share | None) -> Shape:
    if share is not None:
        form, resource, chips = "chip1-softShareDev", NODE_PRODUCTS["soft-share"].resource, 1
    else:
        product = draw(st.sampled_from([product for product in draw(KINDS) if product in FORMS] or list(FORMS)))
        form, resource, chips = (
            product,
            NODE_PRODUCTS[product].resource,
            draw(st.sampled_from((*FORMS[product], *FORMS[product], 0))),
        )
    return Shape(
        form=form if chips else "",
        resource=resource if chips else "",
        chips=chips,
        gang_pods=pods if chips else 0,
        cpu_milli=draw(st.sampled_from((0, 0, 3_000))),
        memory_mib=10**12 if draw(RARE) else draw(st.sampled_from((0, 0, 3_000))),
        selector=draw(st.sampled_from(((),) * 6 + ((("zone", "red"),), (("kubernetes.io/hostname", "n1"),)))),
        affinity=draw(
            st.sampled_from(
                ((),) * 6
                + (
                    (Term((Expression("zone", "NotIn", ("red",)),)),),
                    (
                        Term((Expression("size", "Gt", ("5",)),)),
                        Term((Expression("metadata.name", "In", ("n0", "n3")),)),
                    ),
                    (Term((Expression("metadata.name", "NotIn", ("n0", "n2")),)),),
                    (
                        Term((Expression("zone", "In", ("red",)), Expression("metadata.name", "In", ("n1", "n2")))),
                        Term((Expression("zone", "Exists"), Expression("kubernetes.io/hostname", "NotIn", ("n4",)))),
                    ),
                )
            )
        ),
        tolerations=draw(st.sampled_from(((), (Toleration(operator="Exists"),)))),
        share=share,
        sub_health=draw(st.sampled_from(("ignore", "graceExit"))),
    )


SHARES = st.builds(
    Share,
    aicore=st.sampled_from((10, 40, 60, 100)),
    hbm_mib=st.sampled_from((1_000, 30_000)),
    policy=st.sampled_from(("elastic", "fixed-share")),
)


@st.composite
def shapes_of_a_kind(draw: st.DrawFn, *, pods: int) -> Shape:
    """Shape that nodes of the example may suit."""
    products = draw(KINDS)
    shares = "soft-share" in products and (len(products) == 1 or draw(st.booleans()))
    return draw(shapes_of(pods=pods, share=draw(SHARES) if shares else None))


@st.composite
def gangs_of(draw: st.DrawFn) -> list[Gang]:
    gangs = []
    kinds: list[tuple[list[int], list[Shape]]] = []
    for number in range(draw(st.integers(3, 10))):
        again = draw(st.booleans())
        if kinds and again:
            pods, shapes = kinds[draw(st.integers(0, len(kinds) - 1))]
        else:
            products = draw(KINDS)
            shares = "soft-share" in products and (len(products) == 1 or draw(st.booleans()))
            share = draw(SHARES) if shares else None
            pods = draw(st.lists(st.integers(1, 4), min_size=1, max_size=1 if share else 2))
            shapes = [draw(shapes_of(pods=sum(pods), share=share)) for _ in pods]
            kinds.append((pods, shapes))
        gangs.append(
            Gang(
                namespace="default",
                name=f"g{number}",
                uid=f"u{number}",
                attempt=1,
                priority=0,
                accepted_seq=number,
                request_class=tuple(zip(shapes, pods, strict=True)),
                tasks=[f"t{index}" for index in range(len(pods))],
                runs=[
                    Run(count, shape.chips, shape.cpu_milli, shape.memory_mib)
                    for count, shape in zip(pods, shapes, strict=True)
                ],
                pods=sum(pods),
                resource=next((shape.resource for shape in shapes if shape.resource), ""),
                form="",
                form_because="",
            )
        )
    return gangs


def state_of(
    nodes: Sequence[NodeDescription], conditions: Sequence[NodeCondition] = (), *, leaves: str = "abc"
) -> State:
    """State that knows the nodes below some leaves."""
    state = State()
    sequence = 0
    for leaf in leaves:
        below = [node for node in nodes if node.leaf == leaf]
        names = {node.name for node in below}
        health = [condition for condition in conditions if condition.name in names]
        for subject, fact in (
            (SUBJECTS.fact_node(f"leaf-{leaf}"), pack_nodes(f"leaf-{leaf}", below)),
            (SUBJECTS.fact_health(f"leaf-{leaf}"), pack_health(f"leaf-{leaf}", health)),
        ):
            sequence += 1
            assert state.apply_fact(subject, sequence, encode(fact)).error == ""
    state.apply_record(1, state.fold.encoded(Epoch(1, 0, 0, 0, "test", Settings())))
    return state


def named(nodes: Sequence[NodeDescription], conditions: Sequence[NodeCondition]) -> list[NodeCondition]:
    return [
        NodeCondition(node.name, *[getattr(condition, field) for field in NodeCondition.__struct_fields__[1:]])
        for node, condition in zip(nodes, conditions, strict=False)
    ]


class Plain:
    """The same decision without offers, heaps and versions: every node anew before every pod, on the real columns."""

    def __init__(self, state: State) -> None:
        self.table, self.shares = state.table, state.shares
        self.scorer = Scorer(state.table, state.shares, state.fold.settings)
        self.settings = state.fold.settings

    def place(self, gang: Gang) -> list[tuple[str, tuple[int, ...]]] | None:
        got: list[tuple[int, tuple[int, ...], Shape]] = []
        ranks: list[int] = []
        before = {row: node.copy() for row, node in self.shares.nodes.items()}
        shapes = [shape for shape, pods in gang.request_class for _ in range(pods)]
        for is_plain in (False, True):  # pods without chips come last, near the others
            near = near_bonus(self.table, [row for row, chips, _ in got if chips]) if is_plain else {}
            for rank, shape in enumerate(shapes):
                if bool(shape.chips) == is_plain:
                    continue
                reasons, scores = Scorer(self.table, self.shares, self.settings).evaluate(shape)
                found = [
                    (-score - near.get(row, 0), self.table.names[row], row)
                    for row in range(len(self.table))
                    for reason, score in [self._again(shape, row, int(reasons[row]), int(scores[row]), before)]
                    if reason == NodeReason.FITS
                ]
                if not found:
                    for row, chips, old in reversed(got):
                        self._move(row, chips, old, hold=False)
                    return None
                row = min(found)[2]
                chips = self._pick(shape, row)
                self._move(row, chips, shape, hold=True)
                got.append((row, chips, shape))
                ranks.append(rank)
        places = [(self.table.names[row], chips) for row, chips, _ in got]
        return [place for _, place in sorted(zip(ranks, places, strict=True))]

    def counts(self, shape: Shape) -> tuple[int, dict[int, int]]:
        """Nodes that take a pod of a shape, and the others by reason."""
        reasons, _ = Scorer(self.table, self.shares, self.settings).evaluate(shape)
        counts = Counter(reasons.tolist())
        return counts.pop(int(NodeReason.FITS), 0), dict(counts)

    def _again(self, shape: Shape, row: int, reason: int, score: int, before: dict[int, SharedNode]) -> tuple[int, int]:
        """The capacity of a soft-share node is judged without the gang's own pods."""
        node, old = self.shares.nodes.get(row), before.get(row)
        if shape.share is None or node is None or node == old or reason not in {NodeReason.FITS, NodeReason.QUOTA}:
            return reason, score
        free = int(self.table.free[row])
        return share_row(self.shares, shape, row, free=free, now=node, base=old, settings=self.settings)

    def _pick(self, shape: Shape, row: int) -> tuple[int, ...]:
        rule = self.scorer.rule(shape)
        if rule is not None:
            return rule.pick(int(self.table.free[row]), int(self.table.network[row]))
        if shape.share is not None:
            free = int(self.table.free[row])
            now, name = self.shares.nodes[row], self.table.names[row]
            return (pick_chip(self.shares, shape.share, row, now, name=name, free=free),)
        return ()

    def _move(self, row: int, chips: tuple[int, ...], shape: Shape, *, hold: bool) -> None:
        mask = sum(1 << chip for chip in chips)
        if shape.share is not None:
            (self.shares.hold if hold else self.shares.let_go)(ChangesBuilder(), row, chips[0], shape.share)
            mask = 0
        move = self.table.hold if hold else self.table.let_go
        move(ChangesBuilder(), row, mask, cpu_milli=shape.cpu_milli, memory_mib=shape.memory_mib)


def decide(state: State, gangs: Sequence[Gang]) -> Round:
    scorer = Scorer(state.table, state.shares, state.fold.settings)
    asks = candidate_counts(gangs)
    views = {shape: scorer.candidates(shape, count) for shape, count in asks.items()}
    verdicts = PlacementRound(scorer, views, asks).choose(gangs).verdicts
    return Round(1, state.fold.head, state.facts_seq, 0, 1, verdicts)


@given(nodes=nodes_of(), conditions=st.lists(CONDITIONS, max_size=9), gangs=gangs_of())
def test_a_round_is_what_a_search_over_all_nodes_before_each_pod_decides(
    nodes: list[NodeDescription], conditions: list[NodeCondition], gangs: list[Gang]
) -> None:
    known = named(nodes, conditions)
    state = state_of(nodes, known)
    record = decide(state, gangs)
    plain = Plain(state_of(nodes, known))
    by_uid = {verdict.uid: verdict for verdict in record.verdicts}
    assert list(by_uid) == [gang.uid for gang in gangs]
    refused: set[ClassKey] = set()
    for gang in gangs:
        placement, refusal = by_uid[gang.uid].placement, by_uid[gang.uid].refusal
        got = None if placement is None else [(pod.node, pod.chips) for pod in pods_of(placement)]
        assert got == plain.place(gang)
        if refusal is not None and gang.request_class not in refused:  # others have the numbers of the first
            refused.add(gang.request_class)
            shape, _ = gang.request_class[gang.tasks.index(refusal.task)]
            assert (refusal.nodes_fit, {one.reason: one.nodes for one in refusal.counts}) == plain.counts(shape)
    state.apply_record(2, state.fold.encoded(record))
    check(state)
    columns = ("used", "free", "idle", "cpu_free", "memory_free")
    assert all((getattr(state.table, name) == getattr(plain.table, name)).all() for name in columns)


@given(nodes=nodes_of(), conditions=st.lists(CONDITIONS, max_size=9), gangs=gangs_of())
def test_a_refusal_counts_every_node_once(
    nodes: list[NodeDescription], conditions: list[NodeCondition], gangs: list[Gang]
) -> None:
    record = decide(state_of(nodes, named(nodes, conditions)), gangs)
    for verdict in record.verdicts:
        if verdict.refusal is not None:
            refusal = verdict.refusal
            assert refusal.nodes_total == len(nodes)
            assert refusal.nodes_fit + sum(count.nodes for count in refusal.counts) == len(nodes)
            assert refusal.pods_have < refusal.pods_need


@given(
    nodes=nodes_of(least=7),
    conditions=st.lists(CONDITIONS, max_size=4),
    shape=shapes_of_a_kind(pods=3),
    count=st.integers(1, 3),
    split=st.sampled_from((("abc",), ("ab", "c"), ("a", "b", "c"), ("", "abc"), ("b", "ac"))),
)
def test_merged_offers_of_any_split_are_the_candidates_of_one_scorer(
    nodes: list[NodeDescription], conditions: list[NodeCondition], shape: Shape, count: int, split: tuple[str, ...]
) -> None:
    known = named(nodes, conditions)
    whole = state_of(nodes, known)
    scorer = Scorer(whole.table, whole.shares, whole.fold.settings)
    parts = []
    for leaves in split:
        shard = state_of(nodes, known, leaves=leaves)
        found = Scorer(shard.table, shard.shares, shard.fold.settings).candidates(shape, count)
        parts.append(candidates_of(whole.table, offer_of(shard.table, found)))
        own = OwnRows(lambda domain, leaves=leaves: domain.removeprefix("leaf-") in leaves)  # type: ignore[misc]
        check_possible(whole.table, parts[-1], count=count, own=own)
    merged = merge(whole.table, parts, missing_nodes=0)
    one = scorer.candidates(shape, len(merged.rows))
    assert (merged.rows, merged.scores) == (one.rows, one.scores)
    assert (merged.total, merged.fit, merged.counts) == (one.total, one.fit, one.counts)
    assert len(merged.rows) >= min(count, one.fit)
    assert not merged.exhausted or len(merged.rows) == one.fit


@given(
    nodes=nodes_of(),
    conditions=st.lists(CONDITIONS, max_size=9),
    before=gangs_of(),
    shape=shapes_of_a_kind(pods=2),
    shrunk=st.booleans(),
)
def test_a_column_and_a_row_of_a_cell_in_use_get_the_same_answer(
    nodes: list[NodeDescription], conditions: list[NodeCondition], before: list[Gang], shape: Shape, *, shrunk: bool
) -> None:
    state = state_of(nodes, named(nodes, conditions))
    state.apply_record(2, state.fold.encoded(decide(state, before)))
    if shrunk:  # a node that has lost what it gave away, and one that is gone
        smaller = [a_node(node.name, "module910bx8", leaf="a", cpu_milli=0) for node in nodes if node.leaf == "a"][1:]
        fact = encode(pack_nodes("leaf-a", smaller))
        assert state.apply_fact(SUBJECTS.fact_node("leaf-a"), state.facts_seq + 1, fact).error == ""
    scorer = Scorer(state.table, state.shares, state.fold.settings)
    reasons, scores = scorer.evaluate(shape)
    rows = range(len(state.table))
    answers = [scorer.evaluate_one(shape, row, scorer.row_state(row)) for row in rows]
    assert answers == list(zip(reasons.tolist(), scores.tolist(), strict=True))
    best = scorer.best(shape)
    fits = [(-score, state.table.names[row], row) for row, (reason, score) in enumerate(answers) if not reason]
    assert best == ((min(fits)[2], -min(fits)[0]) if fits else None)
    assert np.array_equal(scorer.evaluate(shape)[0], reasons)
