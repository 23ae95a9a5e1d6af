"""Which product form a job gets, and why."""

import pytest

from berth.core.chips.form_selection import FormChoice, choose_form
from berth.products.catalogue import ACCELERATOR_TYPES, FORMS, POLICIES
from berth.schemas.refusal import Refusal

A910 = "huawei.com/Ascend910"
NPU = "huawei.com/npu"


def choose(
    resource: str,
    *,
    policy: str | None = None,
    sp_block: bool = False,
    accelerator: str | None = None,
    labels: dict[str, str] | None = None,
) -> FormChoice | Refusal:
    annotations = {} if policy is None else {"huawei.com/schedule_policy": policy}
    if sp_block:
        annotations["sp-block"] = ""
    return choose_form(
        resource=resource,
        labels=labels or {},
        annotations=annotations,
        selector={} if accelerator is None else {"accelerator-type": accelerator},
    )


def name_of(choice: FormChoice | Refusal) -> str:
    return choice.form.name if isinstance(choice, FormChoice) else choice.code


def test_every_policy_and_accelerator_names_a_form() -> None:
    assert set(POLICIES.values()) | set(ACCELERATOR_TYPES.values()) <= set(FORMS)


@pytest.mark.parametrize("resource", [A910, NPU])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_known_policy_wins_over_all_else(resource: str, policy: str) -> None:
    choice = choose(resource, policy=policy, sp_block=True, accelerator="card")
    assert name_of(choice) == POLICIES[policy]


def test_sp_block_wins_over_any_accelerator_type() -> None:
    assert name_of(choose(A910, sp_block=True, accelerator="module-910b-8")) == "module910a3x16-sp"
    assert name_of(choose(A910, sp_block=True, accelerator="module-a3-8-super-pod")) == "module910a3x8-sp"


@pytest.mark.parametrize(
    ("accelerator", "expected"),
    [
        *ACCELERATOR_TYPES.items(),
        (None, "module910x8"),
        ("card", "card910x2"),
        ("card-910b-infer", "card910x2"),
        ("a-card-b", "card910x2"),
        ("", "unsupported-policy"),
        ("module-910b", "unsupported-policy"),
    ],
)
def test_accelerator_type_is_the_last_resort(accelerator: str | None, expected: str) -> None:
    assert name_of(choose(A910, accelerator=accelerator)) == expected
    assert name_of(choose(NPU, policy="stranger", accelerator=accelerator)) == expected


def test_npu_without_a_policy_is_refused_with_the_field() -> None:
    refusal = choose(NPU, sp_block=True, accelerator="module")
    assert isinstance(refusal, Refusal)
    assert refusal.code == "unsupported-policy"
    assert refusal.field == "annotations.huawei.com/schedule_policy"
    assert "chip4-node8" in refusal.expected


def test_the_choice_says_what_it_follows_from() -> None:
    missing = choose(A910)
    assert isinstance(missing, FormChoice)
    assert missing.because == "the job has no node selector accelerator-type"
    unknown = choose(A910, policy="stranger", accelerator="half")
    assert isinstance(unknown, FormChoice)
    assert "unknown value 'stranger'" in unknown.because
    assert "accelerator-type is half" in unknown.because


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, "310p"),
        ({"npu-310-strategy": "card"}, "310p"),
        ({"duo": "yes"}, "310p"),
        ({"duo": "true"}, "310p-duo-chip"),
        ({"duo": "true", "npu-310-strategy": "chip"}, "310p-duo-chip"),
        ({"duo": "true", "npu-310-strategy": "card"}, "310p-duo-card"),
        ({"duo": "true", "npu-310-strategy": "stranger"}, "310p"),
        ({"duo": "true", "distributed": "true"}, "310p-duo-chip-distributed"),
        ({"duo": "true", "distributed": "false"}, "310p-duo-chip"),
        ({"duo": "true", "npu-310-strategy": "card", "distributed": "true"}, "310p-duo-card"),
        ({"distributed": "true"}, "310p"),
    ],
)
def test_310p_goes_by_labels(labels: dict[str, str], expected: str) -> None:
    assert name_of(choose("huawei.com/Ascend310P", labels=labels)) == expected


def test_310_goes_by_its_strategy() -> None:
    assert name_of(choose("huawei.com/Ascend310")) == "310-chip"
    assert name_of(choose("huawei.com/Ascend310", labels={"npu-310-strategy": "chip"})) == "310-chip"
    assert name_of(choose("huawei.com/Ascend310", labels={"npu-310-strategy": "card"})) == "310-card"
    refusal = choose("huawei.com/Ascend310", labels={"npu-310-strategy": "stranger"})
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.value, refusal.expected) == ("unsupported-policy", "stranger", "chip or card")


@pytest.mark.parametrize(
    "resource",
    ["huawei.com/npu-core", "huawei.com/Ascend910-1c", "huawei.com/Ascend910-2c", "huawei.com/Ascend910-12c.3cpu.32g", "huawei.com/Ascend310P-4c"],
)  # fmt: skip
def test_virtual_npus_are_refused_with_the_field(resource: str) -> None:
    refusal = choose(resource, policy="chip4-node8")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field, refusal.value) == ("unsupported-vnpu", "resource", resource)
    assert "no virtual NPUs" in refusal.expected
    assert A910 in refusal.expected


@pytest.mark.parametrize(
    "resource", ["huawei.com/Ascend310P-V", "huawei.com/Ascend310P-VPro", "huawei.com/Ascend310P-IPro"]
)
def test_cards_of_several_kinds_in_one_node_are_no_virtual_npus(resource: str) -> None:
    refusal = choose(resource)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.value) == ("unsupported-policy", resource)
    assert "cards of several kinds in one node" in refusal.expected


@pytest.mark.parametrize("resource", ["huawei.com/Stranger", "nvidia.com/gpu", "", "some-other.com/chip-2c"])
def test_unknown_resources_are_refused(resource: str) -> None:
    assert name_of(choose(resource)) == "unsupported-policy"
