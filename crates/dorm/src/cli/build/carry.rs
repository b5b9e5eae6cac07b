//! Runs one step in a sandbox of its own and keeps the resulting files.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use dorm_api_types as wire;
use dorm_build::{Command, Step};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio_util::io::ReaderStream;

use super::Stage;
use super::context::{Files, Found, Kind};
use super::options::BuildOptions;
use crate::cli::problem::Problem;
use crate::cli::{output, shown};
use crate::client::{Client, CommandEvent, Wanted};

/// How many files are sent at once.
const AT_ONCE: usize = 8;
/// How long the sandbox of a step may run after the time limit of the step, in seconds.
const GRACE_SECS: f64 = 600.0;
/// How long the files of a step are kept for later builds, in seconds.
const KEPT_SECS: f64 = 14.0 * 86_400.0;

/// The state from which a step starts.
#[derive(Clone, Debug)]
pub(super) enum From {
    Image(String),
    /// A snapshot, and the disk size of its source: a sandbox created from it cannot have a smaller
    /// disk.
    Snapshot {
        id: String,
        disk_bytes: u64,
    },
}

impl From {
    pub(super) fn snapshot(&self) -> Option<String> {
        match self {
            Self::Image(_) => None,
            Self::Snapshot { id, .. } => Some(id.clone()),
        }
    }
}

impl std::convert::From<wire::Snapshot> for From {
    fn from(snapshot: wire::Snapshot) -> Self {
        Self::Snapshot { id: snapshot.id, disk_bytes: snapshot.resources.disk_bytes }
    }
}

/// Runs a step in a new sandbox and returns a snapshot of the result.
pub(super) async fn carry_out(
    client: &Client,
    options: &BuildOptions,
    from: &From,
    (stage, key): (&Stage, &str),
) -> Result<From, Problem> {
    let sandbox = client.create(&sandbox(options, from, key)).await?.id;
    let kept: Result<From, Problem> = async {
        if let Some(directory) = &stage.before.0.workdir {
            client.make_directory(&sandbox, directory).await?;
        }
        match &stage.placed.step {
            Step::Run(command) => run(client, &sandbox, options, stage, command).await?,
            Step::Copy(copy) => {
                place(client, &sandbox, &stage.before.below(&copy.to), &copy.to, stage.files.as_ref()).await?
            }
            Step::Env(..) | Step::Workdir(_) | Step::User(_) | Step::Entrypoint(_) | Step::Cmd(_) => {}
        }
        let labels = [(super::LABEL.to_owned(), key.to_owned())].into();
        let asked = wire::CheckpointRequest { labels, expires_secs: Some(KEPT_SECS), ..Default::default() };
        Ok(client.checkpoint(&sandbox, &asked).await?.into())
    }
    .await;
    // If the sandbox cannot be terminated now, its deadline terminates it.
    let ended = client.command(&sandbox, "terminate").await;
    let kept = kept?;
    if let Err(error) = ended {
        Problem::from(error).during(&format!("cannot terminate sandbox {sandbox} yet")).tell();
    }
    Ok(kept)
}

fn sandbox(options: &BuildOptions, from: &From, key: &str) -> wire::CreateSandbox {
    let (image, snapshot, least) = match from {
        From::Image(image) => (Some(image.clone()), None, 0),
        From::Snapshot { id, disk_bytes } => (None, Some(id.clone()), *disk_bytes),
    };
    let resources = wire::ResourcesRequest {
        cpu_millis: options.cpus,
        memory_bytes: options.memory,
        disk_bytes: options.disk.map(|bytes| bytes.max(least)),
        processes: None,
    };
    wire::CreateSandbox {
        image,
        snapshot,
        resources: Some(resources),
        egress: options.egress.clone(),
        max_run_secs: Some(options.step_timeout + GRACE_SECS),
        labels: [(super::LABEL.to_owned(), key.to_owned())].into(),
        ..wire::CreateSandbox::default()
    }
}

