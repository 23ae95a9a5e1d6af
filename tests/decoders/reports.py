"""Decoders of texts that Ascend components write into ConfigMaps, and of reports over the bus."""

from typing import Final

from berth.core.topologies.levels.request import LevelError, read_level_config
from berth.formats.ascend.check_code import code_of
from berth.formats.ascend.cluster_info import Chunks, read_devices, read_nodes, read_switches
from berth.formats.ascend.device_info import (
    names_of,
    parse_device_info,
    parse_switch_info,
    physical_id,
)
from berth.formats.ascend.device_list import PodChips, available, chip_mask, resource_of
from berth.formats.ascend.fault_counters import read_retries, retries_text
from berth.formats.ascend.fault_levels import level_of, word_of, worst
from berth.formats.ascend.free_list import FreeList, looked_again, refreshed, with_report
from berth.formats.ascend.node_info import judge_node, parse_node_info, refused_node_info
from berth.formats.ascend.refused_devices import refused_device_info, refused_switch_info
from berth.formats.ascend.report_error import ReportError, lacks_report
from berth.formats.ascend.reschedule_reasons import fitted, read_restarts, restart_of, text_of, with_restart
from berth.formats.ascend.reset_config import after_restart, is_of_later, read_reset, recovery_mark, with_graceful_exit
from berth.formats.kubernetes.node_place import reported_place
from berth.formats.utf8 import is_utf8
from berth.formats.whole_numbers import whole_number
from berth.schemas.envelope import encode
from berth.services.health.reports import answer, parse_report
from tests.decoders.decoder import Decoder
from tests.decoders.kubernetes_objects import encodable
from tests.decoders.messages import samples


class NotTextError(ValueError):
    """Input that no client of the API server returns, because it is not UTF-8."""


