"""Former settings: what their sections say that they are is what the modules have that use them."""

import importlib
from typing import Final

import msgspec
import pytest

from berth.runtime.config import constants_of
from berth.runtime.kube.config import FaultObjectsConfig, KubeConfig
from berth.services.gateway.extender_config import ExtenderConfig
from berth.services.inventory.gangs.settings import GangSettings
from tests.contract.reference_pages import settings_of

_MIRROR: Final = ("runtime.bus.port", "MIRROR_WAIT_S")
_RETRY: Final = ("runtime.backoff", "RETRY_FIRST_S")
SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "kube": KubeConfig,
    "fault_objects": FaultObjectsConfig,
    "extender": ExtenderConfig,
    "gangs": GangSettings,
    **{name: settings_of(name) for name in ("api", "binder", "dispatcher", "health", "inventory", "summary")},
}
PLACES: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "kube": {
        "list_timeout_s": ("runtime.kube.http", "_LIST_TIMEOUT_S"),
        "page_size": ("runtime.kube.listing", "PAGE_SIZE"),
        "watch_s": ("runtime.kube.reflector", "_WATCH_S"),
        "idle_s": ("runtime.kube.reflector", "_IDLE_S"),
        "backoff_max_s": ("runtime.kube.reflector", "_PAUSE_MAX_S"),
        "connections": ("runtime.kube.http", "_CONNECTIONS_MAX"),
    },
    "fault_objects": {
        "counters_namespace": ("formats.ascend.fault_counters", "NAMESPACE"),
        "reasons_namespace": ("formats.ascend.reschedule_reasons", "NAMESPACE"),
    },
    "extender": {
        "body_bytes_max": ("services.gateway.extender.endpoint", "BODY_BYTES_MAX"),
        "connections_max": ("services.gateway.extender.serving", "_CONNECTIONS_MAX"),
    },
    "gangs": {
        "retry_max_s": ("services.inventory.gangs.request_lifecycle", "_RETRY_MAX_S"),
        "group_status_s": ("services.inventory.podgroups.collection", "_STATUS_APART_MS"),
    },
    "api": {
        "requests_at_once": ("services.api.event_pages", "AT_ONCE"),
        "position_every_s": ("services.api.loop", "POSITION_EVERY_S"),
        "retry_wait_s": _RETRY,
    },
    "binder": {
        "consume_wait_s": ("services.binder.node_turns", "_CONSUME_WAIT_S"),
        "mirror_wait_s": _MIRROR,
        "retry_wait_s": _RETRY,
    },
    "dispatcher": {
        "heartbeat_s": ("services.dispatcher.leadership", "HEARTBEAT_S"),
        "stalled_s": ("services.dispatcher.leadership", "_STALLED_S"),
        "snapshot_facts": ("services.dispatcher.snapshots", "FACTS_MAX"),
        "snapshot_chunk_bytes": ("services.dispatcher.snapshots", "_CHUNK_BYTES"),
    },
    "health": {
        "flap_hold_max_s": ("services.health.loop", "_FLAP_HOLD_MAX_MS"),
        "flap_quiet_s": ("services.health.loop", "_FLAP_QUIET_MS"),
        "gap_s": ("services.health.loop", "GAP_S"),
        "refresh_s": ("services.health.loop", "_REFRESH_MS"),
        "mirror_wait_s": _MIRROR,
        "retry_wait_s": _RETRY,
    },
    "inventory": {
        "reports_wait_s": ("services.inventory.nodes.device_reports", "_REPORTS_WAIT_S"),
        "unseen_s": ("services.inventory.watching.pod_lookups", "UNSEEN_MS"),
        "calls_at_once": ("services.inventory.publishing.api_tasks", "CALLS_AT_ONCE"),
        "call_tries_max": ("services.inventory.publishing.api_tasks", "TRIES_MAX"),
        "mirror_wait_s": _MIRROR,
        "retry_wait_s": _RETRY,
    },
    "summary": {
        "writes_at_once": ("services.summary.loop", "_WRITES_AT_ONCE"),
        "tor_share_pause_s": ("services.summary.leaf_share", "_PAUSE_S"),
        "retry_wait_s": _RETRY,
    },
}


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_a_former_setting_is_the_constant_that_a_module_has(section: str) -> None:
    stated = constants_of(SECTIONS[section])
    assert stated.keys() == PLACES[section].keys()
    for name, (module, constant) in PLACES[section].items():
        value = getattr(importlib.import_module(f"berth.{module}"), constant)
        number = stated[name].partition(" ")[0].replace(",", "")
        if isinstance(value, str):
            assert stated[name] == value, name
        else:
            assert float(number) == (value / 1_000 if constant.endswith("_MS") else value), name
