"""Decisions of a record as lines, without its wire format: who gets which chips of which nodes, or why nobody does."""

from collections.abc import Iterable, Iterator, Sequence

from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Round, Verdict
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery


def lines_of(record: Round) -> Iterator[str]:
    """Lines of a record, in the order in which it is folded.

    Numbers of sequences, of the round and of bytes are left out: they are no decisions.
    """
    yield f"{record.at_ms} ms" + (f", shards missing: {_numbers(record.missing)}" if record.missing else "")
    for verdict in record.verdicts:
        yield f"  {_verdict(verdict)}"
    for moved in record.corrections:
        chips = (f"{rank}:{_numbers(picked)}" for rank, picked in zip(moved.ranks, moved.chips, strict=True))
        yield f"  correct {moved.uid}/{moved.attempt}: {' '.join(chips)}"
    for step in record.recoveries:
        yield f"  {_step(step)}"
    for eviction in record.evictions:
        yield f"  evict {eviction.uid}/{eviction.attempt}: {eviction.reason}"
    for held in record.held:
        yield f"  hold {held.uid}/{held.attempt}: ranks {_numbers(held.ranks)} until {held.until_ms}"
    for release in record.releases:
        ranks = f" ranks {_numbers(release.ranks)}" if release.ranks else ""
        again = " again" if release.again else ""
        yield f"  release {release.uid}/{release.attempt}:{ranks} {release.reason}{again}"
    for adoption in record.adoptions:
        yield f"  adopt {adoption.namespace}/{adoption.gang} {adoption.uid}: {places_of(adoption.placement)}"


def line_of_job(job: JobSeen) -> str:
    """What became of a request or a cancellation: one line."""
    refused = f" refused: {job.refusal.code}" if job.refusal is not None else ""
    rejected = f" rejected: {job.rejection.refusal.code}" if job.rejection is not None else ""
    return f"job {job.namespace}/{job.name} {job.uid}: {job.state}{refused}{rejected}"


def places_of(placement: Placement) -> str:
    """Node and chips of each rank, and the volumes of claims."""
    ranks = zip(placement.names(), placement.chips_by_rank(), strict=True)
    places = [f"{node}:{_numbers(chips)}" if chips else node for node, chips in ranks]
    claims = [f"{claim.claim}={claim.volume or 'new'}@{claim.rank}" for claim in placement.claims]
    return " ".join([*places, *claims])


def _verdict(verdict: Verdict) -> str:
    who = f"{verdict.namespace}/{verdict.name} {verdict.uid}/{verdict.attempt}"
    if verdict.placement is not None:
        return f"place {who}: {places_of(verdict.placement)}"
    code = verdict.refusal.code if verdict.refusal is not None else "nothing"
    return f"{'reject' if verdict.final else 'refuse'} {who}: {code}"


def _step(step: Recovery) -> str:
    places = f" at {places_of(step.placement)}" if step.placement is not None else ""
    until = f" until {step.until_ms}" if step.until_ms else ""
    return (
        f"recover {step.uid}/{step.attempt} step {step.step}: {step.kind} {step.scope} {step.how}"
        f" ranks {_numbers(step.ranks)} faulty {_numbers(step.faulty)}{until}{places}"
    )


def _numbers(numbers: Iterable[int] | Sequence[int]) -> str:
    return ",".join(map(str, numbers))
