"""Submit a job, follow it, print node and chips of each rank, cancel it, and wait for its end."""

import sys

from berth.client import JobFile, JobMetadata, JobSpec
from berth.client.sync import Client

URL, CELL, NAME = sys.argv[1:]
JOB = JobFile(
    metadata=JobMetadata(name=NAME, namespace="team-a"),
    spec=JobSpec(product="module910bx8", replicas=2, chips=8),
)

with Client(URL, cell=CELL) as berth:
    reply = berth.submit(JOB)
    print("submitted", reply.uid)
    for _, event in berth.follow("team-a", NAME):
        if event.uid != reply.uid:
            continue  # an earlier job had the name
        print(event.phase, event.sentence)
        for rank in event.ranks:
            print("rank", rank.rank, "on", rank.node, "chips", *rank.chips)
        if event.phase == "placed":
            berth.cancel(NAME, namespace="team-a", uid=reply.uid, reason="example")
        if event.final:
            break
