"""Stored statuses of jobs: all of them, or that of one job by its name."""

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from berth.cli.output import CommandError, known_jobs, near_jobs, print_progress
from berth.runtime.bus.port import Bus
from berth.schemas.envelope import DecodeError
from berth.schemas.status import JobStatus, stored_status
from berth.schemas.subjects import StreamName

Namespace: TypeAlias = Annotated[str, Parameter(name=["--namespace", "-n"])]
"""Option for the namespace of jobs."""


async def statuses(bus: Bus) -> list[JobStatus]:
    """Statuses of all jobs, by namespace and name; statuses that cannot be decoded are skipped."""
    found = []
    for stored in await bus.read(StreamName.STATUS):
        try:
            found.append(stored_status(stored.subject, stored.data))
        except DecodeError as error:
            print_progress(f"status {stored.subject} does not decode: {error.reason}")
    return sorted(found, key=lambda status: (status.namespace, status.name))


async def find_job(bus: Bus, job: str, namespace: str) -> JobStatus:
    """Status of a job, named ``name`` or ``namespace/name``.

    Raises:
        CommandError: No job has the name; the error lists similar names.
    """
    space, _, name = job.rpartition("/")
    space = space or namespace
    stored = await bus.last(StreamName.STATUS, bus.subjects.status(space, name))
    if stored is not None:
        try:
            return stored_status(stored.subject, stored.data)
        except DecodeError as error:
            raise CommandError(f"the status of {space}/{name} does not decode: {error.reason}") from error
    known = {f"{status.namespace}/{status.name}" for status in await statuses(bus)}
    near = near_jobs(f"{space}/{name}", known)
    hint = f"near names: {', '.join(near)}" if near else f"{known_jobs(len(known))}, see: berth jobs --all"
    raise CommandError(f"no job is named {space}/{name}; {hint}")
