"""A reader of job summaries with the eyes of a fabric controller.

It sees nothing but ConfigMaps with the label ``outside-job-info=true``: it waits until all chunks of a job are there
and agree, looks at ``operator`` and ``job_status``, and then programs the paths between the servers that the rank table
lists.
"""

import json
from typing import Any

import msgspec

from berth.formats.kubernetes.objects import ConfigMap
from berth.runtime.kube.port import Change


class Programmed(msgspec.Struct, frozen=True):
    """What the reader would program for a running job.

    Attributes:
        servers: (pod, node, serial number, host address) of each server, in rank order.
        devices: (rank, chip, address) of each chip, in rank order.
        shared: Leaf switches that the job shares with others.
        master: Where its processes meet.
    """

    servers: list[tuple[str, str, str, str]]
    devices: list[tuple[int, str, str]]
    shared: list[str]
    master: str


class Fabric:
    """The reader, and all that it has made of each job (by job id).

    Attributes:
        story: (operator, job_status) of each job as they followed one another, when all its chunks agreed.
        running: What is programmed for each running job, one entry a running period.
        gone: Jobs whose ConfigMaps were deleted, in order.
    """

    def __init__(self) -> None:
        self.story: dict[str, list[tuple[str, str]]] = {}
        self.running: dict[str, list[Programmed]] = {}
        self.gone: list[str] = []
        self._maps: dict[tuple[str, str], dict[str, str]] = {}

    def replace(self, objects: list[ConfigMap]) -> None:
        """All summaries that there are."""
        for item in objects:
            self._take(item)

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Summaries that changed."""
        for what, item in changes:
            if what == "DELETED":
                data = self._maps.pop((item.metadata.namespace, item.metadata.name), {})
                job = data.get("job_id", "")
                if all(other.get("job_id") != job for other in self._maps.values()):
                    self.gone.append(job)
            else:
                self._take(item)

    def _take(self, item: ConfigMap) -> None:
        data = item.data or {}
        self._maps[item.metadata.namespace, item.metadata.name] = data
        job = data["job_id"]
        chunks = {one["cm_index"]: one for one in self._maps.values() if one.get("job_id") == job}
        wanted = [str(index) for index in range(int(data["total"]))]
        if any(index not in chunks for index in wanted):
            return  # not all chunks are there
        parts = [chunks[index] for index in wanted]
        if len({(one["total"], one["operator"], one["job_status"], one["time"]) for one in parts}) > 1:
            return  # some are of another time
        told = self.story.setdefault(job, [])
        state = (data["operator"], data["job_status"])
        is_new = not told or told[-1] != state
        if is_new:
            told.append(state)
        if state == ("add", "running"):
            found = _programmed(parts)
            periods = self.running.setdefault(job, [])
            if is_new:
                periods.append(found)
            else:
                periods[-1] = found


def _programmed(parts: list[dict[str, str]]) -> Programmed:
    tables: list[dict[str, Any]] = [json.loads(part["hccl.json"]) for part in parts]
    servers = [server for table in tables for server in table["server_list"]]
    assert all(table["status"] == "complete" for table in tables)
    assert {table["server_count"] for table in tables} == {str(len(servers))}
    assert {table["total"] for table in tables} == {len(parts)}
    shared = parts[0].get("sharedTorIp", "")
    return Programmed(
        servers=[(one["pod_name"], one["server_name"], one["server_sn"], one["host_ip"]) for one in servers],
        devices=[
            (int(device["rank_id"]), device["device_id"], device["device_ip"])
            for one in servers
            for device in one["device"]
        ],
        shared=json.loads(shared) if shared else [],
        master=parts[0].get("masterAddr", ""),
    )
