"""Lean objects: what is kept of what a server says."""

import msgspec

from berth.formats.kubernetes.pod_spec import ENV_READ, Container, EnvVar


def test_of_an_environment_only_what_somebody_reads_is_kept() -> None:
    read = [{"name": name, "value": "1"} for name in sorted(ENV_READ)]
    others = [{"name": f"OTHER_{index}", "value": "2"} for index in range(30)]
    source = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    found = msgspec.convert({"name": "main", "env": [*others, *read, source]}, Container)
    assert found.env == [EnvVar(name=name, value="1") for name in sorted(ENV_READ)]
    assert msgspec.convert({"name": "main", "env": others}, Container) == Container(name="main")
    assert msgspec.convert({"name": "main", "env": None}, Container).env is None