async fn run(
    client: &Client,
    sandbox: &str,
    options: &BuildOptions,
    stage: &Stage,
    command: &Command,
) -> Result<(), Problem> {
    let settings = &stage.before.0;
    let mut env = stage.placed.arguments.clone();
    env.extend(settings.env.clone());
    let user = match &settings.user {
        Some(user) => Some(numbered(client, sandbox, user).await?),
        None => None,
    };
    let asked = wire::ExecRequest {
        argv: Some(command.argv().iter().map(|word| wire::Text::from_bytes(word.as_bytes())).collect()),
        env,
        cwd: Some(wire::Text::Plain(settings.workdir.clone().unwrap_or_else(|| "/".to_owned()))),
        user,
        timeout_secs: Some(options.step_timeout),
        ..wire::ExecRequest::default()
    };
    let mut events = client.exec(sandbox, &asked).await?;
    loop {
        match events.next().await? {
            CommandEvent::Stdout(bytes) | CommandEvent::Stderr(bytes) => {
                // If standard error is closed, the output is not wanted.
                let _ = std::io::stderr().write_all(&bytes);
            }
            CommandEvent::Exited(wire::ExitStatus { exit_code: Some(0), .. }) => return Ok(()),
            CommandEvent::Exited(status) => {
                let how = match status {
                    wire::ExitStatus { timed_out: true, .. } => {
                        format!("exceeded the step timeout of {} and was ended", shown::length(options.step_timeout))
                    }
                    wire::ExitStatus { exit_code: Some(code), .. } => format!("exited with code {code}"),
                    status => format!("was killed by signal {}", status.signal.unwrap_or_default()),
                };
                let next = "see its output above; earlier steps are kept, so the next build continues here";
                return Err(Problem::failed(format!("the command {how}"), next));
            }
            CommandEvent::Checkpoint(_) | CommandEvent::Started(_) | CommandEvent::Lost(_) => {}
        }
    }
}

/// Returns `USER:GROUP` as the numbers that the sandbox's files list for them, and anything else
/// unchanged.
async fn numbered(client: &Client, sandbox: &str, user: &str) -> Result<String, Problem> {
    if !user.contains(':') {
        return Ok(user.to_owned());
    }
    let mut lists = Vec::new();
    for list in ["/etc/passwd", "/etc/group"] {
        let content: Vec<_> = client.read_file(sandbox, list).await?.try_collect().await?;
        lists.push(String::from_utf8_lossy(&content.concat()).into_owned());
    }
    dorm_storage::numbered_user(user, &lists[0], &lists[1]).ok_or_else(|| {
        let next = "create it in an earlier step, or give numbers";
        Problem::failed(format!("/etc/passwd and /etc/group do not list '{user}'"), next)
    })
}

/// Copies files to `target`, which the step spells as `written`.
async fn place(
    client: &Client,
    sandbox: &str,
    target: &str,
    written: &str,
    files: Option<&Files>,
) -> Result<(), Problem> {
    let Some(files) = files else { return Ok(()) };
    let names_directory = |path: &str| matches!(path.rsplit('/').next(), Some("" | "." | ".."));
    let into = !files.is_one_file
        || names_directory(written)
        || client.stat(sandbox, target).await?.is_some_and(|stat| stat.kind == wire::FileKind::Directory);
    let target = target.trim_end_matches('/');
    // If two entries have the same target path, the later one wins.
    let mut wanted = BTreeMap::new();
    for found in &files.found {
        wanted.insert(inside(target, found, into)?, &found.kind);
    }
    let parent = |path: &str| path.rsplit_once('/').map_or("/", |(parent, _)| parent).to_owned();
    let mut directories: Vec<String> = wanted
        .iter()
        .map(|(path, kind)| if **kind == Kind::Directory { path.clone() } else { parent(path) })
        .chain(into.then(|| target.to_owned()))
        .filter(|path| !path.is_empty() && path != "/")
        .collect();
    directories.sort();
    directories.dedup();
    for directory in &directories {
        client.make_directory(sandbox, directory).await?;
    }
    let sent = wanted.iter().map(|(path, kind)| send(client, sandbox, path, kind));
    stream::iter(sent).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    output::talk(&format!("  {} entries", wanted.len()));
    Ok(())
}

/// Returns the target path of an entry.
fn inside(target: &str, found: &Found, into: bool) -> Result<String, Problem> {
    let below = found.below.to_str().unwrap_or_default();
    Ok(match (below.is_empty(), into) {
        (true, false) => target.to_owned(),
        (true, true) => format!("{target}/{}", found.name),
        (false, _) => format!("{target}/{below}"),
    })
}

async fn send(client: &Client, sandbox: &str, path: &str, kind: &Kind) -> Result<(), Problem> {
    match kind {
        Kind::Directory => Ok(()),
        Kind::File { path: from, mode, bytes } => {
            let host = |error| Problem::host(format!("read {}", Path::new(from).display()), &error);
            let file = tokio::fs::File::open(from).await.map_err(host)?;
            let wanted = Wanted { mode: Some(*mode), length: Some(*bytes) };
            Ok(client.write_file(sandbox, path, wanted, ReaderStream::new(file)).await?)
        }
        Kind::Link(target) => {
            let argv = ["ln", "-sfn", "--", target, path];
            let asked = wire::ExecRequest {
                argv: Some(argv.iter().map(|word| wire::Text::from_bytes(word.as_bytes())).collect()),
                user: Some("0".to_owned()),
                ..wire::ExecRequest::default()
            };
            let made = client.exec_whole(sandbox, &asked).await?;
            match made.exit_code {
                Some(0) => Ok(()),
                _ => Err(Problem::failed(format!("cannot create the link {path}: {}", made.stderr.trim()), "")),
            }
        }
    }
}
