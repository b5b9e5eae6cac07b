//! The dispatch table of requests.

use std::sync::Arc;
use std::time::Duration;

use dorm_agent_proto::{Answer, Failure, Request, SearchSpec};

use crate::agent::Agent;
use crate::call::Call;
use crate::link::Gone;
use crate::process::Pieces;
use crate::workers::Length;
use crate::{dial, exchange, files, identity, measure, users};

/// The longest time that the process of a service gets to end by itself.
const STOP_MAX_MS: u64 = 300_000;

/// Begins to execute a request. Never waits for anything but the link.
pub(crate) fn begin(agent: &Arc<Agent>, call: Call, request: Request) {
    // A host that is gone needs no answer.
    let _ = match request {
        Request::Output { process, from } => agent.processes.follow(&call, process, from, Pieces::Long),
        Request::TimedOutput { process, from } => agent.processes.follow(&call, process, from, Pieces::Timed),
        Request::Wait { process } => agent.processes.wait(&call, process),
        Request::Process { process } => agent.processes.describe(&call, process),
        Request::ServiceLog { name, from } => agent.processes.follow_log(&call, agent.services.log(&name), from),
        other => {
            let (workers, agent, of_worker) = (&agent.workers, Arc::clone(agent), call.clone());
            match workers.run(length(&other), move || serve(&agent, &of_worker, other)) {
                Ok(()) => Ok(()),
                Err(failure) => call.answer(&Err(failure)),
            }
        }
    };
}

/// Returns whether a request may wait for the host, or for a program in the sandbox.
fn length(request: &Request) -> Length {
    match request {
        Request::WriteStdin { .. }
        | Request::ReadFile { .. }
        | Request::WriteFile { .. }
        | Request::WriteInPlace { .. }
        | Request::List { .. }
        | Request::Describe { .. }
        | Request::FindProcesses { .. }
        | Request::Watch { .. }
        | Request::Processes
        | Request::Watchers
        | Request::WatcherEvents { .. }
        | Request::Search(_)
        | Request::Services
        | Request::ServiceEvents { .. }
        | Request::StopService { .. } => Length::Waits,
        Request::Dial { .. } => Length::Connects,
        _ => Length::Short,
    }
}

/// Executes a request. Runs on a worker's thread.
fn serve(agent: &Arc<Agent>, call: &Call, request: Request) {
    // A host that is gone needs no answer.
    let _ = match request {
        // The session itself answers the first two; the others begin without a worker.
        Request::Ping
        | Request::Quiesce
        | Request::Output { .. }
        | Request::TimedOutput { .. }
        | Request::Wait { .. }
        | Request::Process { .. }
        | Request::ServiceLog { .. } => Ok(()),
        Request::Resumed(identity) => identity::take(agent, call, &identity),
        Request::Start(spec) => answer(call, agent.start(spec).map(Answer::Started)),
        Request::Processes => agent.processes.list(call),
        Request::FindProcesses { key } => agent.processes.list_of(call, &key),
        Request::StartWithin { spec, limit_ms } => {
            answer(call, agent.start_within(spec, Duration::from_millis(limit_ms)).map(Answer::Started))
        }
        Request::StartWithInput { spec, input, limit_ms } => {
            let limit = limit_ms.map(Duration::from_millis);
            answer(call, agent.start_with_input(spec, input, limit).map(Answer::Started))
        }
        Request::WriteStdin { process } => agent.processes.write_stdin(call, process),
        Request::CloseStdin { process } => done(call, agent.processes.close_stdin(process)),
        Request::Signal { process, signal, target } => done(call, agent.processes.signal(process, signal, target)),
        Request::Resize { process, size } => done(call, agent.processes.resize(process, size)),
        Request::ReadFile { path, offset, length } => files::read(call, &path, offset, length),
        Request::WriteFile { path, options } => files::write(call, &path, &options),
        Request::List { path, depth } => files::list(call, &path, depth),
        Request::Describe { path, depth } => files::detail(call, &path, depth),
        Request::Stat { path } => answer(call, files::stat(&path).map(Answer::Stat)),
        Request::MakeDirectory { path, parents, owner } => {
            answer(call, files::make_directory(&path, parents, owner.as_ref()).map(Answer::Stat))
        }
        Request::Remove { path, scope } => done(call, files::remove(&path, scope)),
        Request::Rename { from, to } => answer(call, files::rename(&from, &to).map(Answer::Stat)),
        Request::Watch { path, scope } => files::watch(call, &path, scope),
        Request::Metrics => answer(call, measure::metrics().map(Answer::Metrics)),
        Request::OomVictim => answer(call, Ok(Answer::OomVictim(measure::oom_victim()))),
        Request::Dial { port } => dial::dial(agent, call, port),
        Request::Mount { mounts, busy } => done(call, agent.mounts.set(&mounts, busy)),
        Request::ExchangeDeleted => done(call, exchange::all(agent)),
        Request::Account { user } => answer(call, users::account(&user).map(Answer::Account)),
        Request::WriteInPlace { path, at, options } => files::write_in_place(call, &path, at, &options),
        Request::Move { from, to, owner } => answer(call, files::move_to(&from, &to, owner.as_ref()).map(Answer::Stat)),
        Request::MakeNewDirectory { path, owner } => {
            answer(call, files::make_new_directory(&path, owner.as_ref()).map(Answer::Stat))
        }
        Request::Attributes { path } => answer(call, files::attributes(&path).map(Answer::Attributes)),
        Request::SetAttributes { path, set, remove } => {
            answer(call, files::set_attributes(&path, &set, &remove).map(Answer::Attributes))
        }
        Request::CreateWatcher { path, scope } => {
            answer(call, agent.watchers.create(&path, scope).map(Answer::Watcher))
        }
        Request::Watchers => agent.watchers.list(call),
        Request::WatcherEvents { watcher, after, most } => agent.watchers.events(call, watcher, after, most),
        Request::RemoveWatcher { watcher } => done(call, agent.watchers.remove(watcher)),
        Request::Search(spec) => search(agent, call, &spec),
        Request::StartService(spec) => answer(call, agent.services.start(spec).map(Answer::Started)),
        Request::Services => agent.services.list(call),
        Request::Service { name } => agent.services.describe(call, &name),
        Request::StopService { name, grace_ms } => {
            done(call, agent.services.stop(&name, Duration::from_millis(grace_ms.min(STOP_MAX_MS))))
        }
        Request::RemoveService { name } => done(call, agent.services.remove(&name)),
        Request::ServiceEvents { name, after, most } => agent.services.events(call, &name, after, most),
        Request::KillTree { process } => answer(call, agent.processes.kill_tree(process).map(Answer::Killed)),
    };
}

fn search(agent: &Agent, call: &Call, spec: &SearchSpec) -> Result<(), Gone> {
    match agent.searches.take() {
        Ok(_place) => files::search(call, spec),
        Err(failure) => call.answer(&Err(failure)),
    }
}

fn answer(call: &Call, result: Result<Answer, Failure>) -> Result<(), Gone> {
    call.answer(&result)
}

fn done(call: &Call, result: Result<(), Failure>) -> Result<(), Gone> {
    call.answer(&result.map(|()| Answer::Done))
}
