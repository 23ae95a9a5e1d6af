"""Family ``queues``: what Volcano's plug-ins capacity and proportion make of queues, jobs and nodes.

Of what they say of victims (``reclaims``, ``gangs``) only the bundles are compared, which gangs are split into: the
choice follows from floating point and from an order of picking, and Berth's own is another one.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from typing import Any, Final, NamedTuple

import msgspec

from berth.core.parity import OWN, REFERENCE, Differences, differs
from berth.core.preemption.surplus import surplus_ranks
from berth.core.queues.admission import Ask, minima_of, placement_refusal
from berth.core.queues.amounts import total, unit_of
from berth.core.queues.charges import Holding, Usage, ranks_of_minimum
from berth.core.queues.fair import fair_shares, is_beyond_fair
from berth.core.queues.order import leaves_in_order, share_of
from berth.core.queues.reference_counts import counted_minimum, elastic_part, reserved_part
from berth.core.queues.reference_fair import PARTS, reference_fair, small
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.tree import Tree, tree_of
from berth.schemas.ledger import Settings
from berth.schemas.queues.queue import ROOT, Amounts, Queue
from tests.golden.harness import DECISIONS, Answer, Line, differ
from tests.golden.queue_lines import amounts_of, queue_of, whole

PROPORTION: Final = "proportion"
FLAT: Final = frozenset({PROPORTION, "capacity-flat"})
"""Families without a tree: all queues share the nodes, and nothing is above them."""
HELD: Final = frozenset({"Running", "Bound"})
PODS: Final = "pods"
"""A dimension of shares that lines leave out: one a pod, and 11,000 in all."""
PODS_MAX: Final = 11_000
NO_LIMIT: Final = "inf"
SHARE_ERROR: Final = 1e-6
NAMES: Final[Mapping[str, str]] = {
    "closed-branch": "closed_branches",
    "orphans-at-root": "orphans_at_root",
    "guarantees-on-nodes": "guarantees_on_nodes",
    "by-weight": "entitled_by_weight",
    "deserved-over-limit": "entitled_within_limits",
    "guarantee-over-the-parents-limit": "limited_by_parent",
    "deserved-is-no-limit": "deserved_is_no_limit",
    "floors-within-the-sum": "floors_within_the_sum",
    "priority-of-branch": "branch_priority",
    "borrowers-by-weight": "borrowers_by_weight",
    "minimum-from-pods": "minimum_from_pods",
    "counts-only-what-stays": "counts_what_stays",
}
"""Decisions, and the differences that they are."""
BROKEN: Final = "one-broken-queue-stops-all"


class Job(NamedTuple):
    """A job of a line.

    Attributes:
        name: Its name.
        queue: Its queue.
        priority: Its priority.
        phase: Phase of its PodGroup.
        held: What its pods hold.
        asked: What its pods hold and ask for.
        minimum: Its declared minimum; None without.
        is_due: What it lacks of its minimum is about to be given.
        first: Requests of the ranks of its minimum.
        created: Number by which older jobs come first.
    """

    name: str
    queue: str
    priority: int
    phase: str
    held: Amounts
    asked: Amounts
    minimum: Amounts | None
    is_due: bool
    first: Amounts
    created: int


def compare_queues(line: Line, settings: Settings) -> Answer:
    """One state of a cluster, each answer alone at this state."""
    result = line["result"]
    if not result["ready"]:
        return Answer(differ("ready", result["ready"], not _is_stopped(line)), (BROKEN,))
    chosen = differs(settings)
    expected, got = _expected(line), answers_of(line, chosen)
    got["bundles"] = [_split(line, given) for given in result.get("gangs") or ()]
    differences = tuple(
        difference for field in expected for difference in _differ(line, field, expected[field], got[field])
    )
    if settings.reference_parity or not differences:
        return Answer(differences)
    return Answer(differences, active=_active(line, {field for field, _ in differences}))


def _is_stopped(line: Line) -> bool:
    """Whether something is wrong for which the reference refuses everything."""
    tree = tree_of(map(queue_of, line["queues"]))
    return bool(tree.broken or ROOT not in tree.declared or any(job["queue"] in tree.children for job in line["jobs"]))


def _active(line: Line, fields: AbstractSet[str]) -> tuple[str, ...]:
    """Decisions that change one of the fields that they may change: alone, or against all others."""
    bases = [(base, value, answers_of(line, base)) for base, value in ((OWN, False), (REFERENCE, True))]
    found = []
    for name, flag in NAMES.items():
        changed = sorted(fields & DECISIONS[name])
        if changed and any(
            answers.get(field) != other.get(field)
            for base, value, answers in bases
            for other in [answers_of(line, msgspec.structs.replace(base, **{flag: value}))]
            for field in changed
        ):
            found.append(name)
    return tuple(found)


def _expected(line: Line) -> dict[str, Any]:
    result = line["result"]
    found: dict[str, Any] = {"ready": True, "queues": sorted(result["attrs"])}
    for field in ("limit", "deserved", "allocated", "request", "inqueue", "elastic"):
        found[field] = {
            name: {dimension: attrs[field].get(dimension, 0) for dimension in line["total"]}
            for name, attrs in result["attrs"].items()
        }
    found["share"] = {name: attrs["share"] for name, attrs in result["attrs"].items() if name != ROOT}
    found["order"] = result["order"]
    for field in ("enqueueable", "lacking", "allocatable"):
        if result[field] is not None:
            found[field] = result[field]
    if result.get("gangs"):
        found["bundles"] = [_bundled(line, given) for given in result["gangs"]]
    if line["family"] == PROPORTION:
        found["overused"] = {name: attrs["overused"] for name, attrs in result["attrs"].items()}
    return found


def _bundled(line: Line, given: Line) -> dict[str, list[int]]:
    """Pods of each gang that may leave alone, and the others, as the reference splits it."""
    apart = {job["name"] for job in line["jobs"] if not _is_split(job)}
    found: dict[str, list[int]] = {}
    for bundle in given["bundles"]:
        if bundle["job"] not in apart:
            found.setdefault(bundle["job"], [0, 0])[bundle["type"] == "whole"] += len(bundle["tasks"])
    return found


def _split(line: Line, given: Line) -> dict[str, list[int]]:
    """The same as Berth splits gangs of other queues, or of lower priority in the own one."""
    mine = next(job for job in line["jobs"] if job["name"] == given["job"])
    reclaimable = {queue["name"] for queue in line["queues"] if queue["reclaimable"]}
    found: dict[str, list[int]] = {}
    for job in line["jobs"]:
        is_own = job["queue"] == mine["queue"]
        is_lower = is_own and job["priority"] < mine["priority"]
        may_go = is_lower if given["kind"] == "preempt" else not is_own and job["queue"] in reclaimable
        held = [rank for rank, task in enumerate(job["tasks"]) if task["status"] in HELD]
        if may_go and held and _is_split(job):
            gone = set(range(len(job["tasks"]))).difference(held)
            roles = [task["role"] for task in job["tasks"]]
            surplus = surplus_ranks(roles, gone, job["min_member"], job["min_task_member"] or {})
            found[job["name"]] = [len(surplus), len(held) - len(surplus)]
    return found


def _is_split(job: Line) -> bool:
    """Whether a gang is split as a whole: all that it holds runs, and is no less than its minimum.

    Below it the reference lets all pods leave alone, and Berth none.
    """
    held = [task["status"] for task in job["tasks"] if task["status"] in HELD]
    return len(held) >= job["min_member"] and set(held) == {"Running"}


def answers_of(line: Line, chosen: Differences) -> dict[str, Any]:
    """Answers of the production code, in the form of a line."""
    shares = shares_of_line(line, chosen)
    jobs = jobs_of(line)
    tree, names = shares.tree, _named(line, shares.tree, jobs)
    usage = {field: Usage(tree) for field in ("allocated", "request", "inqueue", "elastic")}
    for job in jobs:
        minimum = job.minimum or {}
        usage["allocated"].charge(job.queue, job.held)
        usage["request"].charge(job.queue, job.asked)
        usage["inqueue"].charge(job.queue, reserved_part(job.held, minimum, is_due=job.is_due))
        usage["elastic"].charge(job.queue, elastic_part(job.held, minimum))
    demand = {job.queue: _sums(usage["request"], job.queue, shares.capacity) for job in jobs if job.queue in tree.paths}
    fair = fair_shares(shares, demand) if line["family"] == PROPORTION else None
    stands, standing = (shares, usage["allocated"]) if fair is None else _fairly(shares, demand, jobs)
    found: dict[str, Any] = {"ready": True, "queues": names}
    for field, sums in usage.items():
        found[field] = {name: whole(_sums(sums, name, line["total"])) for name in names}
    found["limit"] = {name: _limit(shares.limits[name], line["total"]) for name in names}
    found["deserved"] = {name: _deserved(fair or shares.entitlements, tree, name, line["total"]) for name in names}
    found["share"] = {name: _share(stands, standing, name) for name in names if name != ROOT}
    found["order"] = [name for name in leaves_in_order(stands, standing) if name in names]
    found |= _admissions(shares, jobs)
    found["allocatable"] = _placements(line, shares, usage["allocated"], demand)
    found["overused"] = {name: _is_overused(stands, standing, name) for name in names}
    return found


def shares_of_line(line: Line, chosen: Differences) -> Shares:
    """Shares of the queues of a line; those of a flat family are below a root that has the nodes."""
    capacity = amounts_of(line["total"])
    queues = [queue_of(given) for given in line["queues"]]
    if line["family"] == PROPORTION:
        capacity[PODS] = PODS_MAX * unit_of(PODS)
    if line["family"] not in FLAT:
        return shares_of(tree_of(queues, differs=chosen), capacity)
    chosen = msgspec.structs.replace(chosen, entitled_within_limits=True)  # the flat form caps what is deserved too
    shares = shares_of(tree_of([*queues, Queue(ROOT, capability=capacity)], differs=chosen), capacity)
    return shares._replace(limits=shares.limits | {ROOT: {}})


def jobs_of(line: Line) -> list[Job]:
    """Jobs of a line."""
    return [_job(given, counts_pods=line["family"] == PROPORTION) for given in line["jobs"]]


def _job(given: Line, *, counts_pods: bool) -> Job:
    requests = [_request(task, counts_pods=counts_pods) for task in given["tasks"]]
    tasks = list(zip(given["tasks"], requests, strict=True))
    held = [request for task, request in tasks if task["status"] in HELD]
    asked = [request for task, request in tasks if task["status"] in HELD | {"Pending"}]
    ranks = ranks_of_minimum(
        [task["role"] for task in given["tasks"]], given["min_member"], given["min_task_member"] or {}
    )
    declares = given["min_resources"] is not None
    has_enough = given["phase"] == "Running" and len(held) >= given["min_member"]
    return Job(
        given["name"],
        given["queue"],
        given["priority"],
        given["phase"],
        total(held),
        total(asked),
        amounts_of(given["min_resources"]) if declares else None,
        declares and (given["phase"] == "Inqueue" or has_enough),
        total(requests[rank] for rank in ranks),
        given["created"],
    )


def _request(task: Line, *, counts_pods: bool) -> Amounts:
    request = amounts_of(task["request"])
    return request | {PODS: unit_of(PODS)} if counts_pods else request


def _named(line: Line, tree: Tree, jobs: Sequence[Job]) -> list[str]:
    """Queues that the reference knows: in a flat family those that have a job."""
    if line["family"] in FLAT:
        return sorted({job.queue for job in jobs})
    return sorted(tree.declared)


def _fairly(shares: Shares, demand: Mapping[str, Amounts], jobs: Sequence[Job]) -> tuple[Shares, Usage]:
    """Shares and usage by which the order is compared: where fair shares are no limit, they are no entitlements."""
    tree = shares.tree
    if tree.differs.deserved_is_no_limit:
        return shares, Usage(tree, [Holding(job.name, job.queue, job.held) for job in jobs])
    usage = Usage(tree)
    for job in jobs:
        usage.charge(job.queue, {dimension: amount * PARTS for dimension, amount in job.held.items()})
    parts = reference_fair(shares, demand)
    return shares._replace(entitlements={name: parts.get(name, {}) for name in tree.paths}), usage


def _sums(usage: Usage, name: str, dimensions: Iterable[str]) -> Amounts:
    return {dimension: usage.held(name, dimension) for dimension in dimensions}


def _limit(limits: Mapping[str, int], dimensions: Iterable[str]) -> dict[str, int | str]:
    return {
        dimension: whole({dimension: limits[dimension]})[dimension] if dimension in limits else NO_LIMIT
        for dimension in dimensions
    }


def _deserved(parts: Mapping[str, Amounts], tree: Tree, name: str, dimensions: Iterable[str]) -> Amounts:
    """What a queue deserves; the root of the reference has the sum of those below it."""
    found = total(parts[child] for child in tree.children[ROOT]) if name == ROOT else parts[name]
    return whole({dimension: found.get(dimension, 0) for dimension in dimensions})


def _is_overused(shares: Shares, usage: Usage, name: str) -> bool:
    parts = shares.entitlements[name]
    return all(amount <= usage.held(name, dimension) + small(dimension) for dimension, amount in parts.items())


def _admissions(shares: Shares, jobs: Sequence[Job]) -> dict[str, Any]:
    """Whether each PodGroup that is pending is admitted, and what is short."""
    chosen = shares.tree.differs
    running: list[Holding] = []
    admitted: list[tuple[str, Amounts]] = []
    for job in jobs:
        minimum = counted_minimum(job.held, job.minimum, is_due=job.is_due, differs=chosen)
        if minimum is None and chosen.minimum_from_pods:
            minimum = job.first
        if job.phase == "Inqueue":
            admitted.append((job.queue, minimum or {}))
        elif job.phase == "Running":
            running.append(Holding(job.name, job.queue, job.held, minimum, priority=job.priority, start=job.created))
    minima = minima_of(shares, running)
    for queue, amounts in admitted:
        minima.admit(queue, amounts)
    found: dict[str, Any] = {"enqueueable": {}, "lacking": {}}
    for job in jobs:
        if job.phase != "Pending" or job.queue not in shares.tree.queues:
            continue
        ask = Ask(
            job.queue,
            job.first if job.minimum is None else job.minimum,
            priority=job.priority,
            may_displace=True,
            is_declared=job.minimum is not None,
        )
        refusal = minima.refusal(ask)
        found["enqueueable"][job.name] = refusal is None
        if refusal is not None and refusal.dimension:
            found["lacking"][job.name] = [refusal.dimension, *refusal.others]
    return found


def _placements(line: Line, shares: Shares, usage: Usage, demand: Mapping[str, Amounts]) -> dict[str, bool]:
    """Whether each pod that waits may be placed."""
    found = {}
    for job in line["jobs"]:
        if job["queue"] not in shares.tree.queues:
            continue
        for task in job["tasks"]:
            if task["status"] == "Pending":
                request = _request(task, counts_pods=line["family"] == PROPORTION)
                is_refused = placement_refusal(shares, usage, Ask(job["queue"], request)) is not None
                found[task["name"]] = not is_refused and not (
                    line["family"] == PROPORTION and is_beyond_fair(shares, usage, demand, job["queue"], request)
                )
    return found


def _differ(line: Line, field: str, expected: Line, got: Line) -> tuple[tuple[str, str], ...]:
    """What of a field is not as expected, with the errors that its numbers may have."""
    if field == "share":
        is_fair = line["family"] == PROPORTION
        got = {name: Fraction(not is_fair) if share is None else share for name, share in got.items()}
        close = {name: _is_close(expected[name], share) for name, share in got.items() if name in expected}
        return differ(field, expected.keys(), got.keys()) + differ(
            field, [], [name for name in close if not close[name]]
        )
    if field == "order" and line["family"] == PROPORTION:  # by its share of 0 a queue that asks for nothing is first
        asking = {name for name, attrs in line["result"]["attrs"].items() if any(attrs["request"].values())}
        return differ(field, [name for name in expected if name in asking], [name for name in got if name in asking])
    if field == "deserved" and line["family"] == PROPORTION:
        far = [
            (name, dimension)
            for name, amounts in expected.items()
            for dimension, amount in amounts.items()
            if abs(got[name][dimension] - amount) > 1
        ]
        return differ(field, [], far)
    return differ(field, expected, got)


def _share(shares: Shares, usage: Usage, name: str) -> Fraction | None:
    found = share_of(shares, usage, name)
    return None if found is None else Fraction(found.numerator, found.denominator)


def _is_close(expected: float, share: Fraction) -> bool:
    return abs(float(share) - expected) <= SHARE_ERROR * max(1, expected)
