"""What a Queue has, as its status says it."""

import pytest

from berth.formats.queues.allocated import allocated, allocated_patch


def test_amounts_are_quantities_of_kubernetes() -> None:
    amounts = {"cpu": 1_500, "memory": 3 << 10, "huawei.com/Ascend910": 850, "huawei.com/Ascend310": 0}
    assert allocated(amounts, 3) == {"cpu": "1500m", "memory": "3Gi", "huawei.com/Ascend910": "8500m", "pods": "3"}
    assert allocated({"cpu": 2_000, "memory": 1_025}, 0) == {"cpu": "2", "memory": "1025Mi"}


def test_a_queue_without_jobs_has_no_cpu_and_no_memory() -> None:
    assert allocated({}, 0) == {"cpu": "0", "memory": "0"}


@pytest.mark.parametrize(
    ("before", "patch"),
    [
        ({"cpu": "1", "memory": "0"}, None),
        ({"cpu": 1, "memory": "0"}, None),
        (None, {"cpu": "1", "memory": "0"}),
        (["of", "another", "form"], {"cpu": "1", "memory": "0"}),
        ({"cpu": "2", "pods": "1"}, {"cpu": "1", "memory": "0", "pods": None}),
    ],
)
def test_a_patch_takes_away_what_is_not_there_any_more(before: object, patch: dict[str, str | None] | None) -> None:
    assert allocated_patch(before, {"cpu": "1", "memory": "0"}) == patch
