"""Which tests a change touches."""

from pathlib import Path

import pytest

from tests.support.touched import ROOT, touched_by

ALWAYS = "tests/contract/test_tidy.py"


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (["berth/core/state/ledger.py"], ["tests/unit/core/state"]),
        (["services/binder/work.py", "tests/unit/services/binder/test_work.py"], ["tests/unit/services/binder"]),
        (["berth/client/gone.py"], ["tests/unit/client"]),
        (["tests/e2e/test_client.py"], ["tests/e2e/test_client.py"]),
        (["compose.yaml"], ["tests/contract/test_compose.py"]),
        (["pyproject.toml", "tests/kube/test_binder.py"], []),
    ],
)
def test_a_change_brings_the_touched_by_its_folder(changed: list[str], tests: list[str]) -> None:
    assert touched_by(ROOT, changed) == sorted([ALWAYS, *tests])


def test_a_file_for_tests_brings_those_that_import_it(tmp_path: Path) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_a.py").write_text("from tests.support.dice import Dice\n")
    (tmp_path / "tests" / "unit" / "test_b.py").write_text("from tests.support.dice_box import Box\n")
    assert touched_by(tmp_path, ["tests/support/dice.py"]) == ["tests/unit/test_a.py"]
