"""Requests with pods without chips: which are valid, and what of them counts."""

import pytest

from berth.core.gangs import ClassKey, Gang, placing_order
from berth.core.requests.gangs import gang_of
from berth.core.requests.job_validation import ValidJob, validate
from berth.core.topologies.blocks.demand import blocks_of
from berth.core.topologies.switches.demand import leaf_demand
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Refusal
from tests.support.cells import a_job

PLAIN = Settings()
PARITY = Settings(reference_parity=True)


def mixed(product: str, chips: int, *, workers: int = 2, **changes: object) -> JobRequest:
    """A master without chips, workers with chips, and a parameter server without."""
    tasks = [Task("master", 1, 0, 1_000), Task("worker", workers, chips), Task("ps", 2, 0, 500)]
    return a_job("j", product=product, tasks=tasks, **changes)  # type: ignore[arg-type]  # fields of a request


def gang_from(request: JobRequest) -> Gang:
    return gang_of(JobSeen("default", "j", "uid-j", "accepted", 1, 1, 1, request), request, attempt=1, settings=PLAIN)


def accepted(request: JobRequest, settings: Settings = PLAIN) -> ValidJob:
    found = validate(request, settings)
    assert isinstance(found, ValidJob), found
    return found


def refused(request: JobRequest, settings: Settings) -> Refusal:
    found = validate(request, settings)
    assert isinstance(found, Refusal)
    return found


@pytest.mark.parametrize("product", sorted(NODE_PRODUCTS))
def test_every_product_takes_tasks_without_chips_beside_tasks_with_chips(product: str) -> None:
    known = NODE_PRODUCTS[product]
    alone = validate(a_job("j", product=product, chips=known.chips, replicas=2), PLAIN)
    found = validate(mixed(product, known.chips), PLAIN)
    if isinstance(alone, Refusal):
        assert isinstance(found, Refusal)
        assert (found.code, found.value, found.expected) == (alone.code, alone.value, alone.expected)
    else:
        assert isinstance(found, ValidJob), found
        assert (found.form, found.chip_pods, found.distributed) == (alone.form, 2, True)
        assert found.demand == alone.demand


def test_under_parity_the_rules_of_the_form_apply_to_all_tasks() -> None:
    refusal = refused(mixed("module910bx8", 8), PARITY)
    assert (refusal.field, refusal.value, refusal.expected) == ("tasks[0].chips", "0", "1 to 8")


@pytest.mark.parametrize(
    ("policy", "product"), [("chip2-node16-sp", "superpod910a3x16"), ("chip8-node8-sp", "superpod850x8")]
)
def test_blocks_are_made_of_pods_with_chips(policy: str, product: str) -> None:
    chips = NODE_PRODUCTS[product].chips
    annotations = {"huawei.com/schedule_policy": policy, "sp-block": str(2 * chips)}
    found = accepted(mixed(product, chips, workers=4, annotations=annotations))
    blocks = blocks_of(found.demand)
    assert blocks is not None
    assert (blocks.size, blocks.number) == (2, 2)
    assert refused(mixed(product, chips, workers=4, annotations=annotations), PARITY).value == "0"
    odd = refused(mixed(product, chips, workers=3, annotations=annotations), PLAIN)
    assert odd.value == str(3 * chips)


def test_groups_of_levels_are_made_of_pods_with_chips() -> None:
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": "level1=2,level2=4"}
    found = accepted(mixed("module910bx8", 8, workers=4, annotations=annotations))
    blocks = blocks_of(found.demand)
    assert blocks is not None
    assert blocks.levels == (2, 4)


def test_a_job_of_one_pod_with_chips_is_not_distributed_by_its_master() -> None:
    found = accepted(mixed("module910bx8", 8, workers=1))
    assert (found.chip_pods, found.distributed) == (1, False)


def test_shapes_of_pods_without_chips_have_no_form() -> None:
    request = mixed("module910bx8", 8, labels={"tor-affinity": "normal-schema"})
    gang = gang_from(request)
    master, worker, server = (shape for shape, _ in gang.request_class)
    assert not gang.is_plain
    assert (master.form, master.resource, master.gang_pods, master.is_planned) == ("", "", 0, False)
    assert (worker.gang_pods, worker.demand) == (2, leaf_demand("normal-schema", gang_pods=2))
    assert (server.cpu_milli, [run.chips for run in gang.runs]) == (500, [0, 8, 0])


@pytest.mark.parametrize(
    ("pods", "chips", "is_valid"),
    [("0", 0, True), ("3", 0, True), ("-1", 0, False), ("", 0, False), ("0", 8, False), ("1", 8, True)],
)
def test_a_gang_without_chips_has_no_pods_with_chips(pods: str, chips: int, *, is_valid: bool) -> None:
    request = a_job("j", chips=chips, annotations={"berth/gang-pods": pods})
    found = validate(request, PLAIN)
    assert isinstance(found, ValidJob) == is_valid
    if isinstance(found, Refusal):
        assert found.field == "annotations.berth/gang-pods"
        assert found.expected == f"the pods of the gang, {1 if chips else 0} or more"


def test_a_job_without_chips_is_plain_and_an_invalid_one_is_not() -> None:
    for request, is_plain in (
        (a_job("j", chips=0), True),
        (mixed("module910bx8", 8), False),
        (a_job("j", chips=9), False),
    ):
        gang = gang_from(request)
        assert gang.is_plain is is_plain


def request_class(*chips: int, by_leaf: bool = False) -> ClassKey:
    labels = {"tor-affinity": "normal-schema"} if by_leaf else {}
    tasks = [Task(f"t{index}", 1, count) for index, count in enumerate(chips)]
    request = a_job("j", tasks=tasks, labels=labels)
    return gang_from(request).request_class


def test_pods_without_chips_get_their_nodes_last() -> None:
    assert placing_order(request_class(0, 8, 0, 8)) == [1, 3, 0, 2]
    assert placing_order(request_class(0, 8, by_leaf=True)) == [1, 0]
