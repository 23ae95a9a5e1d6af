"""Submit a job over HTTP, wait for its place, print node and chips of each rank, cancel it, and wait for its end."""

import sys
import time
import uuid

from berth_gateway import AuthenticatedClient
from berth_gateway.api.jobs import cancel_job, get_job, submit_job
from berth_gateway.models import ErrorReply, JobFile, JobMetadata, JobSpec, JobState

url, token, name = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token)
metadata = JobMetadata(name=name, namespace="team-a", uid=str(uuid.uuid4()))
spec = JobSpec(product="module910bx8", replicas=2, chips=8)
job = JobFile(api_version="berth/v1", kind="Job", metadata=metadata, spec=spec)
stored = submit_job.sync(client=client, body=job)
if stored is None or isinstance(stored, ErrorReply):
    raise SystemExit(stored and stored.error)
print("submitted", stored.uid)

phase, places = "", []
while phase not in {"succeeded", "failed", "cancelled", "rejected"}:
    state = get_job.sync("team-a", name, client=client, uid=stored.uid)
    if isinstance(state, JobState) and state.phase != phase:
        phase = state.phase
        print(phase, state.sentence)
        if phase in {"placed", "bound", "running"}:
            places = [(one.rank, one.node, one.chips) for one in state.ranks]
            cancel_job.sync("team-a", name, client=client, uid=stored.uid)
    time.sleep(0.2)
for rank, node, chips in places:
    print("rank", rank, "on", node, "chips", *chips)
