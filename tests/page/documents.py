"""Documents beside the picture of a synthetic cell, as a gateway replies: its hour, its queues, nodes for a job."""

import random

from tests.page.synthetic import Json, SyntheticCell


def hour(cell: SyntheticCell) -> Json:
    """The last hour of a cell, as the gateway replies: lines to what is now, and the events that are known."""
    draw = random.Random(cell.version)  # noqa: S311  # not a secret
    begin_ms = cell.at_ms - 3_600_000
    used = sum(owner != 0 for node in cell.nodes for owner in node[3])
    points: list[list[int]] = [[cell.at_ms, used, len(cell.queue)]]
    while points[-1][0] > begin_ms:
        at_ms, chips, waiting = points[-1]
        points.append(
            [
                max(begin_ms, at_ms - draw.randrange(20_000, 120_000)),
                max(0, min(used, chips + draw.choice((-32, -16, 8, 16)))),
                max(0, waiting + draw.choice((-1, 0, 0, 1))),
            ]
        )
    told = {"waiting", "placed", "succeeded", "failed"}
    events: list[Json] = [
        {
            "at_ms": event["at_ms"],
            "what": event["phase"],
            "namespace": event["namespace"],
            "name": event["name"],
            "place": "",
            "nodes": 0,
            "level": "",
            "sentence": event["sentence"],
        }
        for known in cell.events.values()
        for event in known
        if event["phase"] in told and event["at_ms"] >= begin_ms
    ]
    events += [
        {
            "at_ms": fault["since_ms"],
            "what": "fault",
            "namespace": "",
            "name": "",
            "place": fault["place"],
            "nodes": 1,
            "level": fault["level"],
            "sentence": fault["sentence"],
        }
        for fault in cell.faults
        if fault.get("since_ms", 0) >= begin_ms
    ]
    counts: dict[str, int] = {}
    for event in events:
        counts[event["what"]] = counts.get(event["what"], 0) + 1
    return {
        "begin_ms": begin_ms,
        "at_ms": cell.at_ms,
        "chips": sum(len(node[3]) for node in cell.nodes),
        "points": points[::-1],
        "counts": counts,
        "events": sorted(events, key=lambda event: -event["at_ms"]),
    }


def fits(cell: SyntheticCell, job: Json) -> list[Json]:
    """Nodes by whether they could take a pod of a job that waits, as ``explain`` replies."""
    chips = job["chips"] // job["pods"]
    found: dict[tuple[str, str], list[str]] = {}
    for place, node in zip(cell.layout["nodes"], cell.nodes, strict=True):
        if node[0] in {"evict", "no-new-work"}:
            reason = ("node_fault", "is faulty or takes no new work")
        elif node[1]:
            reason = ("cordoned", "is cordoned") if node[1] & 2 else ("not_ready", "is not ready")
        elif sum(owner == 0 for owner in node[3]) < chips:
            reason = ("shortage", f"has fewer than {chips} free chips")
        else:
            reason = ("fits", "")
        found.setdefault(reason, []).append(place[0])
    order = ("fits", "not_ready", "cordoned", "node_fault", "shortage")
    return [
        {"reason": reason, "words": words, "nodes": names}
        for (reason, words), names in sorted(found.items(), key=lambda one: order.index(one[0][0]))
    ]


def queues(cell: SyntheticCell) -> Json:
    """A tree of queues, as the operation ``queues`` replies: of the chips of the cell, with jobs in two of them."""
    whole = sum(len(node[3]) for node in cell.nodes)

    def queue(name: str, parent: str, held: float, entitled: int, limit: int | None, **values: object) -> Json:
        resources = {"huawei.com/Ascend910": (held, entitled, limit), "cpu": (4 * held, 4 * entitled, None)}
        amounts = [
            {"resource": resource, "held": one, "entitled": two, "limit": three}
            for resource, (one, two, three) in resources.items()
        ]
        usual = {"state": "Open", "is_valid": True, "is_declared": True, "reason": "", "namespaces": None, "waiting": 0}
        return {"name": name, "parent": parent, "amounts": amounts, "oldest_ms": 0} | usual | values

    broken = "parent is nowhere, expected the name of a queue"
    return {
        "ok": True,
        "are_applied": True,
        "queues": [
            queue(
                "archive", "nowhere", 0, 0, None, is_valid=False, reason=broken, state="Closed", amounts=[], waiting=1
            ),
            queue("default", "root", whole // 12, 0, whole, is_declared=False),
            queue(
                "llm", "research", whole // 2, whole // 3, whole * 3 // 4, waiting=2, oldest_ms=cell.at_ms - 9_000_000
            ),
            queue("research", "root", whole // 2 + 4, whole * 2 // 3, whole),
            queue("root", "", whole * 7 // 12 + 4, whole, None),
            queue(
                "vision",
                "research",
                4,
                whole // 3,
                None,
                state="Closed",
                namespaces=["team-a", "vision"],
                waiting=1,
                oldest_ms=cell.at_ms - 60_000,
            ),
        ],
    }
