//! The list of checks, and the macro that makes a test of each.

mod ended;
mod files;
mod found;
mod inside;
mod limits;
mod ports;
mod restore;
mod save;
mod start;
mod stop;

use crate::Check;

/// The list and the macro come from one enumeration; the `$` is passed in for the inner macro.
macro_rules! checks {
    ($d:tt $($module:ident { $($name:ident),+ $(,)? })+) => {
        /// All checks.
        pub const CHECKS: &[Check] =
            &[$($(Check { name: stringify!($name), run: |scenario| Box::pin(async move { $module::$name(&scenario).await }) }),+),+];

        /// Defines one test per check, each with a subject that `$subject` makes: an
        /// `async fn() -> Result<Arc<dyn Subject>, String>`, whose error says why this host cannot
        /// have one.
        #[macro_export]
        macro_rules! conformance_tests {
            ($d subject:path) => {
                $($(#[test] fn $name() { $d crate::run_check(stringify!($name), $d subject) })+)+
            };
        }
    };
}

checks! {
    $
    start {
        a_started_run_has_an_agent_that_answers,
        starting_twice_is_refused_and_the_first_run_lives,
        two_runs_at_once_share_nothing,
        a_new_stream_to_the_agent_ends_the_one_before,
        preparing_an_image_changes_nothing_for_its_runs,
        expected_runs_start_as_any_other_and_the_rest_is_released,
        eight_runs_start_and_stop_at_once,
    }
    save {
        saving_keeps_the_source_paused,
        a_save_tells_the_length_of_each_of_its_files,
        a_paused_run_can_be_saved_again,
        a_run_is_paused_without_being_saved_and_continues_exactly,
        a_paused_run_is_saved_and_ended_while_the_next_one_of_its_sandbox_runs,
        a_failed_save_keeps_the_source,
        resuming_continues_exactly,
        resuming_after_parking_continues_exactly,
        a_ticking_process_continues_without_a_gap,
        parking_twice_is_idempotent,
        resuming_a_running_run_changes_nothing,
        a_parked_run_uses_no_cpu,
    }
    restore {
        a_restored_run_has_the_same_memory_files_and_processes,
        two_restores_of_one_image_diverge,
        restoring_only_reads_the_image,
        five_saves_in_a_chain_lose_nothing,
        an_open_deleted_file_survives,
        restoring_over_a_run_that_exists_is_refused,
        an_image_without_one_of_its_files_is_refused,
        an_image_with_a_cut_file_is_refused,
    }
    files {
        files_of_an_image_are_there_in_a_run_that_boots_on_them,
        files_saved_without_memory_are_those_saved_with_it,
        layers_lie_on_each_other,
        a_run_on_layers_is_saved_and_restored_like_any_other,
        files_are_not_read_out_of_what_is_no_image,
    }
    inside {
        searches_find_the_same_after_a_restore,
        files_and_processes_are_described_the_same_after_a_restore,
        a_service_starts_again_and_continues_after_a_restore,
    }
    stop {
        stopping_twice_is_idempotent_and_leaves_nothing,
        every_stream_of_a_run_ends_with_it,
        stopping_a_paused_run_leaves_nothing,
        stopping_a_parked_run_leaves_nothing,
        unknown_runs_are_named_as_such,
        a_start_dropped_anywhere_leaves_nothing_after_stop,
        a_start_dropped_anywhere_leaves_nothing_after_a_sweep,
        a_restore_dropped_anywhere_leaves_nothing_after_stop,
        a_save_dropped_anywhere_keeps_the_source,
    }
    ended {
        a_run_killed_from_outside_is_noticed,
        a_stopped_run_is_not_noticed,
        a_run_killed_without_a_daemon_is_not_found_alive,
    }
    found {
        a_reopened_engine_finds_runs_in_their_conditions,
        runs_found_by_a_reopened_engine_continue_exactly,
        a_sweep_removes_unknown_runs_only,
        closing_an_engine_leaves_its_runs_alone,
    }
    limits {
        a_full_disk_is_told_and_passes,
        too_much_memory_costs_one_process,
        a_run_short_of_memory_can_be_saved_and_is_held,
        usage_is_told_of_a_run,
        limits_change_in_any_condition_of_a_run,
    }
    ports {
        a_port_is_reached_from_outside,
        a_port_where_nobody_listens_refuses,
        connections_to_ports_end_with_the_run,
        a_run_without_network_is_reached_through_its_agent_only,
        egress_changes_in_any_condition_of_a_run_that_has_a_network,
    }
}
