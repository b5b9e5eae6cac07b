//! The lifecycle matrix: the guarantees for memory, files, processes, volumes and capacity in each
//! state and transition. Each has one text and one check, the same for every engine.
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
    /// The guarantee, in one or more sentences.
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
        "From an image, memory begins empty. From a memory snapshot, it continues where the snapshot was taken.";
    Creating Filesystem start::files_are_those_it_starts_from
        "A sandbox starts with the files of its image or snapshot, whatever other sandboxes have written since.";
    Creating Processes start::nothing_runs_that_nobody_has_started
        "After a boot, no process runs until a caller starts one. After a restore from memory, all saved processes \
         run.";
    Creating Volumes start::volumes_are_there_first_and_a_second_writer_is_refused
        "Volumes are mounted before any process runs. If a single-writer volume already has a writer, the create \
         fails, names the volume and leaves nothing behind.";
    Creating Capacity start::one_that_is_being_created_counts_with_its_whole_limit
        "The whole limit is reserved when the request arrives; of two concurrent requests with room for one, one is \
         refused.";
    Running Memory running::memory_is_its_own
        "The memory of a process persists between calls, and no other sandbox shares it.";
    Running Filesystem running::files_are_its_own
        "A written file is visible to the next call, and in no other sandbox of the same image.";
    Running Processes running::processes_outlive_the_call_that_started_them
        "A process outlives the call that started it. It is listed while it runs, and as ended afterwards.";
    Running Volumes running::volumes_come_and_go_and_are_seen_from_outside
        "Volumes can be attached and detached while the sandbox runs. Data written inside is visible outside at \
         once, and the other way round.";
    Running Capacity running::one_that_runs_counts_with_its_limit
        "A running sandbox counts with its whole limit, however little it uses. A request that does not fit beside \
         it is refused with the figures.";
    Exec Memory exec::a_command_leaves_the_memory_of_others_alone
        "A command, whether it succeeds or fails, does not change the memory of other processes.";
    Exec Filesystem exec::what_a_command_has_written_stays
        "The files that a command has written remain after it ends, even if it failed.";
    Exec Processes exec::a_command_ends_with_its_own_code
        "A command returns its own exit code and output; other processes continue.";
    Exec Volumes exec::a_command_writes_to_a_volume_as_it_is_attached
        "The files that a command has written on a volume are visible to all its users, even if the command failed. \
         On a volume attached read-only, no command can write.";
    Exec Capacity exec::a_command_takes_no_room_of_its_own
        "A command needs no capacity of its own: it runs even where no other sandbox can be created.";
    Suspend Memory suspend::memory_is_on_disk_when_it_is_answered
        "When suspend returns, all memory is in the sleep image: it is the same after the run has left the host.";
    Suspend Filesystem suspend::files_are_in_its_image
        "The sleep image has all files, including the latest writes.";
    Suspend Processes suspend::no_process_is_lost
        "No process is lost: each continues as the same process.";
    Suspend Volumes suspend::its_volume_is_free_when_it_is_answered
        "When suspend returns, the leases of its volumes are released. Another sandbox can write to them, and finds \
         the latest data.";
    Suspend Capacity suspend::its_memory_is_given_back
        "When suspend returns, its memory is available to other sandboxes.";
    Suspended Memory suspended::memory_can_be_copied_without_waking_it
        "A memory snapshot of a suspended sandbox does not wake it. A sandbox created from it continues where the \
         source was suspended.";
    Suspended Filesystem suspended::files_can_be_copied_without_waking_it
        "A filesystem snapshot of a suspended sandbox does not wake it. A sandbox created from it has the files of \
         the source.";
    Suspended Processes suspended::nothing_of_it_runs
        "No process runs. A command is refused because the sandbox is suspended, and does not wake it.";
    Suspended Volumes suspended::it_keeps_its_wish_and_nothing_else
        "A suspended sandbox keeps its attachments, so their volumes cannot be deleted. Other sandboxes can write \
         to the volumes, and attachments can change without a resume.";
    Suspended Capacity suspended::it_counts_on_disk_alone
        "A suspended sandbox uses no memory of the budget. Its sleep image occupies disk space and is on record.";
    Resume Memory resume::memory_continues
        "Memory continues where it was, whether the sandbox was parked or evicted.";
    Resume Filesystem resume::files_are_as_they_were
        "Files are as they were, and can be written.";
    Resume Processes resume::the_same_processes_continue
        "The same processes continue, in a new run if the sandbox was evicted.";
    Resume Volumes resume::it_needs_its_volume_again_and_finds_what_others_have_written
        "A resume acquires the leases of its volumes again, whether the sandbox was parked or evicted. While \
         another sandbox writes to one, the resume is refused and names the volume. A later resume finds what the \
         other has written.";
    Resume Capacity resume::it_needs_room_again
        "A resume needs capacity like a create. Without it, the resume is refused and the sandbox stays suspended.";
    Snapshot Memory snapshot::memory_is_that_of_one_moment
        "A memory snapshot has the memory of one moment; its source continues in the same run.";
    Snapshot Filesystem snapshot::files_are_those_of_one_moment
        "A filesystem snapshot has the files of one moment, and nothing that is written later.";
    Snapshot Processes snapshot::the_source_runs_on
        "The processes of the source continue. A sandbox created from files alone has none.";
    Snapshot Volumes snapshot::nothing_of_a_volume_is_in_it
        "A snapshot contains no data of volumes, and its source continues to write to them.";
    Snapshot Capacity snapshot::it_takes_disk_alone
        "A snapshot needs no memory of the budget, and deleting it frees its disk space.";
    Fork Memory fork::children_have_its_memory_and_go_their_own_ways
        "Each child begins with the memory of the source. From then on, each changes only its own.";
    Fork Filesystem fork::children_have_its_files_and_go_their_own_ways
        "Each child begins with the files of the source. No sandbox sees what another writes.";
    Fork Processes fork::children_have_its_processes
        "Each child has every process of the source, and they run.";
    Fork Volumes fork::children_have_its_volumes_as_it_is_asked
        "Children get the volumes as requested: a second writer is refused with the name of the volume, readers see \
         new writes, and children without volumes see nothing.";
    Fork Capacity fork::children_without_room_leave_nothing
        "Each child needs capacity. If one does not fit and the fork is rolled back, no child remains and the \
         requested capacity is free again.";
    Destroy Memory destroy::no_memory_is_left
        "No memory of the sandbox remains on the host, neither a run nor a sleep image.";
    Destroy Filesystem destroy::its_files_go_and_its_snapshots_stay
        "Its files are deleted. Its snapshots remain and can be used.";
    Destroy Processes destroy::nothing_of_it_answers
        "Every call fails with `gone`. Terminating it again succeeds.";
    Destroy Volumes destroy::its_volume_stays_and_is_free_again
        "Its volumes remain with all their data, and others can use them as soon as terminate returns.";
    Destroy Capacity destroy::its_room_is_free_again
        "Its capacity is free again as soon as terminate returns, whether it ran or was suspended.";
    Error Memory failure::memory_is_that_of_its_last_image
        "When its run dies, the sandbox is suspended with the memory of its last sleep image, and can be resumed.";
    Error Filesystem failure::files_are_those_of_its_last_image
        "When its run dies, its files are those of its last sleep image, and an event records the loss.";
    Error Processes failure::without_an_image_it_is_over_with_its_cause
        "Without a sleep image, the sandbox is terminated, and its record has the cause.";
    Error Volumes failure::its_volume_is_free_again_when_its_run_dies
        "When its run dies, the leases of its volumes are released. All written data remains, including data \
         written since its last sleep image.";
    Error Capacity failure::its_room_is_free_again_when_its_run_dies
        "When its run dies, its capacity is free again.";
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
/// With the guarantee of the cell, if it does not hold.
pub async fn run(name: &str, stage: impl Stage) -> anyhow::Result<()> {
    let Some(cell) = CELLS.iter().find(|cell| cell.name == name) else { anyhow::bail!("there is no cell {name}") };
    let held = (cell.check)(&stage).await;
    // A stage that is only dropped prints what went wrong on it.
    held.map_err(|error| error.context(format!("does not hold: {}", cell.says)))?;
    stage.close().await;
    Ok(())
}
