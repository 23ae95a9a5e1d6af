"""Which disruption budgets the end of a job would break."""

from typing import Any

import msgspec

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.policies import DisruptionBudget
from tests.unit.services.inventory.pods.test_collection import World, a_pod, accepted

APP = {"app": "chat"}


def a_budget(name: str = "keep", *, allowed: int = 0, namespace: str = "team", **spec: Any) -> DisruptionBudget:  # noqa: ANN401 - whatever a selector has
    """A budget, as the API server has it once its controller has worked out what it allows."""
    body = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, DisruptionBudget)


def of_app(**budget: Any) -> DisruptionBudget:  # noqa: ANN401 - whatever a_budget takes
    return a_budget(selector={"matchLabels": APP}, **budget)


def rank(number: int, labels: dict[str, str] = APP, **more: Any) -> Pod:  # noqa: ANN401 - whatever a pod has
    return a_pod(f"p{number}", job=("j", "u", 1, number), labels=labels, **more)


def cell_with(*pods: Pod) -> World:
    """A job, of which nothing has been published."""
    world = World()
    world.pods.note_job(accepted("j", "u", len(pods)))
    world.put(*pods)
    return world


def budgets(world: World) -> list[list[str]]:
    """What each fact that is due says of budgets."""
    return [fact.budgets for fact in world.facts()]


def test_a_budget_is_broken_by_more_pods_than_it_allows() -> None:
    world = cell_with(rank(0), rank(1))
    world.pods.budgets.replace([of_app(name="a", allowed=1), of_app(name="b", allowed=2)])
    assert budgets(world) == [["team/a"]]


def test_a_budget_counts_the_pods_of_its_namespace_that_its_selector_selects() -> None:
    world = cell_with(rank(0), rank(1, {"app": "other"}))
    world.pods.budgets.replace(
        [
            of_app(name="one", allowed=1),
            of_app(name="elsewhere", namespace="others"),
            a_budget("nobody"),
            a_budget("all", selector={}, allowed=1),
            a_budget("wrong", selector={"matchExpressions": [{"key": "app", "operator": "Is", "values": ["chat"]}]}),
            a_budget("some", selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["chat"]}]}),
        ]
    )
    assert budgets(world) == [["team/all", "team/some"]]


def test_pods_that_have_ended_or_are_ending_do_not_count() -> None:
    world = cell_with(rank(0, phase="Succeeded"), rank(1, ending=True), rank(2))
    world.pods.budgets.replace([of_app(allowed=1)])
    assert budgets(world) == [[]]


def test_a_fact_follows_what_a_budget_allows() -> None:
    world = cell_with(rank(0), rank(1))
    keep = world.pods.budgets
    keep.replace([of_app(allowed=2)])
    assert budgets(world) == [[]]
    keep.put(of_app(allowed=1))
    assert budgets(world) == [["team/keep"]]
    keep.put(of_app(allowed=0))
    assert budgets(world) == []
    keep.put(a_budget(selector={"matchLabels": {"app": "other"}}))
    assert budgets(world) == [[]]
    keep.put(of_app(allowed=0))
    assert budgets(world) == [["team/keep"]]
    keep.drop(of_app())
    assert budgets(world) == [[]]


def test_a_list_without_a_budget_ends_it() -> None:
    world = cell_with(rank(0))
    world.pods.budgets.replace([of_app(name="a"), of_app(name="b")])
    assert budgets(world) == [["team/a", "team/b"]]
    world.pods.budgets.replace([of_app(name="b")])
    assert budgets(world) == [["team/b"]]


def test_a_job_whose_pods_are_gone_is_forgotten() -> None:
    world = cell_with(rank(0))
    world.pods.budgets.replace([of_app()])
    assert budgets(world) == [["team/keep"]]
    world.pods.remove("uid-p0")
    assert len(world.facts()) == 1
    world.pods.budgets.put(of_app(allowed=5))
    assert budgets(world) == []
