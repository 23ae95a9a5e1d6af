import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.domains import BUCKET_NODES_MAX, domains, leaving, shard_of
from berth.schemas.nodes import NodeDescription


def loose(count: int, *, prefix: str = "node-") -> list[NodeDescription]:
    return [NodeDescription(name=f"{prefix}{index:05}") for index in range(count)]


def test_a_superpod_outranks_a_leaf_switch_and_a_leaf_switch_a_bucket() -> None:
    nodes = [
        NodeDescription(name="d", superpod="7", leaf="sw"),
        NodeDescription(name="c", leaf="sw"),
        NodeDescription(name="a", leaf="sw"),
        NodeDescription(name="b"),
    ]
    assert domains(nodes) == {"bucket-all": ["b"], "leaf-sw": ["a", "c"], "superpod-7": ["d"]}


def test_names_of_different_kinds_do_not_meet() -> None:
    nodes = [NodeDescription(name="a", superpod="x"), NodeDescription(name="b", leaf="x"), NodeDescription(name="c")]
    assert len(domains(nodes)) == 3


def test_no_nodes_no_domains() -> None:
    assert domains([]) == {}


@pytest.mark.parametrize("count", [1, 64, 65, 1000, 5000])
def test_every_loose_node_is_in_one_bucket_of_at_most_64(count: int) -> None:
    found = domains(loose(count))
    assert sorted(name for names in found.values() for name in names) == [node.name for node in loose(count)]
    assert max(map(len, found.values())) <= BUCKET_NODES_MAX
    assert len(found) <= max(1, 3 * count // BUCKET_NODES_MAX)


def test_the_order_of_nodes_does_not_matter() -> None:
    nodes = loose(500)
    mixed = nodes[::-3] + nodes[-2::-3] + nodes[-3::-3]
    assert list(domains(mixed).items()) == list(domains(nodes).items())


@given(count=st.integers(0, 300), added=st.integers(0, 10**6))
def test_a_node_that_comes_touches_one_bucket_or_splits_one(count: int, added: int) -> None:
    before = domains(loose(count))
    after = domains([*loose(count), NodeDescription(name=f"other-{added}")])
    changed = [domain for domain in before.keys() | after.keys() if before.get(domain) != after.get(domain)]
    gone = [domain for domain in changed if domain not in after]
    assert len(gone) <= 1
    if gone:
        assert all(domain.startswith(gone[0].removesuffix("all")) for domain in changed)
    else:
        assert len(changed) == 1


def test_nodes_leave_their_old_domain_before_they_join_another() -> None:
    old = {"a": ["n1", "n2"], "b": ["n3"], "c": ["n4"]}
    new = {"a": ["n1", "n3"], "c": ["n4"], "d": ["n2"]}
    assert leaving(old, new) == {"a": ["n1"], "b": []}


def test_one_bucket_is_enough_for_64_nodes() -> None:
    assert list(domains(loose(BUCKET_NODES_MAX))) == ["bucket-all"]
    assert len(domains(loose(BUCKET_NODES_MAX + 1))) > 1


def test_a_node_is_in_the_same_bucket_in_every_release() -> None:
    """Facts of the release before name buckets, too."""
    found = domains(loose(BUCKET_NODES_MAX + 1))
    assert {domain: names[0] for domain, names in found.items()} == {"bucket-0": "node-00005", "bucket-1": "node-00000"}


def test_a_domain_belongs_to_the_same_shard_in_every_release() -> None:
    """Recordings name silent shards by their numbers."""
    assert [shard_of(f"leaf-{node}", 97) for node in "abcd"] == [30, 59, 82, 55]
