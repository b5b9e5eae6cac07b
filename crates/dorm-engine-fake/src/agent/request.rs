//! Handles each request to the agent.

use std::sync::Arc;

use dorm_agent_proto::frame::Kind;
use dorm_agent_proto::{
    Answer, Event, Failure, GuestPath, Offsets, OutputKind, Parents, ProcessKey, ProcessStatus, Request, Scope,
};
use tokio::sync::mpsc;

use super::outgoing::{self, Outgoing};
use super::streams::{self, Follower, Times};
use super::{Incoming, Session};
use crate::guest::{Guest, Stamp};
use crate::ports;

impl Session {
    pub(super) async fn request(&mut self, id: u32, request: Request) {
        match request {
            Request::Quiesce => {
                let frames = outgoing::encoded(Kind::Answer, id, &Ok::<_, Failure>(Answer::Done));
                self.channels.remove(&id);
                let spoken = self.spoken.get();
                self.send(Outgoing::ThenQuiet(frames, spoken)).await;
            }
            Request::WriteStdin { process } => {
                let open = self.machine.peek(|guest| match guest.process(process) {
                    Ok(found) if found.takes_input() => Ok(()),
                    Ok(_) => Err(Failure::InputClosed { process }),
                    Err(failure) => Err(failure),
                });
                match open.await {
                    Ok(()) => self.takes(id, Incoming::Input(process)),
                    Err(failure) => self.refuse(id, failure).await,
                }
            }
            Request::WriteFile { path, options } => {
                self.takes(id, Incoming::File { path, at: None, options, bytes: Vec::new() });
            }
            Request::WriteInPlace { path, at, options } => {
                self.takes(id, Incoming::File { path, at: Some(at), options, bytes: Vec::new() });
            }
            Request::Output { process, from } => self.output(id, process, from, Times::Untold).await,
            Request::TimedOutput { process, from } => self.output(id, process, from, Times::Told).await,
            Request::Process { process } => {
                let status = self.machine.peek(|guest| guest.process(process).map(|process| process.status()));
                match status.await {
                    Ok(status) => self.events(id, status.into_iter().map(Event::Process).collect()).await,
                    Err(failure) => self.refuse(id, failure).await,
                }
            }
            Request::Wait { process } => match self.machine.peek(|guest| guest.process(process).map(drop)).await {
                Ok(()) => self.follow(id, |machine, sender| streams::wait(machine, sender, id, process)),
                Err(failure) => self.refuse(id, failure).await,
            },
            Request::ReadFile { path, offset, length } => self.read_file(id, path, offset, length).await,
            listed @ (Request::Processes
            | Request::FindProcesses { .. }
            | Request::Describe { .. }
            | Request::List { .. }
            | Request::Watchers
            | Request::WatcherEvents { .. }) => self.list(id, listed).await,
            inside @ (Request::Search(_)
            | Request::Services
            | Request::Service { .. }
            | Request::ServiceEvents { .. }
            | Request::ServiceLog { .. }) => self.services_and_searches(id, inside).await,
            Request::Watch { path, scope } => self.watch(id, path, scope).await,
            Request::Dial { port } => self.dial(id, port).await,
            simple => match self.machine.act(|guest| at_once(guest, simple)).await {
                Ok(answer) => self.answer(id, answer).await,
                Err(failure) => self.refuse(id, failure).await,
            },
        }
    }

    async fn list(&mut self, id: u32, request: Request) {
        match request {
            Request::Processes => {
                let list = self.machine.peek(|guest| guest.list_processes()).await;
                self.events(id, list.into_iter().map(Event::Process).collect()).await;
            }
            Request::FindProcesses { key } => {
                let has_key = |status: &ProcessStatus| match &key {
                    ProcessKey::Pid(pid) => status.pid == *pid,
                    ProcessKey::Label(label) => status.label.as_ref() == Some(label),
                };
                let list = self.machine.peek(|guest| guest.list_processes()).await;
                self.events(id, list.into_iter().filter(has_key).map(Event::Process).collect()).await;
            }
            Request::Describe { path, depth } => {
                match self.machine.peek(|guest| guest.files.detail(&path, depth)).await {
                    Ok(entries) => self.events(id, entries.into_iter().map(Event::Detailed).collect()).await,
                    Err(failure) => self.refuse(id, failure).await,
                }
            }
            Request::List { path, depth } => match self.machine.peek(|guest| guest.files.list(&path, depth)).await {
                Ok(entries) => self.events(id, entries.into_iter().map(Event::Entry).collect()).await,
                Err(failure) => self.refuse(id, failure).await,
            },
            Request::Watchers => {
                let list = self.machine.peek(|guest| guest.files.watchers()).await;
                self.events(id, list.into_iter().map(Event::Watcher).collect()).await;
            }
            Request::WatcherEvents { watcher, after, most } => {
                match self.machine.act(|guest| guest.files.watcher_events(watcher, after, most)).await {
                    Ok(changes) => self.events(id, changes.into_iter().map(Event::Numbered).collect()).await,
                    Err(failure) => self.refuse(id, failure).await,
                }
            }
            _ => {}
        }
    }

