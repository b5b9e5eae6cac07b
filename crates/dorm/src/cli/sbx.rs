//! `dorm sbx`: everything about sandboxes, one verb per file.

mod attach;
mod attr;
mod checkpoint;
mod checkpoints;
mod clone;
mod command;
pub(super) mod cp;
mod create;
mod describe;
mod diff;
mod egress;
mod evict;
mod exec;
mod find;
mod fork;
mod hold;
mod kill;
mod ls;
mod port;
mod port_options;
mod promote;
mod ps;
mod remote;
mod restart;
mod resume;
mod retention;
mod rewind;
mod run;
mod screen;
mod secrets;
mod service;
mod shell;
mod suspend;
mod table;
mod terminate;
mod timeout;
mod top;
mod transfer;
mod tree;
mod update;
mod usage;
mod watch;

pub(super) use command::our_input;
pub(super) use create::{IMAGE, StartOptions};
pub(super) use table::one as show;

use clap::Subcommand;

use super::connection::Connection;
use super::problem::Done;
use crate::exit;

/// Options of `dorm sbx`.
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
    /// Show all details of a sandbox
    Describe(describe::DescribeOptions),
    /// Run a command in a sandbox
    ///
    /// The exit code is the command's own: 128 plus the signal number if a signal ended it, 125 if
    /// dorm itself failed.
    Exec(exec::ExecOptions),
    /// Run a command in a new sandbox, which is terminated when the command ends
    ///
    /// The exit code is the command's own: 128 plus the signal number if a signal ended it, 125 if
    /// dorm itself failed.
    Run(run::RunOptions),
    /// Open a terminal in a sandbox
    ///
    /// The exit code is the command's own: 128 plus the signal number if a signal ended it, 125 if
    /// dorm itself failed.
    Shell(shell::ShellOptions),
    /// List the processes in a sandbox that were started by exec, run, shell and the API
    Ps(ps::PsOptions),
    /// Kill a process in a sandbox with all its descendants
    ///
    /// Descendants in other process groups and sessions are killed too, even if the process itself
    /// has ended.
    Kill(kill::KillOptions),
    /// Supervise commands in a sandbox: restart them when they end, and check their health
    ///
    /// The agent in the sandbox supervises services, even while the daemon is down, and across a
    /// suspend and a resume. A boot from files ends all services.
    Service(service::ServiceOptions),
    /// Find files in a sandbox
    ///
    /// Symbolic links are not followed. Standard error says whether results are missing.
    Find(find::FindOptions),
    /// Find lines in files of a sandbox
    ///
    /// Each line is printed as PATH:NUMBER:LINE. Symbolic links are not followed, and binary files
    /// are skipped. Standard error says whether results are missing.
    Grep(find::GrepOptions),
    /// Watch a directory in a sandbox
    Watch(watch::WatchOptions),
    /// Show or change the extended attributes of a file in a sandbox
    Attr(attr::AttrOptions),
    /// Copy files into or out of a sandbox
    Cp(cp::CpOptions),
    /// Attach a volume to a sandbox: at once if it runs, otherwise from its next run on
    Attach(attach::AttachOptions),
    /// Detach a volume from a sandbox, unless processes in it use the volume
    Detach(attach::DetachOptions),
    /// Change where a sandbox may connect to; connections that the new policy does not allow end at
    /// once
    Egress(egress::EgressOptions),
    /// Save a sandbox with its memory and processes, and suspend it
    Suspend(suspend::SuspendOptions),
    /// Resume a suspended sandbox where it was
    Resume(resume::ResumeOptions),
    /// Release the memory that a suspended sandbox still holds
    Evict(evict::EvictOptions),
    /// Terminate sandboxes permanently
    Terminate(terminate::TerminateOptions),
    /// Take a snapshot of a sandbox, which continues; or list, describe, remove, export, import
    /// snapshots
    Checkpoint(checkpoint::CheckpointOptions),
    /// Create a second sandbox that continues from the current state of the first one
    Clone(clone::CloneOptions),
    /// Create several sandboxes that continue from the current state of one
    ///
    /// The exit code is 1 if a child could not be created; the others are kept, unless
    /// --on-partial-failure is roll-back.
    Fork(fork::ForkOptions),
    /// Rewind a sandbox to a snapshot, under its own id and name
    ///
    /// The sandbox gets the snapshot's files, and with a memory snapshot also its memory and
    /// processes; from a filesystem snapshot it boots. Its name, variables and time limits do not
    /// change. Its previous state becomes a snapshot that is deleted automatically after a week,
    /// unless --keep says otherwise. If the rewind fails, the sandbox stays as it was.
    Rewind(rewind::RewindOptions),
    /// Create a sandbox from the newest snapshot of a terminated one, with the same settings
    Restart(restart::RestartOptions),
    /// Replace a sandbox with one of its children
    ///
    /// The sandbox continues with the child's memory, processes and files under its own id and
    /// name, and the child is terminated. The sandbox's previous state is kept as with rewind.
    Promote(promote::PromoteOptions),
    /// Show which sandboxes and snapshots were created from which
    Tree(tree::TreeOptions),
    /// Show which files differ between two snapshots, or between a sandbox and a snapshot
    Diff(diff::DiffOptions),
    /// Change the name, labels, wake policy or port access of a sandbox
    Update(update::UpdateOptions),
    /// Postpone the deadline of a sandbox; it is never brought forward
    Extend(update::ExtendOptions),
    /// Replace the time limits of a sandbox; they are counted from now
    Timeout(timeout::TimeoutOptions),
    /// Keep a sandbox awake for a time, regardless of its time limits except --max-run
    Hold(hold::HoldOptions),
    /// Remove a hold
    Release(hold::ReleaseOptions),
    /// Change how many sleep images of a sandbox are kept, and what happens if none can be
    /// restored; a setting that is not given stays
    Retention(retention::RetentionOptions),
    /// Show or change the automatic snapshots of a sandbox and their retention policy
    ///
    /// They are taken while the sandbox runs and has been used since the last one. The policy never
    /// removes snapshots that were taken on request.
    Checkpoints(checkpoints::CheckpointsOptions),
    /// Reach a port inside a sandbox
    Port(port::PortOptions),
    /// Show the resource usage of all running sandboxes, with their limits, and keep it up to date
    Top(top::TopOptions),
    /// Show the resource usage of a sandbox
    Usage(usage::UsageOptions),
}

