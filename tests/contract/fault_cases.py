"""Cases of the contract on faults, with the tests of each, by file and function."""

from typing import Final

CASES: Final[dict[str, tuple[str, ...]]] = {
    "each kind of fault with grace, force, external-* and off": (
        "tests/unit/core/faults/test_diagnosis.py::test_each_row_whatever_the_way_of_deletion_is",
        "tests/unit/core/faults/test_escalation.py::test_each_row_of_4_x_grace_force_external_off",
    ),
    "node gone with grace: deleted at once": (
        "tests/unit/services/binder/test_recoveries_on_kube.py::test_node_gone_x_grace_is_grace_0",
        "tests/kube/test_recoveries.py::test_pods_of_nodes_that_are_not_ready_or_gone_leave_at_once_and_a_leaf_takes_all_its_pods_along",
    ),
    "201 pods": (
        "tests/unit/core/faults/test_escalation.py::test_201_pods",
        "tests/unit/services/binder/test_recoveries_on_kube.py::test_of_201_pods_at_most_50_are_being_deleted_at_a_time",
    ),
    "deadline of graceful deletion": (
        "tests/unit/core/faults/test_escalation.py::test_grace_deadline",
        "tests/unit/services/binder/test_recovery_work.py::test_with_grace_pods_that_are_late_are_deleted_at_once",
        "tests/kube/test_recoveries.py::test_a_pod_that_never_ends_leaves_at_the_deadline_and_a_second_fault_of_the_job_counts_at_once",
    ),
    "retry counter from 2 to 0, and the key that the operator reads": (
        "tests/unit/core/faults/test_escalation.py::test_retry_counter_2_to_0",
        "tests/unit/core/scheduling/test_recoveries.py::test_retry_counter_2_to_0",
        "tests/unit/formats/ascend/test_fault_objects.py::test_the_counter_has_the_key_that_the_operator_of_ascend_jobs_reads",
    ),
    "rank 0 with and without the worker label": (
        "tests/unit/core/faults/test_diagnosis.py::test_rank_0_with_and_without_worker_label",
        "tests/unit/core/faults/test_escalation.py::test_rank_0_with_and_without_worker_label",
    ),
    "each step: plain job": (
        "tests/unit/core/faults/test_escalation.py::test_escalation_at_each_step_for_plain",
        "tests/unit/core/scheduling/test_planned_recoveries.py::test_escalation_at_each_step_for_plain_in_turns",
    ),
    "each step: A3 SuperPoDs": (
        "tests/unit/core/faults/test_escalation.py::test_escalation_at_each_step_for_a3_superpods",
        "tests/unit/core/scheduling/test_planned_recoveries.py::test_escalation_at_each_step_for_superpods_in_turns",
    ),
    "each step: 950 with ra-block 1": (
        "tests/unit/core/faults/test_escalation.py::test_escalation_at_each_step_for_950_with_ra_block_1",
        "tests/unit/core/scheduling/test_planned_recoveries.py::test_escalation_at_each_step_for_950_with_ra_block_1_in_turns",
    ),
    "each step: 950 with ra-block 4": (
        "tests/unit/core/faults/test_escalation.py::test_escalation_at_each_step_for_950_with_ra_block_4",
        "tests/unit/core/scheduling/test_planned_recoveries.py::test_escalation_at_each_step_for_950_with_ra_block_4_in_turns",
    ),
    "each step: three levels": (
        "tests/unit/core/faults/test_escalation.py::test_escalation_at_each_step_for_three_levels",
        "tests/unit/core/scheduling/test_planned_recoveries.py::test_escalation_at_each_step_for_three_levels_in_turns",
    ),
    "limit pod": ("tests/unit/core/faults/test_escalation.py::test_limit_pod",),
    "process recovery on, pause, on": (
        "tests/unit/core/faults/test_escalation.py::test_process_recover_on_then_pause_then_on",
        "tests/unit/core/faults/test_escalation.py::test_process_recover_on_for_950_goes_to_the_rank_block_and_no_further",
        "tests/unit/core/scheduling/test_recoveries.py::test_process_recover_on_then_pause_then_on",
    ),
    "hot switch: backup pod beyond the size of the gang": (
        "tests/unit/core/scheduling/test_hot_switch.py::test_a_backup_pod_gets_a_place_beyond_the_size_of_the_gang",
    ),
    "hot switch: in the group of level 1": (
        "tests/unit/core/scheduling/test_planned_hot_switches.py::test_with_levels_it_stays_in_the_group_of_level_1",
    ),
    "hot switch: old pod deleted after both marks only": (
        "tests/unit/core/faults/test_diagnosis.py::test_hot_switch_old_pod_is_faulty_only_after_both_marks",
        "tests/unit/core/faults/test_escalation.py::test_hot_switch_old_pod_is_deleted_only_after_both_marks",
        "tests/unit/core/scheduling/test_hot_switch.py::test_the_old_pod_is_deleted_only_after_both_marks_and_its_backup_has_the_rank_then",
    ),
    "hot switch: late backup pod": (
        "tests/unit/core/faults/test_escalation.py::test_hot_switch_late_backup_and_failure_mark_on_rank_0",
        "tests/unit/core/scheduling/test_hot_switch.py::test_a_late_backup_pod_that_its_operator_deletes_leaves_nothing",
        "tests/kube/test_hot_switches.py::test_a_late_backup_pod_is_deleted_by_its_operator_and_nothing_of_it_remains",
    ),
    "hot switch: failure mark on rank 0": (
        "tests/unit/core/faults/test_diagnosis.py::test_hot_switch_failure_mark_on_rank_0_is_a_master_fault",
        "tests/unit/core/scheduling/test_hot_switch.py::test_failure_mark_on_rank_0_restarts_the_job_and_frees_the_place_with_it",
    ),
    "elastic: new pod pending for an hour, then placed": (
        "tests/unit/core/faults/test_escalation.py::test_elastic_pending_replacement_for_an_hour_then_placed",
        "tests/unit/core/scheduling/test_recoveries.py::test_elastic_pending_replacement_for_an_hour_then_placed",
    ),
    "label grace on one pod and force on another": (
        "tests/unit/core/requests/test_fault_rules.py::test_label_grace_or_force_of_two_pods_is_a_contradiction",
        "tests/unit/core/faults/test_escalation.py::test_label_grace_or_force",
        "tests/kube/test_bad_jobs.py::test_labels_for_faults_that_contradict_one_another",
    ),
    "second chip of the job during the recovery": (
        "tests/unit/core/faults/test_diagnosis.py::test_second_chip_of_the_same_job_is_seen",
        "tests/unit/core/faults/test_escalation.py::test_second_chip_of_the_same_job_during_recovery",
        "tests/unit/core/scheduling/test_recoveries.py::test_a_second_fault_while_it_recovers",
    ),
    "restart of the scheduler in each state": (
        "tests/unit/core/scheduling/test_recoveries.py::test_scheduler_restart_in_each_state",
        "tests/kube/test_recovery_crashes.py::test_killed_at_each_step_of_a_recovery_every_service_goes_on",
    ),
    "PodGroup patched by ClusterD at the same time": (
        "tests/unit/services/inventory/podgroups/test_collection.py::test_podgroup_patched_by_clusterd_at_the_same_time",
        "tests/kube/test_recoveries_of_operator.py::test_a_job_with_process_recovery_that_finds_no_place_pauses_and_goes_on_when_it_runs",
    ),
    "recent-reschedule-records over 950 KiB": (
        "tests/unit/formats/ascend/test_fault_objects.py::test_recent_reschedule_records_over_950_kib_fit_and_every_job_keeps_its_newest",
        "tests/property/test_restart_records.py::test_what_does_not_fit_loses_the_oldest_of_each_job",
    ),
}
"""Each kind of fault, step and label."""
BAD_INPUT: Final[dict[str, tuple[str, ...]]] = {
    "a fault of an unknown node": (
        "tests/unit/services/health/test_bad_reports.py::test_a_fault_of_an_unknown_node_is_refused_and_changes_nothing",
        "tests/unit/core/faults/test_storms.py::test_faults_of_unknown_nodes_and_chips_make_no_pod_faulty",
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
    ),
    "a fault of an unknown chip": (
        "tests/unit/services/health/test_bad_reports.py::test_a_fault_of_an_unknown_chip_leaves_the_others",
        "tests/unit/core/faults/test_storms.py::test_faults_of_unknown_nodes_and_chips_make_no_pod_faulty",
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
    ),
    "an unknown level": (
        "tests/unit/services/health/test_bad_reports.py::test_an_unknown_level_takes_new_work_away_and_is_named",
    ),
    "a recovery before any fault": (
        "tests/unit/services/health/test_bad_reports.py::test_a_recovery_before_any_fault_is_no_flapping_and_ends",
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
    ),
    "an old report": (
        "tests/unit/services/health/test_bad_reports.py::test_an_old_report_changes_nothing",
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
    ),
    "sources that contradict one another": (
        "tests/unit/services/health/test_bad_reports.py::test_of_sources_that_contradict_one_another_the_worse_counts",
    ),
    "a pod that never terminates": (
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
        "tests/kube/test_recoveries.py::test_a_pod_that_never_ends_leaves_at_the_deadline_and_a_second_fault_of_the_job_counts_at_once",
        "tests/unit/core/scheduling/test_held_places.py::test_a_pod_that_never_terminates_keeps_no_places_of_others_for_ever",
    ),
    "a controller that never recreates the pod": (
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
        "tests/unit/core/scheduling/test_recoveries.py::test_a_job_whose_new_pods_are_still_to_come_has_not_vanished",
    ),
    "a new pod with a wrong rank": (
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_a_new_pod_with_a_wrong_rank_starts_no_clock",
        "tests/kube/test_recovery_chain.py::test_a_pod_leaves_and_the_one_that_its_controller_makes_comes_in_its_place",
    ),
    "a cancellation during the recovery": (
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
        "tests/unit/core/scheduling/test_recoveries.py::test_cancel_during_recovery_leaves_nothing",
        "tests/unit/core/scheduling/test_hot_switch.py::test_a_cancellation_during_the_switch_frees_everything",
        "tests/kube/test_recoveries.py::test_a_job_that_is_deleted_while_it_recovers_leaves_nothing_behind",
        "tests/kube/test_recoveries.py::test_a_job_that_is_deleted_while_a_rank_has_no_place_leaves_nothing_behind",
        "tests/kube/test_held_places.py::test_healthy_places_of_a_job_that_restarts_are_held_and_it_returns_to_them",
    ),
    "a second fault of the same gang": (
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
        "tests/unit/core/scheduling/test_recoveries.py::test_a_second_fault_while_it_recovers",
    ),
    "a fault of a reserved node": (
        "tests/unit/core/scheduling/test_bad_input_of_recoveries.py::test_of_bad_input_nothing_remains",
        "tests/unit/core/scheduling/test_recoveries.py::test_a_fault_of_a_reserved_node",
    ),
}
"""Input that is wrong. The work is bounded, and no reservation and no timer remains."""
ALWAYS: Final[dict[str, tuple[str, ...]]] = {
    "plans of lost pods are those of the reference also through turns": (
        "tests/golden/test_live_turns.py::test_places_of_lost_pods_are_those_of_the_reference",
        "tests/golden/test_live_turns.py::test_jobs_in_racks_go_where_the_reference_puts_them",
        "tests/golden/test_live_turns.py::test_jobs_with_levels_go_where_the_reference_puts_them",
    ),
    "dispatcher, binder or NATS killed at each step": (
        "tests/kube/test_recovery_crashes.py::test_killed_at_each_step_of_a_recovery_every_service_goes_on",
        "tests/kube/test_recovery_execution.py::test_killed_at_any_step_of_a_recovery_the_binder_goes_on",
        "tests/kube/test_recovery_execution.py::test_killed_while_it_marks_a_pod_the_binder_marks_it",
        "tests/kube/test_hot_switches.py::test_a_hot_switch_goes_on_after_every_service_was_started_again",
        "tests/kube/test_recoveries.py::test_services_that_are_killed_while_jobs_recover_end_what_they_began",
    ),
    "sub-health with all services": (
        "tests/kube/test_sub_health.py::test_a_sub_healthy_chip_moves_the_pods_of_jobs_that_exit_and_of_no_others",
        "tests/kube/test_sub_health.py::test_a_sub_healthy_switch_or_relation_moves_pods_and_a_node_that_gets_worse_moves_those_that_ignored_it",
        "tests/kube/test_sub_health.py::test_agents_save_before_pods_leave_gracefully_and_are_told_when_the_job_is_back",
    ),
    "equal ledgers with 0, 1, 3 and 8 scorers": (
        "tests/property/test_recovery_shards.py::test_any_number_of_shards_writes_the_same_recoveries_to_the_byte",
        "tests/property/test_recovery_shards.py::test_a_long_history_with_places_and_restarts_is_the_same_with_any_number_of_shards",
    ),
    "recordings with faults replay": (
        "tests/replay/test_recordings.py::test_a_stored_recording_comes_out_as_it_was_recorded",
    ),
    "an older release stops at the first new record": (
        "tests/unit/services/test_newer_records.py::test_a_dispatcher_stops_in_its_next_turn_and_does_not_start",
        "tests/unit/services/test_newer_records.py::test_a_binder_stops",
    ),
}
"""What holds for all of them."""
