"""Free chips of a node from annotation, ConfigMap and pods."""

import json

import pytest

from berth.formats.ascend.device_list import PodChips, available, chip_mask, chips_held, resource_of

RES = "huawei.com/Ascend910"
LIST = {RES: "Ascend910-1", f"{RES}-Unhealthy": "Ascend910-2", f"{RES}-Recovering": "Ascend910-3", f"{RES}-NetworkUnhealthy": "Ascend910-0"}  # fmt: skip


def infos(*ids: int, kind: str = "Ascend910") -> str:
    return json.dumps({f"{kind}-{chip}": {"IP": "10.0.0.1", "SuperDeviceID": 0} for chip in ids})


def a_pod(*, name: str = "pod-0", phase: str = "Running", **annotations: str) -> PodChips:
    return PodChips(name, phase, {f"huawei.com/{key}": value for key, value in annotations.items()})


def free(*pods: PodChips, base: str | None = None, **options: bool) -> str | None:
    text = infos(*range(12)) if base is None else base
    return available(base_device_infos=text, device_list=LIST, pods=pods, **options).get(RES)


def names(*ids: int) -> str:
    return ",".join(f"Ascend910-{chip}" for chip in ids)


def test_free_chips_are_all_but_unhealthy_and_recovering_sorted_as_text() -> None:
    assert free() == names(0, 1, 10, 11, 4, 5, 6, 7, 8, 9)


def test_chips_of_active_pods_are_taken_real_ones_first() -> None:
    pods = [
        a_pod(AscendReal=names(4), Ascend910=names(5)),
        a_pod(AscendReal="", Ascend910=names(6)),
        a_pod(phase="Succeeded", AscendReal=names(7)),
        a_pod(phase="Failed", Ascend910=names(8)),
        a_pod(name="Not_A_Name", Ascend910=names(9)),
        a_pod(phase="Pending", Ascend910=names(10, 11)),
        a_pod(npu="npu-0"),
    ]
    assert free(*pods) == names(0, 1, 5, 7, 8, 9)


def test_the_configmap_counts_without_self_maintenance_with_sharing_and_with_virtual_chips() -> None:
    assert free(a_pod(Ascend910=names(1)), self_maintained=False) == names(1)
    assert free(soft_share=True) == names(1)
    assert free(base='{"Ascend910-2c-100-0": {}, "Ascend910-0": {}}') == names(1)


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"Ascend910-0": 5}', '"text"'])
@pytest.mark.parametrize("self_maintained", [True, False])
def test_a_broken_annotation_leaves_no_list_at_all(text: str, *, self_maintained: bool) -> None:
    options = {"device_list": LIST, "pods": (), "self_maintained": self_maintained}
    assert available(base_device_infos=text, **options) == {}  # type: ignore[arg-type]  # one dict of mixed options
    assert available(base_device_infos=None, **options) == {}  # type: ignore[arg-type]  # as above


def test_an_empty_annotation_leaves_no_free_chips() -> None:
    assert free(base="{}") == ""
    assert free(base="null") == ""


def test_other_keys_are_kept_and_the_input_is_not_changed() -> None:
    before = dict(LIST)
    result = available(base_device_infos=infos(0), device_list=LIST, pods=())
    assert result == LIST | {RES: "Ascend910-0"}
    assert before == LIST


def test_names_of_another_kind_get_their_own_key() -> None:
    result = available(base_device_infos=infos(0, 1, kind="npu"), device_list={}, pods=[a_pod(npu="npu-1")])
    assert result == {"huawei.com/npu": "npu-0"}
    assert resource_of("npu-1") == "huawei.com/npu"


def test_a_list_of_more_than_100_chips_is_ignored() -> None:
    assert len(chips_held(a_pod(Ascend910=",".join(["Ascend910-0"] * 100)), RES)) == 100
    assert chips_held(a_pod(Ascend910=",".join(["Ascend910-0"] * 101)), RES) == []


@pytest.mark.parametrize(
    ("name", "valid"),
    [("a.b-c", True), ("a" * 253, True), ("a" * 254, False), ("-a", False), ("a..b", False), ("", False)],
)
def test_pods_whose_name_cannot_be_right_hold_nothing(name: str, *, valid: bool) -> None:
    assert chips_held(a_pod(name=name, Ascend910=names(1)), RES) == (["Ascend910-1"] if valid else [])


def test_masks_of_texts() -> None:
    assert chip_mask("") == 0
    assert chip_mask("Ascend910-0, Ascend910-63") == 1 << 63 | 1


@pytest.mark.parametrize("text", ["Ascend910-64", "Ascend910", "Ascend910-2c-100-1", "Ascend910--1", "7"])
def test_masks_refuse_what_is_no_chip(text: str) -> None:
    with pytest.raises(ValueError, match="no chip name"):
        chip_mask(text)
