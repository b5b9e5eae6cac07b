//! The conformance suite for stores: one named check for each behaviour, run against every kind of
//! store.
//!
//! A check opens its own place, so that none sees what another left. A check that fails stops the
//! test at the line that fails. The suite does not know how a store keeps its content; losses that
//! only one kind of store can have (a file, a connection) are tested beside that kind.
//!
//! ```ignore
//! conforms(async |place| open_store_at(directory.join(place)).await).await?;
//! ```
#![allow(clippy::expect_used, reason = "a suite of checks: what does not hold stops the test")]

mod api_keys;
mod builds;
mod changes;
mod concurrency;
mod environments;
mod events;
mod history;
mod listing;
mod names;
mod operations;
mod pools;
mod projects;
mod requests;
mod sample;
mod snapshots;
mod unreadable;
mod volumes;
mod webhooks;

use std::sync::Arc;

use thiserror::Error;

use crate::{RowKind, Store, StoreError};

/// A check during which the store failed unexpectedly.
#[derive(Debug, Error)]
#[error("the store failed in the check '{check}'")]
pub struct Nonconformance {
    /// The name of the check.
    pub check: &'static str,
    /// The error of the store.
    #[source]
    pub source: StoreError,
}

macro_rules! run {
    ($open:ident: $($module:ident { $($check:ident),* $(,)? })*) => {
        $($(
            $module::$check($open(stringify!($check)).await)
                .await
                .map_err(|source| Nonconformance { check: stringify!($check), source })?;
        )*)*
    };
}

macro_rules! run_reopening {
    ($open:ident: $($module:ident { $($check:ident),* $(,)? })*) => {
        $($(
            $module::$check(async || $open(stringify!($check)).await)
                .await
                .map_err(|source| Nonconformance { check: stringify!($check), source })?;
        )*)*
    };
}

/// Runs every check. `open` opens the store at the named place: empty if the name is new, else with
/// the content that was committed there.
///
/// # Errors
/// [`Nonconformance`] if the store fails unexpectedly.
///
/// # Panics
/// If the store does not behave as required.
pub async fn conforms(open: impl AsyncFn(&'static str) -> Arc<dyn Store>) -> Result<(), Nonconformance> {
    run!(open:
        changes {
            a_record_reads_back_as_it_was_written,
            a_revision_counts_the_changes_of_a_record,
            a_change_from_an_old_revision_is_refused,
            a_sandbox_that_should_be_there_and_is_not_is_missing,
            a_change_holds_a_sandbox_at_most_once,
            a_sandbox_that_breaks_an_invariant_is_not_recorded,
            a_refused_change_leaves_nothing_of_any_part,
            an_empty_change_changes_nothing,
            a_commit_that_is_not_waited_for_is_whole_or_nothing,
        }
        names {
            a_name_is_unique_among_the_living_of_a_project,
            a_name_is_kept_while_terminating_and_freed_by_terminated,
            a_name_can_be_taken_over_in_one_change,
            two_new_sandboxes_cannot_share_a_name_in_one_change,
            a_sandbox_keeps_its_own_name_through_its_life,
            only_the_living_are_found_by_name,
        }
        listing {
            sandboxes_are_listed_in_the_order_of_their_ids,
            sandboxes_are_listed_in_the_order_of_moments,
            each_filter_keeps_what_it_names,
            filters_hold_together,
            pages_cover_everything_once,
        }
        events {
            events_are_numbered_from_one_without_gaps,
            events_are_read_after_a_number_and_up_to_a_limit,
            events_are_filtered_by_sandbox_and_project,
            events_keep_their_callers,
        }
        operations {
            an_operation_is_open_until_it_has_ended,
            open_operations_come_in_the_order_they_began,
            an_operation_is_found_by_its_id,
            operations_of_a_sandbox_are_listed_newest_first,
            pages_of_operations_cover_everything_once,
        }
        snapshots {
            a_snapshot_is_rewritten_and_forgotten,
            forgetting_comes_after_writing_and_is_idempotent,
            snapshots_come_in_the_order_they_were_asked_for,
            a_saved_state_stays_marked_until_it_is_discarded,
            a_name_of_a_snapshot_is_unique_among_the_usable_of_a_project,
            a_name_of_a_snapshot_can_be_taken_over_in_one_change,
            two_new_snapshots_cannot_share_a_name_in_one_change,
        }
        webhooks {
            a_webhook_is_rewritten_and_removed,
        }
        requests {
            a_request_is_found_by_its_id,
            old_requests_are_removed_in_batches,
        }
        pools {
            a_pool_is_rewritten_and_removed,
        }
        builds {
            builds_and_templates_are_rewritten_and_removed,
        }
        environments {
            an_environment_is_rewritten_found_by_its_key_and_removed,
            a_key_of_an_environment_is_unique_in_its_project,
        }
        projects {
            a_project_is_rewritten_and_kept,
        }
        api_keys {
            an_api_key_is_written_and_removed,
        }
        history {
            only_sandboxes_that_were_terminated_long_ago_are_removed,
            a_sandbox_something_came_from_stays,
            only_operations_that_ended_long_ago_are_removed,
            a_batch_is_not_exceeded,
            the_oldest_events_are_removed_and_numbers_continue,
            the_event_of_a_snapshot_is_found,
            snapshots_are_found_by_what_they_are_about,
            pages_of_snapshots_cover_everything_once,
            sandboxes_are_found_by_the_snapshot_they_started_from,
        }
        volumes {
            a_volume_is_rewritten_and_removed,
            an_attachment_reads_back_as_it_was_written,
        }
        concurrency {
            eight_tasks_on_different_records_lose_nothing,
            eight_tasks_on_one_record_lose_nothing,
            eight_tasks_that_want_one_name_leave_one_holder,
            eight_snapshots_that_want_one_name_leave_one_holder,
            a_reader_that_follows_the_events_misses_none,
        }
    );
    run_reopening!(open:
        changes { what_was_committed_is_there_after_reopening }
        events { numbers_of_events_rise_across_reopening }
        history {
            the_numbers_of_removed_events_are_not_used_again,
            the_clocks_are_noted_in_place_of_the_note_before,
        }
        names { names_are_held_across_reopening }
        snapshots { names_of_snapshots_are_held_across_reopening }
    );
    Ok(())
}

/// Runs every check that needs a damaged row. `open` is as for [`conforms`]; `spoil` makes the row
/// of that kind and key unreadable in the store at the named place, and leaves its key as it is.
///
/// # Errors
/// [`Nonconformance`] if the store fails unexpectedly.
///
/// # Panics
/// If the store does not behave as required.
pub async fn keeps_unreadable_rows(
    open: impl AsyncFn(&'static str) -> Arc<dyn Store>,
    spoil: impl AsyncFn(&'static str, RowKind, &str),
) -> Result<(), Nonconformance> {
    macro_rules! run_spoiling {
        ($($check:ident),* $(,)?) => {
            $(
                let place = stringify!($check);
                unreadable::$check(open(place).await, async |kind, id: &str| spoil(place, kind, id).await)
                    .await
                    .map_err(|source| Nonconformance { check: place, source })?;
            )*
        };
    }
    run_spoiling!(
        the_other_rows_are_listed,
        a_row_of_each_kind_is_reported,
        a_look_up_names_the_row,
        its_name_stays_taken,
        the_name_of_a_snapshot_stays_taken,
        a_record_of_its_revision_mends_it,
    );
    Ok(())
}
