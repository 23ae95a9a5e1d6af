"""``--faults``: what it says, and what is wrong with it."""

import pytest

from berth.cli.output import WRONG_USE, CommandError
from berth.cli.simulation.fault_models import FaultModels, read_faults
from berth.core.simulation.failures import FailureModel

HOUR = 3_600_000


def test_models_of_all_kinds() -> None:
    assert read_faults("mtbf=1000h,seed=7") == FaultModels((FailureModel("node", 1000 * HOUR, HOUR),), 7)
    assert read_faults(" chip = 2h , leaf=90m, node=30s, repair=5s, shape=0.5") == FaultModels(
        (
            FailureModel("chip", 2 * HOUR, 5_000, 0.5),
            FailureModel("node", 30_000, 5_000, 0.5),
            FailureModel("leaf", 90 * 60_000, 5_000, 0.5),
        )
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'': expected key=value"),
        ("mtbf", "'mtbf': expected key=value"),
        ("mtbf=", "'mtbf=': expected key=value"),
        ("mtbf=1h,", "'': expected key=value"),
        ("mtfb=1h", "'mtfb' is not a key, expected 'mtbf'?"),
        ("mtbf=1h,mtbf=2h", "mtbf is given twice"),
        ("mtbf=1h,node=2h", "node is given twice"),
        ("seed=1", "nothing fails"),
        ("mtbf=soon", "mtbf is 'soon', expected a duration such as"),
        ("mtbf=0", "mtbf is '0', expected a duration above 0"),
        ("mtbf=1h,repair=-1s", "repair is '-1s'"),
        ("mtbf=1h,shape=0", "shape is '0', expected a number from 0.1 to 10"),
        ("mtbf=1h,shape=nan", "shape is 'nan'"),
        ("mtbf=1h,shape=x", "shape is 'x'"),
        ("mtbf=1h,seed=-1", "seed is '-1', expected a whole number from 0 to"),
        ("mtbf=1h,seed=9223372036854775808", "seed is '9223372036854775808'"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    with pytest.raises(CommandError) as error:
        read_faults(text)
    assert str(error.value).startswith("--faults: ")
    assert words in str(error.value)
    assert error.value.code == WRONG_USE
