"""Names that are near: of jobs by their own name, whatever their namespace has in common."""

import pytest

from berth.cli.output import near_jobs

KNOWN = ["speech/pretrain-015", "speech/eval-003", "vision/eval-003", "vision/zoo", "speech/q"]


@pytest.mark.parametrize(
    ("job", "near"),
    [
        ("speech/eval-004", ["speech/eval-003", "vision/eval-003"]),
        ("vision/eval-003", ["vision/eval-003", "speech/eval-003"]),
        ("speech/x", []),
        ("nobody/pretrain-01", ["speech/pretrain-015"]),
    ],
)
def test_near_jobs_are_those_with_near_names(job: str, near: list[str]) -> None:
    assert near_jobs(job, KNOWN) == near