    async fn services_and_searches(&mut self, id: u32, request: Request) {
        match request {
            Request::Search(spec) => match self.machine.peek(|guest| guest.files.search(&spec)).await {
                Ok(events) => self.events(id, events).await,
                Err(failure) => self.refuse(id, failure).await,
            },
            Request::Services => {
                let list = self.machine.peek(|guest| guest.list_services()).await;
                self.events(id, list.into_iter().map(Event::Service).collect()).await;
            }
            Request::Service { name } => match self.machine.peek(|guest| guest.service(&name)).await {
                Ok(status) => self.events(id, vec![Event::Service(status)]).await,
                Err(failure) => self.refuse(id, failure).await,
            },
            Request::ServiceEvents { name, after, most } => {
                match self.machine.peek(|guest| guest.service_events(&name, after, most)).await {
                    Ok(events) => self.events(id, events.into_iter().map(Event::ServiceEvent).collect()).await,
                    Err(failure) => self.refuse(id, failure).await,
                }
            }
            Request::ServiceLog { name, from } => match self.machine.peek(|guest| guest.service_log(&name)).await {
                Ok(log) => self.output(id, log, from, Times::Told).await,
                Err(failure) => self.refuse(id, failure).await,
            },
            _ => {}
        }
    }

    async fn read_file(&mut self, id: u32, path: GuestPath, offset: u64, length: Option<u64>) {
        let read = self.machine.peek(|guest| {
            let bytes = guest.files.read(&path)?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let length = length.map_or(usize::MAX, |length| usize::try_from(length).unwrap_or(usize::MAX));
            let to = from.saturating_add(length).min(bytes.len());
            Ok((guest.files.stat(&path)?, bytes[from..to].to_vec()))
        });
        match read.await {
            Ok((stat, bytes)) => {
                self.say(id, &Ok(Answer::Stat(stat))).await;
                self.follow(id, |_, sender| streams::file(sender, bytes));
            }
            Err(failure) => self.refuse(id, failure).await,
        }
    }

    async fn output(&mut self, id: u32, process: u64, from: Offsets, times: Times) {
        let reader = u64::from(id);
        let begun = self.machine.act(|guest| {
            let found = guest.process(process)?;
            let clamp = |kind, offset: u64| offset.min(found.ring(kind).end());
            let at = Offsets {
                stdout: clamp(OutputKind::Stdout, from.stdout),
                stderr: clamp(OutputKind::Stderr, from.stderr),
            };
            found.read = true;
            found.readers.insert(reader, at);
            Ok(at)
        });
        match begun.await {
            Ok(at) => {
                self.say(id, &Ok(Answer::Follows)).await;
                let follower = Follower { machine: Arc::clone(&self.machine), process, reader };
                self.follow(id, |_, sender| streams::output(follower, sender, at, times));
            }
            Err(failure) => self.refuse(id, failure).await,
        }
    }

    async fn watch(&mut self, id: u32, path: GuestPath, scope: Scope) {
        let begun = self.machine.peek(|guest| {
            guest.files.list(&path, 1)?;
            Ok(guest.files.changes_since(0).0)
        });
        match begun.await {
            Ok(seen) => {
                self.say(id, &Ok(Answer::Follows)).await;
                self.follow(id, |machine, sender| streams::watch(machine, sender, path, scope, seen));
            }
            Err(failure) => self.refuse(id, failure).await,
        }
    }

    async fn dial(&mut self, id: u32, port: u16) {
        match ports::open(&self.machine, port).await {
            Some(stream) => {
                self.say(id, &Ok(Answer::Follows)).await;
                let (to_port, data) = mpsc::unbounded_channel();
                self.takes(id, Incoming::Port(to_port));
                self.follow(id, |machine, sender| streams::port(machine, sender, stream, data));
            }
            None => self.refuse(id, Failure::Refused { port }).await,
        }
    }

    /// Sends an answer that a stream follows, and the stream.
    async fn events(&mut self, id: u32, events: Vec<Event>) {
        self.say(id, &Ok(Answer::Follows)).await;
        self.follow(id, |_, sender| streams::events(sender, events));
    }

