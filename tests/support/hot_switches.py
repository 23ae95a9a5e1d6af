"""Hot switches of gangs that recover: what the controller, the turn and the binder do about backup pods."""

from berth.core.state.holdings.pod_phases import ENDED
from berth.schemas.ledger import Recovery
from tests.support.recovering_gangs import Job, Pod, RecoveringGangs, places_of


def back_up(world: RecoveringGangs, job: Job, rank: int) -> None:
    """The controller makes a backup pod beside a pod that lives."""
    pod = job.real.get(rank)
    if pod is None or pod.phase in ENDED or rank in job.backups:
        return
    job.made += 1
    job.backups[rank] = f"{job.uid}-hot-{job.made}"
    world.tell_backups(job)


def place_backup(world: RecoveringGangs, job: Job, seed: int) -> None:
    """A step that gives a backup pod its place, or another one while it is not bound, as the turn decides it."""
    holding = world.holding(job)
    if holding is None or holding.ending:
        return
    known = world.state.faults.backups(("default", job.name), job.uid)
    placed = {rank: move.backup_of(rank) for rank, move in holding.backups().items()}
    bound = {*job.hot, *(rank for rank, pod in job.real.items() if pod.uid == known.get(rank))}
    settled = {rank for rank, uid in placed.items() if known.get(rank) != uid or seed % 3 or rank in bound}
    taken = {*holding.gone, *holding.leaving(), *settled}
    ranks = [rank for rank, uid in known.items() if rank not in taken and holding.switched.get(rank) != uid]
    placement = world.free_places(job, 1, seed)
    if not ranks or placement is None:
        return
    rank = ranks[0]
    recovery = Recovery(
        "default", job.name, job.uid, job.attempt, holding.step + 1, "SubHealthFault", "a hot switch",
        "pod", "backup", [rank], [rank], 40, placement=placement, backups=[known[rank]],
    )  # fmt: skip
    world.round(recoveries=[recovery])
    world.owners[job.key][rank][1:] = places_of(placement)
    world.check()


def bind_backup(job: Job, rank: int) -> None:
    """The binder binds a backup pod, as far as it knows the ledger: only the one that the step names."""
    move = job.view.backups().get(rank) if job.view is not None and not job.view.ending else None
    if move is None or move.placement is None or job.backups.get(rank) != move.backup_of(rank):
        return
    pod = job.real.get(rank)
    if rank not in job.hot and (pod is None or pod.uid != move.backup_of(rank)):
        place = places_of(move.placement)[move.ranks.index(rank)]
        job.hot[rank] = Pod(place, move.step, uid=move.backup_of(rank))
