"""Alert rules about the dispatcher."""

from typing import Final

from berth.runtime.monitoring.alerts import HOUR_S, MINUTE_S, Alert, missing

_OF_PROGRAMS: Final = "undecodable|invalid|wrong-subject"
"""Kinds of dead letters that the program has to correct that sent the message."""

ALERTS: Final = (
    missing("dispatcher", "berth_dispatcher_is_leader", "critical", "no job is placed"),
    Alert(
        name="BerthNoLeader",
        expr="max by (namespace) (berth_dispatcher_is_leader) == 0",
        for_s=1 * MINUTE_S,
        severity="critical",
        means="Dispatchers run, but none of them leads: no job is placed.",
        do="Run berth status, and read the log of a dispatcher for the line that says why it does not lead.",
    ),
    Alert(
        name="BerthRefusesToLead",
        expr="max by (namespace) (berth_dispatcher_refuses_to_lead) > 0",
        for_s=1 * MINUTE_S,
        severity="critical",
        means="A dispatcher refuses to lead: records of the ledger are missing, or a restore is not complete.",
        do="The line `does not lead` of its log has the reason and the command. Run berth fsck before you change anything.",
    ),
    Alert(
        name="BerthSeveralLeaders",
        expr="sum by (namespace) (berth_dispatcher_is_leader) > 1",
        for_s=5 * MINUTE_S,
        severity="warning",
        means="{{ $value | humanize }} dispatchers hold themselves to be the leader; only one of them can append to the ledger.",
        do="Jobs are safe. Restart the dispatcher that is behind (berth status), and keep its log.",
    ),
    Alert(
        name="BerthLeaderChanges",
        expr="max by (namespace) (changes(berth_dispatcher_epoch[1h])) > 5",
        for_s=0,
        severity="warning",
        means="The leader has changed {{ $value | humanize }} times in an hour.",
        do="See whether dispatchers are short of cpu or memory, and whether NATS or its disk is slow.",
    ),
    Alert(
        name="BerthDeadLetters",
        expr=f'max by (namespace, reason) (berth_dispatcher_dead_letters{{reason!~"{_OF_PROGRAMS}"}}) > 0',
        for_s=5 * MINUTE_S,
        severity="warning",
        means="{{ $value | humanize }} messages could not be handled by Berth ({{ $labels.reason }}).",
        do="Run berth dead list; after the upgrade or the correction, berth dead replay.",
    ),
    Alert(
        name="BerthBadRequests",
        expr=f'max by (namespace, reason) (berth_dispatcher_dead_letters{{reason=~"{_OF_PROGRAMS}"}}) > 0',
        for_s=5 * MINUTE_S,
        severity="info",
        means="Programs have published {{ $value | humanize }} messages that are no valid requests ({{ $labels.reason }}); they"
        " got no error.",
        do="Run berth dead list, correct the program that sends them, then berth dead purge.",
    ),
    Alert(
        name="BerthAppendsSlow",
        expr="histogram_quantile(0.99, sum by (namespace, le) (rate(berth_dispatcher_append_seconds_bucket[10m]))) > 0.5",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="One of 100 appends to the ledger takes longer than {{ $value | humanizeDuration }}: NATS or its disk is slow.",
        do="Look at the disks and the network of the NATS servers.",
    ),
    Alert(
        name="BerthRoundsSlow",
        expr="histogram_quantile(0.99, sum by (namespace, le) (rate(berth_dispatcher_round_seconds_bucket[10m]))) > 5",
        for_s=15 * MINUTE_S,
        severity="warning",
        means="One of 100 rounds takes longer than {{ $value | humanizeDuration }}: jobs are placed late.",
        do="See BerthAppendsSlow, BerthOffersMissing and BerthScorerLate; otherwise give dispatcher and scorers more cpu.",
    ),
    Alert(
        name="BerthOffersMissing",
        expr="sum by (namespace) (increase(berth_dispatcher_missing_offers_total[10m])) > 20",
        for_s=5 * MINUTE_S,
        severity="warning",
        means="Scorers did not answer {{ $value | humanize }} times in 10 minutes: their nodes get no new work.",
        do="Look at the scorers (berth status); each shard needs one.",
    ),
    Alert(
        name="BerthScorersMissing",
        expr="max by (namespace) (berth_dispatcher_shards) > (count by (namespace) (berth_scorer_nodes)"
        " or 0 * max by (namespace) (berth_dispatcher_shards))",
        for_s=5 * MINUTE_S,
        severity="critical",
        means="There are fewer scorers than the {{ $value | humanize }} shards of the dispatcher: some nodes get no new work.",
        do="Start the scorer of the missing shard, or correct BERTH_SHARDS and the replicas of scorer.",
    ),
    Alert(
        name="BerthJobsWaitLong",
        expr=f"max by (namespace) (berth_dispatcher_oldest_waiting_seconds) > {24 * HOUR_S}",
        for_s=10 * MINUTE_S,
        severity="info",
        means="A job has waited for {{ $value | humanizeDuration }} and is still refused.",
        do="Run berth jobs and berth explain for the first one: it may be larger than the cluster, or need a reservation.",
    ),
    Alert(
        name="BerthDecisionErrors",
        expr="sum by (namespace) (increase(berth_dispatcher_set_aside_total[1h])) > 0",
        for_s=0,
        severity="warning",
        means="Berth failed to decide on some jobs and set them aside; the others go on.",
        do="The log of the dispatcher has the error. Report it with a recording (berth record).",
    ),
    Alert(
        name="BerthRestartsHeld",
        expr='max by (namespace) (berth_dispatcher_held_jobs{waits_for="approval"}) > 0',
        for_s=5 * MINUTE_S,
        severity="warning",
        means="{{ $value | humanize }} jobs with faults do not restart: too many would at once, on the word of a single source.",
        do="Run berth faults. If the faults are real, berth faults approve.",
    ),
    Alert(
        name="BerthSnapshotsFail",
        expr='sum by (namespace) (increase(berth_dispatcher_snapshots_total{result="failed"}[1h])) > 2',
        for_s=0,
        severity="warning",
        means="Snapshots could not be written {{ $value | humanize }} times in an hour: a restart reads more history.",
        do="The log of the leader has the reason (snapshot not written); see whether NATS has room.",
    ),
    Alert(
        name="BerthSnapshotOld",
        expr="(berth_dispatcher_ledger_sequence - berth_dispatcher_snapshot_sequence) > 20000"
        " and berth_dispatcher_is_leader == 1",
        for_s=15 * MINUTE_S,
        severity="warning",
        means="The newest snapshot is {{ $value | humanize }} records old: the ledger grows, and a restart takes long.",
        do="The log of the leader says why none is written; see whether NATS has room.",
    ),
)
