"""The digest of a replay: a field that is newer than release 0.4 counts only with a value other than its default."""

import msgspec

from berth.core.replay.digests import digested_epoch, digested_round
from berth.schemas.envelope import encode, open_envelope
from berth.schemas.ledger import Adoption, Correction, Epoch, Round, Settings, Verdict
from berth.schemas.placement import ClaimVolume, Placement, Run, placement_of
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import ConstraintCount, NodeReason, ReasonCount, Refusal

REFUSAL = Refusal("no-room", nodes_total=2, counts=[ReasonCount(NodeReason.SPREAD, 2)])
NAMED = msgspec.structs.replace(REFUSAL, constraints=[ConstraintCount(NodeReason.SPREAD, 2, ["zone"], 1)], shapes=3)


def round_of(*refusals: Refusal | None) -> Round:
    verdicts = [Verdict("ns", f"j{at}", f"u{at}", 1, refusal=refusal) for at, refusal in enumerate(refusals)]
    return Round(1, 1, 4, 9, 1, verdicts=verdicts)


def placed(*claims: ClaimVolume) -> Placement:
    return placement_of(["n0"], [(0,)], [Run(1, 1)], resource="chips", claims=list(claims))


def test_a_round_whose_newer_fields_have_values_counts_as_it_is_written() -> None:
    decided = placed(ClaimVolume("data", "c1", 0))
    with_claims = Round(
        1,
        1,
        4,
        9,
        1,
        verdicts=[Verdict("ns", "j", "u", 1, decided)],
        adoptions=[Adoption("ns", "g", "u2", decided)],
    )
    recovers = [Recovery("ns", "j", "u", 1, 1, "CardUnhealthy", "a chip is unhealthy", "pod", "force", [0], [0], 9)]
    for plain in (round_of(), round_of(None), round_of(NAMED), with_claims):
        record = msgspec.structs.replace(
            plain, recoveries=recovers, corrections=[Correction("u", 1, [0], [[1]])], work_max=7
        )
        assert digested_round(record, encode(record)) == encode(record)


def test_a_round_without_recoveries_counts_as_release_0_4_writes_it() -> None:
    for record in (round_of(), round_of(None), round_of(NAMED)):
        said = msgspec.msgpack.decode(open_envelope(digested_round(record, encode(record))).body)
        assert [*said, [], [], [], 0] == msgspec.msgpack.decode(msgspec.msgpack.encode(record))


def test_a_placement_without_claims_counts_as_release_0_4_writes_it() -> None:
    decided = placed(ClaimVolume("data", "c1", 0))
    verdicts = [Verdict("ns", "j", "u", 1, placed()), Verdict("ns", "j2", "u2", 1, decided)]
    adoptions = [Adoption("ns", "g", "u3", placed()), Adoption("ns", "g2", "u4", decided)]
    record = Round(1, 1, 4, 9, 1, verdicts=verdicts, adoptions=adoptions)
    said = msgspec.msgpack.decode(open_envelope(digested_round(record, encode(record))).body)
    whole = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    for table, kind in (("verdicts", Verdict), ("adoptions", Adoption)):
        at, placement = Round.__struct_fields__.index(table), kind.__struct_fields__.index("placement")
        assert len(said[at][0][placement]) == 8
        assert [*said[at][0][placement], []] == whole[at][0][placement]
        assert said[at][1] == whole[at][1]
        said[at][0][placement] = whole[at][0][placement]
    assert [*said, [], [], [], 0] == whole


def test_a_refusal_without_the_field_counts_as_release_0_4_writes_it() -> None:
    record = round_of(REFUSAL, None, NAMED)
    said = msgspec.msgpack.decode(open_envelope(digested_round(record, encode(record))).body)
    whole = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    at = Round.__struct_fields__.index("verdicts")
    refusal = Verdict.__struct_fields__.index("refusal")
    assert len(said[at][0][refusal]) == 18
    assert whole[at][0][refusal] == [*said[at][0][refusal], [], False, 0, 0]
    assert said[at][1:] == whole[at][1:]
    assert [*said[:at], *said[at + 1 :], [], [], [], 0] == whole[:at] + whole[at + 1 :]


def test_what_a_constraint_names_counts() -> None:
    one, other = round_of(REFUSAL, REFUSAL), round_of(REFUSAL, NAMED)
    assert digested_round(one, encode(one)) != digested_round(other, encode(other))


def test_a_setting_counts_when_it_is_not_its_default() -> None:
    newer = Settings(grace_over_ms=1)
    plain = Epoch(1, 0, 0, 5, "holder", Settings())
    assert digested_epoch(msgspec.structs.replace(plain, settings=newer)) != digested_epoch(plain)
    assert len(msgspec.msgpack.decode(open_envelope(digested_epoch(plain)).body)[-1]) == 21


def test_a_refusal_without_the_field_counts_as_release_0_4_writes_it_beside_recoveries_too() -> None:
    recovery = Recovery("ns", "j", "u", 1, 1, "CardUnhealthy", "a chip is unhealthy", "pod", "force", [0], [0], 9)
    record = msgspec.structs.replace(round_of(REFUSAL), recoveries=[recovery])
    said = msgspec.msgpack.decode(open_envelope(digested_round(record, encode(record))).body)
    whole = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    at, refusal = Round.__struct_fields__.index("verdicts"), Verdict.__struct_fields__.index("refusal")
    assert whole[at][0][refusal] == [*said[at][0][refusal], [], False, 0, 0]
    assert [*said[at + 1 :], [], 0] == whole[at + 1 :]