    fn takes(&mut self, id: u32, incoming: Incoming) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.incoming = incoming;
        }
    }

    fn follow<F>(&mut self, id: u32, begin: impl FnOnce(Arc<crate::machine::Machine>, outgoing::Sender) -> F)
    where
        F: Future<Output = Result<(), outgoing::Gone>> + Send + 'static,
    {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let work = begin(Arc::clone(&self.machine), channel.sender.clone());
        // If the host is gone, it does not need the rest of the stream.
        channel.task = Some(self.tasks.spawn(async move { drop(work.await) }));
    }
}

/// Handles a request that is answered at once.
fn at_once(guest: &mut Guest, request: Request) -> Result<Answer, Failure> {
    match request {
        Request::Ping => Ok(Answer::Done),
        Request::Resumed(identity) => Ok(Answer::Resumed(guest.resumed(identity))),
        Request::Start(spec) => guest.start(spec).map(Answer::Started),
        Request::StartWithin { spec, limit_ms } => guest.start_within(spec, limit_ms).map(Answer::Started),
        Request::StartWithInput { spec, input, limit_ms } => {
            guest.start_with_input(spec, &input, limit_ms).map(Answer::Started)
        }
        Request::CloseStdin { process } => guest.close_stdin(process).map(|()| Answer::Done),
        Request::Signal { process, signal, target: _ } => guest.signal(process, signal).map(|()| Answer::Done),
        Request::Resize { process, size } => guest.resize(process, size).map(|()| Answer::Done),
        Request::Stat { path } => guest.files.stat(&path).map(Answer::Stat),
        Request::MakeDirectory { path, parents, owner } => {
            let stamp = guest.stamp_of(owner.as_ref())?;
            guest.files.make_directory(&path, parents, stamp).map(Answer::Stat)
        }
        Request::Remove { path, scope } => guest.files.remove(&path, scope).map(|()| Answer::Done),
        Request::MakeNewDirectory { path, owner } => {
            let stamp = guest.stamp_of(owner.as_ref())?;
            guest.files.make_new_directory(&path, stamp).map(Answer::Stat)
        }
        Request::Rename { from, to } => {
            guest.files.rename(&from, &to, Parents::Require, Stamp::default()).map(Answer::Stat)
        }
        Request::Move { from, to, owner } => {
            let stamp = guest.stamp_of(owner.as_ref())?;
            guest.files.rename(&from, &to, Parents::Create, stamp).map(Answer::Stat)
        }
        Request::Attributes { path } => guest.files.attributes(&path).map(Answer::Attributes),
        Request::SetAttributes { path, set, remove } => {
            guest.files.set_attributes(&path, set, &remove).map(Answer::Attributes)
        }
        Request::CreateWatcher { path, scope } => guest.files.create_watcher(&path, scope).map(Answer::Watcher),
        Request::RemoveWatcher { watcher } => guest.files.remove_watcher(watcher).map(|()| Answer::Done),
        Request::StartService(spec) => guest.start_service(spec).map(Answer::Started),
        Request::StopService { name, grace_ms: _ } => guest.stop_service(&name).map(|()| Answer::Done),
        Request::RemoveService { name } => guest.remove_service(&name).map(|()| Answer::Done),
        Request::KillTree { process } => guest.kill_tree(process).map(Answer::Killed),
        Request::Metrics => Ok(Answer::Metrics(guest.metrics())),
        Request::OomVictim => Ok(Answer::OomVictim(guest.oom_victim())),
        Request::Mount { mounts, busy: _ } => guest.mount(mounts).map(|()| Answer::Done),
        // This guest opens a file of a volume only during a call.
        Request::ExchangeDeleted => Ok(Answer::Done),
        Request::Account { user } => guest.account(&user).map(Answer::Account),
        Request::Quiesce
        | Request::Processes
        | Request::Process { .. }
        | Request::Output { .. }
        | Request::TimedOutput { .. }
        | Request::WriteStdin { .. }
        | Request::Wait { .. }
        | Request::ReadFile { .. }
        | Request::WriteFile { .. }
        | Request::WriteInPlace { .. }
        | Request::List { .. }
        | Request::Describe { .. }
        | Request::FindProcesses { .. }
        | Request::Watchers
        | Request::WatcherEvents { .. }
        | Request::Search(_)
        | Request::Services
        | Request::Service { .. }
        | Request::ServiceEvents { .. }
        | Request::ServiceLog { .. }
        | Request::Watch { .. }
        | Request::Dial { .. } => Err(Failure::Invalid { reason: "a stream is not answered at once".to_owned() }),
    }
}