def text_of_input(data: bytes) -> str:
    """A text as the client returns it.

    Raises:
        NotTextError: It is none.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotTextError(f"not UTF-8: {error.reason}") from error


def read_device_info(data: bytes) -> None:
    """Report of a device plug-in; its chips that may be allocated."""
    text = text_of_input(data)
    encodable(refused_device_info(text))
    report = parse_device_info(text)
    encodable(report)
    for resource, lists in report.chips.items():
        first = FreeList(lists.free, frozenset(lists.unhealthy_names), report.update_s)
        view = with_report(
            with_report(None, first, idle=3), FreeList(lists.free[:1], frozenset(), report.update_s + 1), idle=1
        )
        looked_again(view, idle=2, age_s=11)
        refreshed(first, FreeList(lists.free, frozenset(), report.update_s + 11), idle=0)
        names = ",".join(lists.free)
        available(
            base_device_infos=None, device_list={resource: names}, pods=[PodChips("a", "Running", {resource: names})]
        )
    worst(level_of(row.level_name).health for row in report.faults)


def read_switch_info(data: bytes) -> None:
    """Report of a switch."""
    text = text_of_input(data)
    encodable(refused_switch_info(text))
    found = parse_switch_info(text)
    encodable(found)
    word_of(level_of(found.fault_level).health)


def read_node_info(data: bytes) -> None:
    """Report of the agent of a node."""
    text = text_of_input(data)
    refused = refused_node_info(text)
    encodable((refused, judge_node(refused.report) if refused.report is not None else None))
    found = parse_node_info(text)
    encodable((found, judge_node(found)))


def read_device_chunk(data: bytes) -> None:
    """Chunk of device reports of ClusterD."""
    found = read_devices(text_of_input(data), {}, name="cluster-info-device-0")
    chunks = Chunks[object]()
    chunks.take("a", found.entries, now_ms=1)  # type: ignore[arg-type]  # any kind of entry
    chunks.forget(now_ms=2, after_ms=1)
    encodable({name: entry.value for name, entry in found.entries.items()})
    encodable([str(error) for error in found.errors.values()])
    encodable(found.refused)


def read_switch_chunk(data: bytes) -> None:
    """Chunk of switch reports of ClusterD."""
    found = read_switches(text_of_input(data), {}, name="cluster-info-switch-0")
    encodable({name: entry.value for name, entry in found.entries.items()})
    encodable([str(error) for error in found.errors.values()])
    encodable(found.refused)


def read_node_chunk(data: bytes) -> None:
    """Node reports of ClusterD."""
    found = read_nodes(text_of_input(data), {})
    encodable({name: (entry.value, judge_node(entry.value)) for name, entry in found.entries.items()})
    encodable([str(error) for error in found.errors.values()])
    encodable(found.refused)


def read_retry_counters(data: bytes) -> None:
    """Counters of restarts, and their text."""
    found = read_retries(text_of_input(data))
    assert read_retries(retries_text(found)) == found, "counters differ after they were written and read"


def read_restart_reasons(data: bytes) -> None:
    """Reasons of restarts, with one more."""
    found = read_restarts(text_of_input(data))
    more = {key: with_restart(job, key, restart_of(1, "", [])) for key, job in found.items()}
    fitted(more, bytes_max=200)
    assert read_restarts(text_of(found)) == found, "restarts differ after they were written and read"


def read_reset_config(data: bytes) -> None:
    """Restarts that agents are told about, and what Berth writes next."""
    text = text_of_input(data)
    read_reset(text)
    for written in (
        after_restart(text, now_s=1_700_000_000, is_whole=False),
        after_restart(text, now_s=1_700_000_000, is_whole=True),
        with_graceful_exit(text, now_s=1_700_000_000, leaves=True),
        with_graceful_exit(text, now_s=1_700_000_000, leaves=True, code=code_of(text.strip().encode())),
    ):
        encodable(written)
        if written:
            read_reset(written["reset.json"])


def read_names(data: bytes) -> None:
    """Names of chips in a list; the chips of a list of whole ones.

    Raises:
        ValueError: A name is not that of a chip.
    """
    text = text_of_input(data)
    for name in names_of(text):
        physical_id(name)
        resource_of(name)
        whole_number(name.rpartition("-")[2])
    is_of_later(text, recovery_mark("u", 1))
    is_utf8(text)
    lacks_report(text)
    chip_mask(text)


def read_place(data: bytes) -> None:
    """Place of a node in the report of its device plug-in."""
    encodable(reported_place(text_of_input(data)))


def read_report(data: bytes) -> None:
    """Report of an agent over the bus, and the answer if it is refused.

    Raises:
        ReportError: It is refused.
    """
    try:
        encode(parse_report(data))
    except ReportError as error:
        answer(error)
        raise


def read_levels(data: bytes) -> None:
    """Levels of trees in a setting."""
    read_level_config(text_of_input(data))


DECODERS: Final = (
    Decoder("device-info", read_device_info, (ReportError, NotTextError), "json"),
    Decoder("switch-info", read_switch_info, (ReportError, NotTextError), "json"),
    Decoder("node-info", read_node_info, (ReportError, NotTextError), "json"),
    Decoder("device-chunk", read_device_chunk, (ReportError, NotTextError), "json"),
    Decoder("switch-chunk", read_switch_chunk, (ReportError, NotTextError), "json"),
    Decoder("node-chunk", read_node_chunk, (ReportError, NotTextError), "json"),
    Decoder("retry-counters", read_retry_counters, (ReportError, NotTextError), "json"),
    Decoder("restart-reasons", read_restart_reasons, (ReportError, NotTextError), "json"),
    Decoder("reset-config", read_reset_config, (ReportError, NotTextError), "json"),
    Decoder("chip-names", read_names, (ValueError,), "text"),
    Decoder("reported-place", read_place, (ReportError, NotTextError), "json"),
    Decoder("health-report", read_report, (ReportError,), "json"),
    Decoder("health-message", read_report, (ReportError,), "msgpack", lambda: samples("report.health")),
    Decoder("levels", read_levels, (LevelError, NotTextError), "json"),
)
