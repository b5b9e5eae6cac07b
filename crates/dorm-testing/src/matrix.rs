//! The lifecycle matrix: the guarantees for memory, files, processes, volumes and capacity in each
//! state and transition. Each has one sentence and one check, the same for every engine.
//!
//! A test binary that can make a [`Stage`] has one test per cell from
//! [`matrix_tests!`](crate::matrix_tests). The page `docs/reference/lifecycle-matrix.md` is written
//! from the same table. A cell without a check, or with two, does not compile.

mod destroy;
mod exec;
mod failure;
mod fork;
mod page;
mod resume;
mod running;
mod snapshot;
mod stage;
mod start;
mod suspend;
mod suspended;
mod volume;

pub use page::page;
pub use stage::{BUDGET_MIB, Future, Stage};

/// A state or a transition of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is being created.
    Creating,
    /// It runs.
    Running,
    /// A command runs in it.
    Exec,
    /// It is being suspended.
    Suspend,
    /// It is suspended.
    Suspended,
    /// It is being resumed.
    Resume,
    /// A snapshot is taken of it.
    Snapshot,
    /// It is being forked or cloned.
    Fork,
    /// It is being terminated.
    Destroy,
    /// Its run ends unexpectedly.
    Error,
}

impl State {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 10] = [
        Self::Creating,
        Self::Running,
        Self::Exec,
        Self::Suspend,
        Self::Suspended,
        Self::Resume,
        Self::Snapshot,
        Self::Fork,
        Self::Destroy,
        Self::Error,
    ];

    /// Its name on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Exec => "exec",
            Self::Suspend => "suspend",
            Self::Suspended => "suspended",
            Self::Resume => "resume",
            Self::Snapshot => "snapshot",
            Self::Fork => "fork",
            Self::Destroy => "destroy",
            Self::Error => "error",
        }
    }
}

/// The subject of a guarantee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aspect {
    /// The content of memory.
    Memory,
    /// Files of the root filesystem.
    Filesystem,
    /// Processes.
    Processes,
    /// Data that outlives sandboxes.
    Volumes,
    /// The resources of the host that it takes and releases.
    Capacity,
}

impl Aspect {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Filesystem, Self::Processes, Self::Volumes, Self::Capacity];

    /// Its name on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Filesystem => "filesystem",
            Self::Processes => "processes",
            Self::Volumes => "volumes",
            Self::Capacity => "capacity",
        }
    }
}

/// One cell of the matrix.
#[derive(Clone, Copy)]
pub struct Cell {
    /// The row.
    pub state: State,
    /// The column.
    pub aspect: Aspect,
    /// The name of its test.
    pub name: &'static str,
    /// The guarantee, as one sentence.
    pub says: &'static str,
    /// Checks the guarantee on a stage.
    pub check: for<'a> fn(&'a dyn Stage) -> Future<'a>,
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! cells {
    ($($state:ident $aspect:ident $module:ident::$name:ident $says:literal;)*) => {
        /// All cells.
        pub const CELLS: &[Cell] = &[$(Cell {
            state: State::$state,
            aspect: Aspect::$aspect,
            name: stringify!($name),
            says: $says,
            check: |stage| Box::pin($module::$name(stage)),
        },)*];

        /// Defines one test per cell: `matrix_tests!(expression)`, where the expression makes a
        /// stage and is awaited.
        #[macro_export]
        macro_rules! matrix_tests {
            ($stage:expr) => {
                $(
                    #[tokio::test]
                    async fn $name() {
                        $crate::matrix::run(stringify!($name), $stage).await.unwrap();
                    }
                )*
            };
        }
    };
}