impl SbxOptions {
    /// Returns the exit code of every problem, for verbs whose other exit codes are those of the
    /// command they run.
    pub(crate) fn on_problem(&self) -> Option<u8> {
        match self.verb {
            SbxVerb::Exec(_) | SbxVerb::Run(_) | SbxVerb::Shell(_) => Some(exit::NOT_THE_COMMAND),
            _ => None,
        }
    }
}

/// Runs the verb.
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
        SbxVerb::Ps(options) => ps::run(&client, options, format).await,
        SbxVerb::Kill(options) => kill::run(&client, options, format).await,
        SbxVerb::Service(options) => service::run(&client, options, format).await,
        SbxVerb::Find(options) => find::find(&client, options, format).await,
        SbxVerb::Grep(options) => find::grep(&client, options, format).await,
        SbxVerb::Watch(options) => watch::run(&client, options, format).await,
        SbxVerb::Attr(options) => attr::run(&client, options, format).await,
        SbxVerb::Cp(options) => cp::run(&client, options).await,
        SbxVerb::Hold(options) => hold::hold(&client, options, format).await,
        SbxVerb::Release(options) => hold::release(&client, options, format).await,
        SbxVerb::Retention(options) => retention::run(&client, options, format).await,
        SbxVerb::Checkpoints(options) => checkpoints::run(&client, options, format).await,
        SbxVerb::Attach(options) => attach::attach(&client, options, format).await,
        SbxVerb::Detach(options) => attach::detach(&client, options, format).await,
        SbxVerb::Egress(options) => egress::egress(&client, options, format).await,
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
        SbxVerb::Update(options) => update::update(&client, options, format).await,
        SbxVerb::Extend(options) => update::extend(&client, options, format).await,
        SbxVerb::Timeout(options) => timeout::run(&client, options, format).await,
        SbxVerb::Port(options) => port::run(&client, options, format).await,
        SbxVerb::Top(options) => top::run(&client, options, format).await,
        SbxVerb::Usage(options) => usage::run(&client, options, format).await,
    }
}
