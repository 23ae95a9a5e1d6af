import pytest

from berth.formats.ascend.fault_levels import REPORT_LEVELS, level_of, word_of, worst
from berth.schemas.facts import NodeHealth

OK, SUB, NO_NEW, EVICT = NodeHealth


@pytest.mark.parametrize(
    ("names", "health"),
    [
        (["NotHandleFault", "NotHandle", "nothandle", "Healthy", "", "Normal", " NotHandleFault "], OK),
        (["SubHealthFault", "SubHealth", "SubHealthy"], SUB),
        (["PreSeparateNPU", "PreSeparateFault", "PreSeparate"], NO_NEW),
        (["SeparateNPU", "SeparateFault", "Separate", "ManuallySeparateNPU", "UnHealthy", "Unhealthy"], EVICT),
        (["RestartRequest", "RestartBusiness", "FreeRestartNPU", "RestartNPU", "Reset"], EVICT),
    ],
)
def test_levels_of_all_sources_are_normalised(names: list[str], health: NodeHealth) -> None:
    assert [level_of(name) for name in names] == [(health, True)] * len(names)


@pytest.mark.parametrize("name", ["Melt", "SeparateGPU", "Fault Separate", "0"])
def test_an_unknown_level_means_no_new_work(name: str) -> None:
    assert level_of(name) == (NO_NEW, False)


def test_the_worst_level_wins() -> None:
    assert worst([]) is OK
    assert worst([SUB, EVICT, NO_NEW]) is EVICT
    assert [word_of(level) for level in NodeHealth] == list(REPORT_LEVELS)
