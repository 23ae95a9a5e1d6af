"""The tests that cases of the contract on faults name exist; no case goes."""

import re
from pathlib import Path

from tests.contract.fault_cases import ALWAYS, BAD_INPUT, CASES

ROOT = Path(__file__).parents[2]


def test_each_case_names_tests_that_exist() -> None:
    named = [test for cases in (CASES, BAD_INPUT, ALWAYS) for tests in cases.values() for test in tests]
    files = {test.partition("::")[0] for test in named}
    texts = {file: (ROOT / file).read_text("utf-8") for file in files}
    missing = [
        test
        for test in named
        for file, _, name in [test.partition("::")]
        if not re.search(rf"^(?:async )?def {name}\(", texts[file], re.MULTILINE)
    ]
    assert missing == []


def test_no_case_goes() -> None:
    assert (len(CASES), len(BAD_INPUT), len(ALWAYS)) == (24, 12, 6)
    assert all(tests for cases in (CASES, BAD_INPUT, ALWAYS) for tests in cases.values())
