"""ConfigMap ``reset-config-<job>``: restarts, for the agents in the containers of a job.

The user creates it. The device plug-in, ClusterD and the scheduler change it, each a part of ``reset.json``. Its
checksum covers the fields below in their order; where that of the present value covers fields of another release too,
what is written keeps to that. No field of another release is lost.

Source: docs/reference/faults.md, "What is written after a fault"; docs/reference/kubernetes.md, "CheckCode".
"""

from typing import Final

import msgspec

from berth.formats.ascend.check_code import GoValue, as_sent, check_code, code_of, fits_as_sent, go_json
from berth.formats.ascend.report_error import decoded
from berth.formats.whole_numbers import WHOLE_MAX, Int64, whole_number

NAME_PREFIX: Final = "reset-config-"
KEY: Final = "reset.json"
CHECK_CODE_KEY: Final = "checkCode"
RESTART_TYPE_KEY: Final = "restartType"
RESTART_TYPE: Final = "podReschedule"
LABEL: Final = ("reset", "true")
SAVES: Final = "berth/saves"
"""Annotation: the recovery for which :attr:`Reset.graceful_exit` was set to 1, by :func:`recovery_mark`."""


class ResetRank(msgspec.Struct, frozen=True, rename="pascal"):
    """What is done about a rank."""

    rank_id: Int64 = 0
    logic_id: Int64 = 0
    status: str = ""
    policy: str = ""
    initial_policy: str = ""
    error_code: list[Int64] | None = None
    error_code_hex: str = ""


class Reset(msgspec.Struct, frozen=True, rename="pascal"):
    """Value of :data:`KEY`; the order of the fields is that of the checksum."""

    rank_list: list[ResetRank] | None = None
    update_time: Int64 = 0
    """Seconds since 1970."""
    retry_time: Int64 = 0
    """Partial restarts since the whole job was placed."""
    fault_flushing: bool = False
    graceful_exit: Int64 = 0
    """1: the agents save a checkpoint, for their pods will be deleted."""
    restart_fault_process: bool = False


_RESET: Final = msgspec.json.Decoder(Reset)
_TREE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ROWS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def name_of(job: str) -> str:
    """Name of the ConfigMap of a job."""
    return f"{NAME_PREFIX}{job}"


def recovery_mark(uid: str, since_ms: int) -> str:
    """Name of a recovery.

    Args:
        uid: Of the job request.
        since_ms: Time of its first step.
    """
    return f"{uid}/{since_ms}"


def is_of_later(saves: str, mark: str) -> bool:
    """Whether the value of :data:`SAVES` names a later recovery of the same request than ``mark`` does."""
    uid, _, since_ms = saves.rpartition("/")
    mine, _, mark_ms = mark.rpartition("/")
    return uid == mine and (whole_number(since_ms) or 0) > (whole_number(mark_ms) or 0)


def after_restart(text: str, *, now_s: int, is_whole: bool, code: str = "") -> dict[str, str]:
    """Keys to write when the replaced pods of a job are bound.

    Args:
        text: Present value of :data:`KEY`; empty without one.
        now_s: The time, in seconds since 1970.
        is_whole: All pods of the job were placed.
        code: Present value of :data:`CHECK_CODE_KEY`.

    Raises:
        ReportError: The value is not JSON, or has another form.
    """
    before = read_reset(text)
    retries = 0 if is_whole else min(before.retry_time + 1, WHOLE_MAX)
    reset = msgspec.structs.replace(before, rank_list=[], update_time=now_s, retry_time=retries)
    return {**_written(text, before, reset, code), RESTART_TYPE_KEY: RESTART_TYPE}


def with_graceful_exit(text: str, *, now_s: int, leaves: bool, code: str = "") -> dict[str, str]:
    """Keys to write before pods leave for sub-health, and after it; none if the value says so already.

    Args:
        text: Present value of :data:`KEY`; empty without one.
        now_s: The time, in seconds since 1970.
        leaves: Whether pods will leave.
        code: Present value of :data:`CHECK_CODE_KEY`.

    Raises:
        ReportError: The value is not JSON, or has another form.
    """
    before = read_reset(text)
    if before.graceful_exit == int(leaves):
        return {}
    reset = msgspec.structs.replace(before, update_time=now_s, graceful_exit=int(leaves))
    return _written(text, before, reset, code)


def read_reset(text: str) -> Reset:
    """Known fields of a value of :data:`KEY`; the defaults for an empty one.

    Raises:
        ReportError: It is not JSON, or has another form.
    """
    return decoded(text, _RESET, field=KEY) if text.strip() else Reset()


def _written(text: str, before: Reset, reset: Reset, code: str) -> dict[str, str]:
    """Value and checksum.

    Args:
        text: Present value.
        before: Its known fields.
        reset: What they become.
        code: Present checksum.
    """
    sent = text.strip().encode()
    if sent and code != check_code(before) and fits_as_sent(code, sent):
        changed = {
            field.encode_name: go_json(getattr(reset, field.name)).encode()
            for field in msgspec.structs.fields(reset)
            if getattr(reset, field.name) != getattr(before, field.name)
        }
        members = {key: bytes(raw) for key, raw in _TREE.decode(sent).items()} | changed
        value = as_sent(_joined(members).encode())
        return {KEY: value, CHECK_CODE_KEY: code_of(value.encode())}
    return {KEY: _with_others(reset, sent), CHECK_CODE_KEY: check_code(reset)}


def _with_others(value: GoValue, sent: bytes) -> str:
    """JSON of a value; the members of the present one that are not known follow the known ones, also in its rows."""
    match value:
        case msgspec.Struct() if sent.startswith(b"{"):
            others = {key: bytes(raw) for key, raw in _TREE.decode(sent).items()}
            known = {
                field.encode_name: _with_others(getattr(value, field.name), others.pop(field.encode_name, b"")).encode()
                for field in msgspec.structs.fields(value)
            }
            return _joined(known | others)
        case list() if sent.startswith(b"["):
            rows = _ROWS.decode(sent)
            if len(rows) == len(value):
                return f"[{','.join(_with_others(row, bytes(raw)) for row, raw in zip(value, rows, strict=True))}]"
    return go_json(value)


def _joined(members: dict[str, bytes]) -> str:
    return f"{{{','.join(f'{go_json(key)}:{text.decode()}' for key, text in members.items())}}}"
