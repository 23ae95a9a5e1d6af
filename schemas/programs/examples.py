"""Examples of what programs send and get, for the documents; each is what its type reads and writes."""

from typing import Any, Final

_JOB: Final = {"namespace": "team-a", "name": "train", "uid": "6f0c"}
_ABOUT: Final = {"name": "train", "namespace": "team-a"}
_RANKS: Final = [
    {"rank": 0, "node": "a2-1", "chips": [0, 1, 2, 3, 4, 5, 6, 7]},
    {"rank": 1, "node": "a2-2", "chips": [0, 1, 2, 3, 4, 5, 6, 7]},
]
_AT_MS: Final = 1_790_000_000_000
_FILE: Final = {
    "apiVersion": "berth/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team-a", "uid": "6f0c"},
    "spec": {"product": "module910bx8", "replicas": 2, "chips": 8},
}
_EVENT: Final = {
    "id": "6f0c/1/0/placed", **_JOB, "attempt": 1, "step": 0, "phase": "placed", "at_ms": _AT_MS, "final": False,
    "sentence": "", "code": "", "request_seq": 1, "ranks": _RANKS, "source": "ledger", "sequence": 42,
    "trace_id": "2d82e5080511096e644c31f97780c5ce",
}  # fmt: skip

EXAMPLES: Final[dict[str, Any]] = {
    "JobFile": _FILE,
    "SubmitRequest": {"job": _FILE},
    "SubmitManyRequest": {"jobs": [_FILE]},
    "CancelRequest": {**_ABOUT, "reason": "enough"},
    "UpdateRequest": {**_ABOUT, "change": {"held": True, "reason": "its data is not there yet"}},
    "DrainRequest": {"kind": "node", "name": "a2-1", "reason": "its fans"},
    "UndrainRequest": {"kind": "node", "name": "a2-1"},
    "ApproveRequest": {"kind": "CardUnhealthy", "domain": "leaf-1"},
    "StatusRequest": _ABOUT,
    "ExplainRequest": _ABOUT,
    "ExpectedStartsRequest": {"namespace": "team-a"},
    "AskRequest": {"job": _FILE, "queue": "research"},
    "JobsRequest": {"phase": "waiting", "limit": 100},
    "NodesRequest": {"leaf": "leaf-05", "details": True},
    "UsageRequest": {},
    "PlacesRequest": {"names": ["leaf-05"]},
    "FaultsRequest": {},
    "DrainsRequest": {},
    "QueuesRequest": {},
    "EventsRequest": {**_ABOUT, "after": 17, "wait_s": 20},
    "RightsRequest": {},
    "SubmitReply": {"ok": True, **_JOB, "sequence": 1, "duplicate": False},
    "CancelReply": {"ok": True, **_JOB, "sequence": 2},
    "UpdateReply": {"ok": True, **_JOB, "sequence": 3},
    "DrainReply": {"ok": True, "kind": "node", "name": "a2-1", "since_ms": _AT_MS, "sequence": 812},
    "ApproveReply": {
        "ok": True,
        "kind": "CardUnhealthy",
        "domain": "leaf-1",
        "until_ms": _AT_MS + 600_000,
        "sequence": 813,
    },
    "RightsReply": {"ok": True, "identity": "alice", "read": ["*"], "submit": ["team-a"], "operate": False},
    "ErrorReply": {
        "ok": False,
        "error": "name is team-a/nobody, expected a job of namespace team-a",
        "code": "not-found",
    },
    "JobEvent": _EVENT,
}
"""By name of the type."""
