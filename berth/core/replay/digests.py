"""Bytes of records in the digest of a replay, without the fields that came after release 0.4 and have their defaults.

So the digest of a recording does not change when a release appends a field.
"""

from typing import Final

import msgspec

from berth.schemas.envelope import open_envelope
from berth.schemas.ledger import Adoption, Epoch, Refusal, Round, Settings, Verdict
from berth.schemas.placement import Placement

_SETTINGS_OF_0_4: Final = 21
"""Settings of release 0.4: the first fields of :class:`berth.schemas.ledger.Settings`."""
_REFUSAL_AT: Final = Verdict.__struct_fields__.index("refusal")
_REFUSAL_OF_0_4: Final = Refusal.__struct_fields__.index("constraints")
"""Fields of a refusal in release 0.4: the first ones."""
_PLACEMENT_AT: Final = Verdict.__struct_fields__.index("placement")
_PLACEMENT_OF_0_4: Final = Placement.__struct_fields__.index("claims")
"""Fields of a placement in release 0.4: the first ones."""


def digested_epoch(epoch: Epoch) -> bytes:
    """An epoch in the digest."""
    fields = msgspec.structs.fields(Settings)
    settings = [getattr(epoch.settings, field.name) for field in fields]
    while len(settings) > _SETTINGS_OF_0_4 and settings[-1] == fields[len(settings) - 1].default:
        settings.pop()
    resumes = [True] if epoch.resumes else []
    body = msgspec.msgpack.encode([*msgspec.structs.astuple(epoch)[:-2], settings, *resumes])
    return msgspec.msgpack.encode((Epoch.KIND, 1, msgspec.Raw(body)))


def digested_round(record: Round, data: bytes) -> bytes:
    """A round in the digest.

    Args:
        record: The round.
        data: The round, encoded by this release.
    """
    items = list(msgspec.structs.astuple(record))
    if not record.work_max:
        del items[Round.__struct_fields__.index("work_max") :]
        if not record.corrections:
            has_recoveries = bool(record.recoveries or record.held)
            del items[Round.__struct_fields__.index("corrections" if has_recoveries else "recoveries") :]
    items[Round.__struct_fields__.index("verdicts")] = [_verdict(verdict) for verdict in record.verdicts]
    items[Round.__struct_fields__.index("adoptions")] = [_adoption(adoption) for adoption in record.adoptions]
    envelope = open_envelope(data)
    body = msgspec.Raw(msgspec.msgpack.encode(items))
    release = (envelope.release,) if envelope.release else ()
    return msgspec.msgpack.encode((envelope.kind, envelope.version, body, *release))


def _is_older(placement: Placement | None) -> bool:
    return placement is not None and not placement.claims


def _verdict(verdict: Verdict) -> object:
    items = list(msgspec.structs.astuple(verdict))
    if verdict.refusal is not None:
        items[_REFUSAL_AT] = _refusal(verdict.refusal)
    if verdict.placement is not None and _is_older(verdict.placement):
        items[_PLACEMENT_AT] = msgspec.structs.astuple(verdict.placement)[:_PLACEMENT_OF_0_4]
    return items


def _refusal(refusal: Refusal) -> list[object]:
    items = list(msgspec.structs.astuple(refusal))
    while len(items) > _REFUSAL_OF_0_4 and not items[-1]:  # the defaults of later fields are 0, false or empty
        items.pop()
    return items


def _adoption(adoption: Adoption) -> object:
    if not _is_older(adoption.placement):
        return adoption
    return [*msgspec.structs.astuple(adoption)[:-1], msgspec.structs.astuple(adoption.placement)[:_PLACEMENT_OF_0_4]]
