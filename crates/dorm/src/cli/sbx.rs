//! `dorm sbx`: everything one does with sandboxes, one verb a file.

mod attach;
mod checkpoint;
mod checkpoints;
mod clone;
mod command;
pub(super) mod cp;
mod create;
mod describe;
mod diff;
mod evict;
mod exec;
mod fork;
mod hold;
mod keep;
mod ls;
mod port;
mod promote;
mod remote;
mod restart;
mod resume;
mod rewind;
mod run;
mod screen;
mod secrets;
mod shell;
mod suspend;
mod table;
mod terminate;
mod timeout;
mod top;
mod transfer;
mod tree;
mod usage;

pub(super) use command::our_input;

use clap::Subcommand;

use super::connection::Connection;
use super::exit;
use super::problem::Done;

/// What to do with sandboxes.
#[derive(Debug, clap::Args)]
pub(crate) struct SbxOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: SbxVerb,
}

#[derive(Debug, Subcommand)]
enum SbxVerb {
    /// Create a sandbox from an image or a snapshot
    Create(create::CreateOptions),
    /// List sandboxes
    Ls(ls::LsOptions),
    /// Show all there is to know about a sandbox
    Describe(describe::DescribeOptions),
    /// Run a command in a sandbox
    ///
    /// The exit code is the command's own: 128 and the signal's number when one ended it, 125 when dorm itself failed.
    Exec(exec::ExecOptions),
    /// Run a command in a new sandbox, and end that with it
    ///
    /// The exit code is the command's own: 128 and the signal's number when one ended it, 125 when dorm itself failed.
    Run(run::RunOptions),
    /// Open a terminal in a sandbox
    ///
    /// The exit code is the command's own: 128 and the signal's number when one ended it, 125 when dorm itself failed.
    Shell(shell::ShellOptions),
    /// Copy files into or out of a sandbox
    Cp(cp::CpOptions),
    /// Attach a volume to a sandbox: at once where it runs, else from its next run on
    Attach(attach::AttachOptions),
    /// Detach a volume from a sandbox, unless programs in it work on it
    Detach(attach::DetachOptions),
    /// Save a sandbox with its memory and processes, and let it sleep
    Suspend(suspend::SuspendOptions),
    /// Let a suspended sandbox go on where it was
    Resume(resume::ResumeOptions),
    /// Give back the memory that a suspended sandbox still holds
    Evict(evict::EvictOptions),
    /// End sandboxes for ever
    Terminate(terminate::TerminateOptions),
    /// Take a snapshot of a sandbox, which goes on; or list, describe, remove, export, import snapshots
    Checkpoint(checkpoint::CheckpointOptions),
    /// Make a second sandbox that goes on from where the first one is now
    Clone(clone::CloneOptions),
    /// Make several sandboxes that go on from where one is now
    ///
    /// The exit code is 1 when a child could not be made; the others stay, unless --all-or-none is given.
    Fork(fork::ForkOptions),
    /// Take a sandbox back to a snapshot, under its own id and name
    ///
    /// Files are those of the snapshot, and so are memory and processes if it is a memory snapshot; after a filesystem
    /// snapshot the sandbox boots. Name, variables and time limits stay. What it was until then becomes a snapshot that
    /// goes by itself after a week, unless --keep says otherwise. When it fails, the sandbox is where it was.
    Rewind(rewind::RewindOptions),
    /// Make a terminated sandbox anew, from its newest snapshot and with its settings
    Restart(restart::RestartOptions),
    /// Put a child in the place of the sandbox it was made from
    ///
    /// That one goes on with the child's memory, processes and files under its own id and name, and the child is
    /// terminated. What it was until then is kept as with rewind.
    Promote(promote::PromoteOptions),
    /// Show which sandboxes and snapshots come from which
    Tree(tree::TreeOptions),
    /// Show which files differ between two snapshots, or a sandbox and a snapshot
    Diff(diff::DiffOptions),
    /// Replace the time limits of a sandbox; they count from now
    Timeout(timeout::TimeoutOptions),
    /// Keep a sandbox awake for a while, whatever its time limits say
    Hold(hold::HoldOptions),
    /// Take back a hold
    Release(hold::ReleaseOptions),
    /// Change how many sleep images are kept of a sandbox, and what happens when none can be restored
    Keep(keep::KeepOptions),
    /// Show or change which snapshots are taken of a sandbox by themselves, and which of those are kept
    ///
    /// They are taken while it runs and has been used since the last one. Snapshots that somebody asked for stay.
    Checkpoints(checkpoints::CheckpointsOptions),
    /// Reach a port inside a sandbox
    Port(port::PortOptions),
    /// Show what all running sandboxes use on the host, beside their limits, as it changes
    Top(top::TopOptions),
    /// Show what a sandbox uses on the host
    Usage(usage::UsageOptions),
}

impl SbxOptions {
    /// The exit code of any problem, for verbs whose other codes belong to the command they run.
    pub(crate) fn on_problem(&self) -> Option<u8> {
        match self.verb {
            SbxVerb::Exec(_) | SbxVerb::Run(_) | SbxVerb::Shell(_) => Some(exit::NOT_THE_COMMAND),
            _ => None,
        }
    }
}

/// Does it.
pub(crate) async fn run(options: SbxOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        SbxVerb::Create(options) => create::run(&client, options, format).await,
        SbxVerb::Ls(options) => ls::run(&client, options, format).await,
        SbxVerb::Describe(options) => describe::run(&client, options, format).await,
        SbxVerb::Exec(options) => exec::run(&client, options, format).await,
        SbxVerb::Run(options) => run::run(&client, options, format).await,
        SbxVerb::Shell(options) => shell::run(&client, options).await,
        SbxVerb::Cp(options) => cp::run(&client, options).await,
        SbxVerb::Hold(options) => hold::hold(&client, options, format).await,
        SbxVerb::Release(options) => hold::release(&client, options, format).await,
        SbxVerb::Keep(options) => keep::run(&client, options, format).await,
        SbxVerb::Checkpoints(options) => checkpoints::run(&client, options, format).await,
        SbxVerb::Attach(options) => attach::attach(&client, options, format).await,
        SbxVerb::Detach(options) => attach::detach(&client, options, format).await,
        SbxVerb::Suspend(options) => suspend::run(&client, options, format).await,
        SbxVerb::Resume(options) => resume::run(&client, options, format).await,
        SbxVerb::Evict(options) => evict::run(&client, options, format).await,
        SbxVerb::Terminate(options) => terminate::run(&client, options, format).await,
        SbxVerb::Checkpoint(options) => checkpoint::run(&client, options, format).await,
        SbxVerb::Clone(options) => clone::run(&client, options, format).await,
        SbxVerb::Fork(options) => fork::run(&client, options, format).await,
        SbxVerb::Rewind(options) => rewind::run(&client, options, format).await,
        SbxVerb::Restart(options) => restart::run(&client, options, format).await,
        SbxVerb::Promote(options) => promote::run(&client, options, format).await,
        SbxVerb::Diff(options) => diff::run(&client, options, format).await,
        SbxVerb::Tree(options) => tree::run(&client, options, format).await,
        SbxVerb::Timeout(options) => timeout::run(&client, options, format).await,
        SbxVerb::Port(options) => port::run(&client, options, format).await,
        SbxVerb::Top(options) => top::run(&client, options, format).await,
        SbxVerb::Usage(options) => usage::run(&client, options, format).await,
    }
}
