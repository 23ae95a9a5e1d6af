"""Explanations without the names of jobs that a reader may not see."""

from typing import Any

import msgspec

from berth.core.explain.evidence import Candidate, Event, Holder, NearNode, Unblocking, Way
from berth.core.explain.model import Basis, Choice, Explanation
from berth.core.explain.restricted import _LISTS, _NAMES, restricted
from berth.schemas.programs.documents import field_texts


def of_team(namespace: str) -> bool:
    return namespace == "team"


def kinds_in(kind: Any, found: set[type[msgspec.Struct]]) -> None:  # noqa: ANN401  # a description of any type
    """Add all structs below a type."""
    match kind:
        case msgspec.inspect.StructType(cls=cls, fields=fields) if cls not in found:
            found.add(cls)
            for field in fields:
                kinds_in(field.type, found)
        case msgspec.inspect.UnionType(types=parts):
            for part in parts:
                kinds_in(part, found)
        case msgspec.inspect.ListType(item_type=inner):
            kinds_in(inner, found)
        case _:
            pass


def test_every_field_with_the_name_of_a_job_is_restricted() -> None:
    found: set[type[msgspec.Struct]] = set()
    kinds_in(msgspec.inspect.type_info(Explanation), found)
    named = {name for cls in found for name, text in field_texts(cls).items() if "namespace/name" in text}
    assert named == _NAMES | _LISTS


def test_names_and_uids_of_other_namespaces_are_left_out_and_numbers_stay() -> None:
    held = [Holder("team/own", 4), Holder("prod/secret", 8, since_ms=7), Holder("prod/secret-2", 8)]
    taken = Candidate("n2", 1, 0, 0, "taken", taken_by=["rank 0", "prod/secret", "prod/secret-2", "team/own"])
    ends = [Event("job-ends", "prod/secret", "u-secret", 1, 1, 8), Event("job-ends", "team/own", "u-own")]
    whole = Explanation(
        "team",
        "mine",
        "u",
        "waiting",
        Basis(),
        choices=[Choice(0, "worker", "n1", [0], candidates=[taken])],
        sentence="waits behind prod/secret, which was first",
        ahead="prod/secret",
        nearest=[NearNode("n1", 0, "shortage", "words", held_by=[one.job for one in held], holders=held, wrong=[])],
        unblocking=Unblocking([Way(ends)]),
    )
    found = restricted(whole, of_team)
    other = "a job of another namespace"
    assert (found.ahead, found.sentence) == (other, f"waits behind {other}, which was first")
    assert found.choices[0].candidates[0].taken_by == ["rank 0", other, "team/own"]
    assert found.nearest[0].held_by == ["team/own", other]
    assert found.nearest[0].holders == [Holder("team/own", 4), Holder(other, 8, since_ms=7), Holder(other, 8)]
    assert found.unblocking == Unblocking([Way([Event("job-ends", other, "", 1, 1, 8), ends[1]])])
    assert b"secret" not in msgspec.json.encode(found)
    assert whole.ahead == "prod/secret"
    assert restricted(whole, lambda _: True) == whole
