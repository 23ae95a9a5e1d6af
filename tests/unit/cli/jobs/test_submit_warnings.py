"""Warnings of ``berth submit``: they come before anything is sent, and stop nothing."""

from pathlib import Path

import pytest

from berth.cli.app import call

JOB = """
apiVersion: berth/v1
kind: Job
metadata:
  {name: train, labels: {tor_affinity: normal-schema, team: vision}, annotations: {volcano.sh/preemptable: maybe}}
spec: {product: module910bx8, replicas: 1, chips: 8}
"""
VOLCANO = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: other}
spec:
  tasks:
    - name: worker
      replicas: 1
      template:
        metadata: {labels: {fault-schedulling: grace}}
        spec:
          containers: [{name: c, resources: {limits: {huawei.com/Ascend910: 8}}}]
"""


def test_keys_that_are_close_to_known_ones_or_cannot_be_read_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.cli.cell._SILENT_S", 2.5)  # a busy machine may take longer than the usual time
    file = tmp_path / "jobs.yaml"
    file.write_text(f"{JOB}---{VOLCANO}")
    assert call(["submit", str(file), "--url", "nats://127.0.0.1:9"]) == 1
    printed = capsys.readouterr()
    first, preemptable, second, third = printed.err.splitlines()
    assert first == (
        f"warning: {file}: default/train: label 'tor_affinity' is not known, and is close to 'tor-affinity'"
    )
    assert preemptable == (
        f"warning: {file}: default/train: annotation volcano.sh/preemptable is 'maybe': expected true or false; it counts"
        " as false"
    )
    assert second == (
        f"warning: {file}: default/other: label 'fault-schedulling' is not known, and is close to 'fault-scheduling'"
    )
    assert "no NATS server answers" in third
    assert printed.out == ""
