"""Differences from the reference implementation, each with a name.

No other module reads the setting ``reference_parity``: whoever decides otherwise than the reference asks for the
difference by its name. The page ``reference/parity.md`` of the site is made from this module. What is random
or wrong for the cluster in the reference is no difference that can be taken back, and not here.
"""

from typing import Final

import msgspec

from berth.schemas.ledger import Settings


class Differences(msgspec.Struct, frozen=True):
    """Which documented decisions go Berth's way. The text of a field begins with the decision that it is part of."""

    large_superpods: bool = True
    """D-1: a SuperPoD may have more free nodes than ``super_pod_size``."""
    whole_blocks: bool = True
    """D-3: reserves are used until no block changes; blocks of a hard job are never split, and a plan has a node for
    every pod."""
    pieces_until_complete: bool = True
    """D-4: pieces are taken until no node is missing."""
    small_pieces: bool = True
    """D-5: no piece has more nodes than are missing."""
    large_pieces_first: bool = True
    """D-6: pieces come first from the SuperPoD with the most nodes left."""
    new_ids_of_pieces: bool = True
    """D-8: pieces of Atlas 950 have the ids behind those of the blocks, so that each rank has a node."""
    order_by_rank: bool = True
    """D-9: after a restart blocks have their pods in the order of their ranks, and a rank without a record returns to
    its block."""
    running_pods_stay: bool = True
    """D-10: no plan after a fault moves a pod that runs."""
    failed_nodes_last: bool = True
    """replacements: in a SuperPoD nodes of faulty pods of a job come after all others."""
    racks_at_once: bool = True
    """replacements: in racks places are chosen while leaving pods still have their own."""
    annotations_in_1_0: bool = True
    """annotations-in-1.0: under policy 1.0 pods say that their leaf is free and healthy."""
    padding_below_one_leaf: bool = True
    """fill-crosses-leaf: padding jobs stay below one leaf."""
    lacking_position: bool = True
    """slice-of-lost-pod: in policy 1.0 a new pod goes to a position that the job lacks, near its other pods."""
    own_leaf: bool = True
    """survivors-leaf: on a single layer a new pod goes below the leaf of the pods that run."""
    own_leaves_first: bool = True
    """deterministic-scores: in policy 2.0 new pods get nodes below the job's own exclusive leaves first, then below its
    shared ones."""
    busy_from_decision: bool = True
    """busy-from-decision: a job with chips counts on its leaves from its decision on."""
    merged_states: bool = True
    """order-free-merge: a leaf that any pod reports as unhealthy is shared."""
    one_health_key: bool = True
    """310p-health-key: unhealthy chips lower the score of a 310P node."""
    same_share_policy: bool = True
    """softshare-self-compare: the score of shared chips counts those of the pod's own policy."""
    job_shape: bool = True
    """strict_job_shape: on 910A a job has one pod of up to 8 chips, or pods of 8."""
    label_values: bool = True
    """strict_label_values: a label with a value that it cannot have is refused."""
    health_first: bool = True
    """health_first: with this setting a healthier node outranks a better affinity."""
    mixed_pods: bool = True
    """plain-pods: any job may mix pods with and without chips, and those without are placed near the others."""
    preferred_terms: bool = True
    """constraints: preferred terms decide between nodes with equal scores."""
    places_before_deletion: bool = True
    """escalation: with ``plan_before_delete`` healthy pods leave only when there are places."""
    clock_of_new_pods: bool = True
    """escalation: the clock of a step runs while a new pod waits, not from the deletion on."""
    settled_losses: bool = True
    """escalation: nodes of one domain that are lost shortly after one another count together."""
    limited_restarts: bool = True
    """storms: how many jobs restart at a time for one cause is limited."""
    held_places: bool = True
    """held-places: healthy places stay held for a job that starts anew."""
    closed_branches: bool = True
    """closed-branch: a queue is closed with any queue above it."""
    orphans_at_root: bool = True
    """orphans-at-root: a gang of a queue that does not exist is charged to the root."""
    guarantees_on_nodes: bool = True
    """guarantees-on-nodes: where any queue has a guarantee, all together get no more than the nodes have."""
    entitled_by_weight: bool = True
    """by-weight: queues of which none beside them declares ``deserved`` are entitled to a part by weight."""
    entitled_within_limits: bool = True
    """deserved-over-limit: a queue is not entitled to what it may not hold."""
    limited_by_parent: bool = True
    """guarantee-over-the-parents-limit: a guarantee raises no limit above that of the parent."""
    deserved_is_no_limit: bool = True
    """deserved-is-no-limit: a queue may hold more than its fair share."""
    floors_within_the_sum: bool = True
    """floors-within-the-sum: fair shares add up to what there is, guarantees included."""
    branch_priority: bool = True
    """priority-of-branch: priorities of queues count where their paths fork."""
    borrowers_by_weight: bool = True
    """borrowers-by-weight: queues that borrow are ordered by what they borrow over their weight."""
    minimum_from_pods: bool = True
    """minimum-from-pods: a gang that declares no minimum is admitted by the requests of its pods."""
    counts_what_stays: bool = True
    """counts-only-what-stays: admission counts what the gang could not displace."""


OWN: Final = Differences()
"""All of them: the decisions of Berth."""
REFERENCE: Final = Differences(**dict.fromkeys(Differences.__struct_fields__, False))
"""None of them: the decisions of the reference."""


def differs(settings: Settings) -> Differences:
    """Differences that are in force under the settings of an epoch: all or none, the same object each time."""
    return REFERENCE if settings.reference_parity else OWN
