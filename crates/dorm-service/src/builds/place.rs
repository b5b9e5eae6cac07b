//! Copies files of a context into the sandbox of a step.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use dorm_agent_client::{
    Agent, AgentError, ExitStatus, FileKind, GuestString, Output, Parents, ProcessSpec, User, WriteOptions,
};
use dorm_build::Copy;
use dorm_build::context::{Entry, FileEntry, Found};
use dorm_lifecycle::SandboxId;
use dorm_storage::StoredContext;
use dorm_store::Code;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};

use super::carry::guest_path;
use super::plan::Stage;
use super::{Builder, Stop};
use crate::activity::Use;
use crate::error::{BuildProblem, ServiceError};
use crate::ops::exec::CommandInput;
use crate::shared::{Service, blocking};

/// How many files are sent at once.
const AT_ONCE: usize = 8;
const PIECE_BYTES: usize = 256 << 10;

impl Builder {
    /// Copies the files of a step.
    pub(super) async fn place(
        &mut self,
        at: usize,
        stage: &Stage,
        copy: &Copy,
        sandbox: &SandboxId,
    ) -> Result<(), Stop> {
        let Some((context, selected)) = &stage.files else { return Ok(()) };
        let target = stage.before.below(&copy.to);
        let names_directory = |path: &str| matches!(path.rsplit('/').next(), Some("" | "." | ".."));
        let into = !selected.is_one_file || names_directory(&copy.to) || {
            let is_directory = self.unless(is_directory(&self.service, sandbox, &target)).await?;
            is_directory.map_err(|error| self.stop(error))?
        };
        let target = target.trim_end_matches('/');
        // If two entries have the same target path, the later one wins.
        let mut wanted = BTreeMap::new();
        for found in &selected.found {
            wanted.insert(inside(target, found, into), &found.entry);
        }
        let owner = match &copy.owner {
            Some(owner) => Some(self.user_in(sandbox, owner).await?),
            None => None,
        };
        let kept = Kept { owner, mode: copy.mode };
        let placed = self.unless(put_all(&self.service, sandbox, context, (target, into), &wanted, &kept)).await?;
        placed.map_err(|error| self.stop(error))?;
        let links = wanted.iter().filter_map(|(path, entry)| match entry {
            Entry::Link(to) => Some((path.clone(), to.clone())),
            Entry::Directory | Entry::File(_) => None,
        });
        let links: Vec<(String, String)> = links.collect();
        for (path, to) in links {
            let made = self.unless(link(&self.service, sandbox, &path, &to)).await?;
            if !made.map_err(|error| self.stop(error))? {
                return Err(Stop::failed(Code::Failed, format!("cannot create the link {path}")));
            }
            if let Some(owner) = &copy.owner {
                let words = ["chown", "-h", "--", owner, &path];
                let given = self.unless(succeeds(&self.service, sandbox, &words)).await?;
                if !given.map_err(|error| self.stop(error))? {
                    return Err(Stop::failed(Code::Failed, format!("cannot set the owner of the link {path}")));
                }
            }
        }
        self.diary.say(Some(at), &format!("  {} entries", wanted.len())).await;
        Ok(())
    }
}

/// The owner and the permission bits that a copy sets in place of those in the context.
struct Kept {
    owner: Option<User>,
    mode: Option<u32>,
}