cells! {
    Creating Memory start::memory_begins_empty_or_where_its_snapshot_was_taken
        "From an image memory begins empty; from a memory snapshot it continues where that was taken.";
    Creating Filesystem start::files_are_those_it_starts_from
        "Files are those of its image or snapshot, whatever others have written since.";
    Creating Processes start::nothing_runs_that_nobody_has_started
        "From an image or from files nothing runs before somebody starts it; from memory all that ran there.";
    Creating Volumes start::volumes_are_there_first_and_a_second_writer_is_refused
        "Its volumes are there before anything runs; one that takes a single writer and has it is refused by name, and nothing is left.";
    Creating Capacity start::one_that_is_being_created_counts_with_its_whole_limit
        "It counts with its whole limit from the moment it is asked for: of two at once with room for one, one is refused.";
    Running Memory running::memory_is_its_own
        "The memory of a process stays between calls, and no other sandbox has any of it.";
    Running Filesystem running::files_are_its_own
        "A written file is there for the next call, and in no other sandbox of the same image.";
    Running Processes running::processes_outlive_the_call_that_started_them
        "A process continues after the call that started it, is listed, and is listed as ended when it has ended.";
    Running Volumes running::volumes_come_and_go_and_are_seen_from_outside
        "Volumes come and go while it runs; what it writes on one is seen outside at once, and what is put there, inside.";
    Running Capacity running::one_that_runs_counts_with_its_limit
        "It counts with its limit, however little it uses: what does not fit beside it is refused, and says why.";
    Exec Memory exec::a_command_leaves_the_memory_of_others_alone
        "A command that ends, or fails, leaves the memory of every other process as it was.";
    Exec Filesystem exec::what_a_command_has_written_stays
        "The files that a command has written are there when it is over, also when it has failed.";
    Exec Processes exec::a_command_ends_with_its_own_code
        "A command ends with its own code and output; other processes continue.";
    Exec Volumes exec::a_command_writes_to_a_volume_as_it_is_attached
        "The files that a command has written on a volume are there for all, also when it has failed; where it is attached to be read, none can.";
    Exec Capacity exec::a_command_takes_no_room_of_its_own
        "A command needs no room of its own: it runs where nothing else could be created.";
    Suspend Memory suspend::memory_is_on_disk_when_it_is_answered
        "All memory is in its image when suspend is answered: it is the same after the run is gone from the host.";
    Suspend Filesystem suspend::files_are_in_its_image
        "Files are in its image, those that were written last, too.";
    Suspend Processes suspend::no_process_is_lost
        "No process is lost: each continues as the same process.";
    Suspend Volumes suspend::its_volume_is_free_when_it_is_answered
        "Its volumes are given back when suspend is answered: another may write, and finds what it wrote last.";
    Suspend Capacity suspend::its_memory_is_given_back
        "Its memory is given out again as soon as suspend is answered.";
    Suspended Memory suspended::memory_can_be_copied_without_waking_it
        "A memory snapshot of it can be taken; it does not wake, and what starts from that continues where it fell asleep.";
    Suspended Filesystem suspended::files_can_be_copied_without_waking_it
        "A filesystem snapshot of it can be taken; it does not wake, and what starts from that has its files.";
    Suspended Processes suspended::nothing_of_it_runs
        "Nothing of it runs: a command is refused, says that it is suspended, and does not wake it.";
    Suspended Volumes suspended::it_keeps_its_wish_and_nothing_else
        "It wishes its volumes still, so none is removed; others write to them, and they are exchanged without waking it.";
    Suspended Capacity suspended::it_counts_on_disk_alone
        "It takes none of the memory that is given out; its image counts on the disk and is on record.";
    Resume Memory resume::memory_continues
        "Memory continues where it was, parked or evicted.";
    Resume Filesystem resume::files_are_as_they_were
        "Files are as they were, and can be written.";
    Resume Processes resume::the_same_processes_continue
        "The same processes continue, in a run with a new generation when it was evicted.";
    Resume Volumes resume::it_needs_its_volume_again_and_finds_what_others_have_written
        "It takes its volumes anew, parked or evicted: refused by name while another one writes, and then finds what that wrote.";
    Resume Capacity resume::it_needs_room_again
        "It asks for room as a new one does: without it is refused, and sleeps on until there is some.";
    Snapshot Memory snapshot::memory_is_that_of_one_moment
        "A memory snapshot has the memory of one moment; its source continues in the same run.";
    Snapshot Filesystem snapshot::files_are_those_of_one_moment
        "A filesystem snapshot has the files of one moment, and nothing that is written later.";
    Snapshot Processes snapshot::the_source_runs_on
        "The processes of its source run on; what starts from files alone has none.";
    Snapshot Volumes snapshot::nothing_of_a_volume_is_in_it
        "Nothing of a volume is in a snapshot, and its source continues to write there.";
    Snapshot Capacity snapshot::it_takes_disk_alone
        "It is taken where no memory is left to give out, and its room on the disk is free again when it is deleted.";
    Fork Memory fork::children_have_its_memory_and_go_their_own_ways
        "Each child begins with its memory, and then goes its own way.";
    Fork Filesystem fork::children_have_its_files_and_go_their_own_ways
        "Each child begins with its files; what one writes no other one sees.";
    Fork Processes fork::children_have_its_processes
        "Each child has every process of it, and they run.";
    Fork Volumes fork::children_have_its_volumes_as_it_is_asked
        "Children have its volumes as it is asked: a second writer is refused by name, readers see what it writes, others nothing.";
    Fork Capacity fork::children_without_room_leave_nothing
        "Each child counts: if one has no room and the fork is rolled back, nothing is left and the requested room is free again.";
    Destroy Memory destroy::no_memory_is_left
        "Nothing of its memory is left on the host, neither run nor image.";
    Destroy Filesystem destroy::its_files_go_and_its_snapshots_stay
        "Its files go with it; snapshots of it stay and can be used.";
    Destroy Processes destroy::nothing_of_it_answers
        "Nothing of it runs or answers: whatever is asked of it is told that it is over, and ending it again is fine.";
    Destroy Volumes destroy::its_volume_stays_and_is_free_again
        "Its volumes stay with all that is on them, and are free for others as soon as it is answered.";
    Destroy Capacity destroy::its_room_is_free_again
        "Its room is free again as soon as it is answered, whether it ran or slept.";
    Error Memory failure::memory_is_that_of_its_last_image
        "When its run dies it sleeps with the memory of its last image, and can be woken.";
    Error Filesystem failure::files_are_those_of_its_last_image
        "When its run dies its files are those of its last image, and the events say that it was lost.";
    Error Processes failure::without_an_image_it_is_over_with_its_cause
        "Without an image nothing of it is left: it is over, and says why.";
    Error Volumes failure::its_volume_is_free_again_when_its_run_dies
        "When its run dies its volumes are free for others, with all that it has written, also since its last image.";
    Error Capacity failure::its_room_is_free_again_when_its_run_dies
        "A run that died counts no more: its room is given out again.";
}

/// The number of checks of a cell.
const fn checks(state: State, aspect: Aspect) -> usize {
    let (mut at, mut found) = (0, 0);
    while at < CELLS.len() {
        if CELLS[at].state as usize == state as usize && CELLS[at].aspect as usize == aspect as usize {
            found += 1;
        }
        at += 1;
    }
    found
}

const _: () = {
    let mut row = 0;
    while row < State::ALL.len() {
        let mut column = 0;
        while column < Aspect::ALL.len() {
            assert!(checks(State::ALL[row], Aspect::ALL[column]) == 1, "a cell of the matrix has no check, or two");
            column += 1;
        }
        row += 1;
    }
};

/// Runs one check on a stage of its own, and clears the stage away.
///
/// # Errors
/// With the sentence of the cell, if it does not hold.
pub async fn run(name: &str, stage: impl Stage) -> anyhow::Result<()> {
    let Some(cell) = CELLS.iter().find(|cell| cell.name == name) else { anyhow::bail!("there is no cell {name}") };
    let held = (cell.check)(&stage).await;
    // A stage that is only dropped prints what went wrong on it.
    held.map_err(|error| error.context(format!("does not hold: {}", cell.says)))?;
    stage.close().await;
    Ok(())
}