async fn is_directory(service: &Service, sandbox: &SandboxId, path: &str) -> Result<bool, ServiceError> {
    let (agent, _in_use) = service.agent(sandbox, Use::Files).await?;
    match agent.stat(&guest_path(path)?).await {
        Ok(stat) => Ok(stat.kind == FileKind::Directory),
        Err(AgentError::NotFound(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn put_all(
    service: &Service,
    sandbox: &SandboxId,
    context: &Arc<StoredContext>,
    (target, into): (&str, bool),
    wanted: &BTreeMap<String, &Entry>,
    kept: &Kept,
) -> Result<(), ServiceError> {
    let parent = |path: &str| path.rsplit_once('/').map_or("/", |(parent, _)| parent).to_owned();
    let mut directories: Vec<String> = wanted
        .iter()
        .map(|(path, entry)| if **entry == Entry::Directory { path.clone() } else { parent(path) })
        .chain(into.then(|| target.to_owned()))
        .filter(|path| !path.is_empty() && path != "/")
        .collect();
    directories.sort();
    directories.dedup();
    let (agent, _in_use) = service.agent(sandbox, Use::Files).await?;
    for directory in &directories {
        agent.make_directory(&guest_path(directory)?, Parents::Create, kept.owner.clone()).await?;
    }
    let files = wanted.iter().filter_map(|(path, entry)| match entry {
        Entry::File(file) => Some((path.clone(), file.clone())),
        Entry::Directory | Entry::Link(_) => None,
    });
    let sent = files.map(|(path, file)| {
        let mode = Some(kept.mode.unwrap_or(file.mode));
        let options = WriteOptions { mode, owner: kept.owner.clone(), ..WriteOptions::default() };
        put(agent.clone(), context.clone(), (path, file), options)
    });
    let sent: Vec<_> = sent.collect();
    stream::iter(sent).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

async fn put(
    agent: Agent,
    context: Arc<StoredContext>,
    (path, file): (String, FileEntry),
    options: WriteOptions,
) -> Result<(), ServiceError> {
    agent.write_file(&guest_path(&path)?, options, content(context, file)).await?;
    Ok(())
}

/// Copies all files of a context into a directory. They belong to `owner`, or to root.
pub(crate) async fn put_context(
    service: &Service,
    sandbox: &SandboxId,
    context: &Arc<StoredContext>,
    directory: &str,
    owner: Option<&str>,
) -> Result<(), ServiceError> {
    let invalid = |value: &str| ServiceError::ImageSetting { what: "user", value: value.to_owned() };
    let user = owner.map(|owner| owner.parse().map_err(|_| invalid(owner))).transpose()?;
    let entries = context.context.entries();
    let wanted: BTreeMap<String, &Entry> =
        entries.map(|(path, entry)| (format!("{directory}/{path}"), entry)).collect();
    put_all(service, sandbox, context, (directory, true), &wanted, &Kept { owner: user, mode: None }).await?;
    for (path, entry) in &wanted {
        let Entry::Link(to) = entry else { continue };
        let made = link(service, sandbox, path, to).await?;
        let given = match owner {
            Some(owner) => succeeds(service, sandbox, &["chown", "-h", "--", owner, path]).await?,
            None => true,
        };
        if !made || !given {
            return Err(BuildProblem::Bad(format!("the link {path} cannot be created")).into());
        }
    }
    Ok(())
}

/// Returns the content of a file of a context.
fn content(context: Arc<StoredContext>, file: FileEntry) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    enum At {
        Beginning(Arc<StoredContext>, FileEntry),
        Open(Box<dyn Read + Send>),
    }
    stream::try_unfold(At::Beginning(context, file), |at| {
        blocking(move || {
            let mut open = match at {
                At::Beginning(context, file) => Box::new(context.open(&file)?),
                At::Open(open) => open,
            };
            let mut piece = vec![0; PIECE_BYTES];
            let read = open.read(&mut piece)?;
            piece.truncate(read);
            Ok((read > 0).then(|| (Bytes::from(piece), At::Open(open))))
        })
    })
}

/// Creates a symbolic link; returns whether that succeeded.
async fn link(service: &Service, sandbox: &SandboxId, path: &str, to: &str) -> Result<bool, ServiceError> {
    succeeds(service, sandbox, &["ln", "-sfn", "--", to, path]).await
}

/// Runs a program as root; returns whether it exited with 0.
async fn succeeds(service: &Service, sandbox: &SandboxId, words: &[&str]) -> Result<bool, ServiceError> {
    let argv: Result<Vec<_>, _> = words.iter().map(|word| GuestString::new(word.as_bytes().to_vec())).collect();
    let invalid = |_| ServiceError::ImageSetting { what: "command", value: words.join(" ") };
    let mut spec = ProcessSpec::new(argv.map_err(invalid)?);
    spec.user = "0".parse().ok();
    spec.directory = Some(guest_path("/")?);
    let mut execution = service.exec(sandbox, spec, CommandInput::Empty, None).await?;
    while let Some(output) = execution.next().await {
        if let Output::Exited(status) = output? {
            return Ok(status == ExitStatus::Code(0));
        }
    }
    Ok(false)
}

/// Returns the target path of an entry.
fn inside(target: &str, found: &Found, into: bool) -> String {
    match (found.below.is_empty(), into) {
        (true, false) => target.to_owned(),
        (true, true) => format!("{target}/{}", found.name),
        (false, _) => format!("{target}/{}", found.below),
    }
}
