//! `dorm sbx create`.

use std::collections::BTreeMap;

use dorm_api::wire;

use super::checkpoints::NewCheckpoints;
use super::{secrets, table};
use crate::cli::output::Format;
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::values::PortAccess;
use crate::cli::{pull, values};
use crate::client::Client;

/// The image of a sandbox when none is named.
const IMAGE: &str = "base";

/// What the sandbox is to be.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateOptions {
    /// Its name: lower-case letters, digits and hyphens. Makes it suspendable; without one it is ephemeral
    name: Option<String>,
    #[command(flatten)]
    sandbox: NewSandbox,
    /// Suspend it, or terminate it, when its time is over. By default suspend with a name, terminate without
    #[arg(long, value_enum, value_name = "WHAT")]
    on_timeout: Option<OnTimeout>,
    /// When it cannot be suspended at its deadline: keep it running and try again, every 10 minutes in the end, or
    /// terminate it after 11 failures in a row (about 17 minutes) [default: keep]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_suspend_failure: Option<OnSuspendFailure>,
    /// Let it sleep when traffic for its ports comes, instead of waking it
    #[arg(long)]
    no_auto_resume: bool,
    /// Who may reach its ports: everyone who knows its id, or who shows a key, its port token or the cookie of a link
    /// [default: as the daemon was started]
    #[arg(long, value_enum, value_name = "ACCESS")]
    ports: Option<PortAccess>,
    #[command(flatten)]
    keeping: Keeping,
    #[command(flatten)]
    checkpoints: NewCheckpoints,
}

/// What is kept to bring a sandbox back.
#[derive(Debug, clap::Args)]
pub(super) struct Keeping {
    /// How many of its sleep images are kept, to fall back to when the newest is damaged [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(super) keep_generations: Option<u32>,
    /// When none can be restored: fail and stay suspended, or boot afresh without memory and files [default: fail]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(super) on_unrestorable: Option<OnUnrestorable>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum OnUnrestorable {
    Fail,
    Fresh,
}

impl From<OnUnrestorable> for wire::OnUnrestorable {
    fn from(what: OnUnrestorable) -> Self {
        match what {
            OnUnrestorable::Fail => Self::Fail,
            OnUnrestorable::Fresh => Self::Fresh,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnTimeout {
    Suspend,
    Terminate,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnSuspendFailure {
    Keep,
    Terminate,
}

/// What every new sandbox can be given.
#[derive(Debug, clap::Args)]
pub(super) struct NewSandbox {
    /// The image it starts from: a tag or digest, or the name of one in a registry, such as
    /// docker.io/library/python:3.12 [default: base]
    #[arg(long)]
    image: Option<String>,
    /// When to ask the registry that the image names
    #[arg(long, value_enum, default_value = "missing", value_name = "WHEN")]
    pull: pull::When,
    /// Start what the image is made to run, as a process with the label `start`; when that fails the sandbox is terminated
    #[arg(long, conflicts_with = "snapshot")]
    start: bool,
    /// Start from this snapshot instead: from one of memory it goes on, from one of files it boots
    #[arg(long, value_name = "ID", conflicts_with = "image")]
    snapshot: Option<String>,
    /// How many CPUs it may use, such as 0.5 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = values::cpus)]
    cpus: Option<u32>,
    /// Its memory [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// What it may write to its disk [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    disk: Option<u64>,
    /// How many processes and threads it may have [default: 512]
    #[arg(long, value_name = "COUNT")]
    processes: Option<u32>,
    /// How long it may run, such as 5m; counts anew with every resume
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout: Option<f64>,
    /// How long it may be idle
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    idle_timeout: Option<f64>,
    /// How long it may run without a break, whatever holds it awake
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_run: Option<f64>,
    /// A variable for everything in it
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    /// A secret for everything in it: NAME, with the value it has in the environment of this command, or NAME=@FILE for
    /// the content of a file. It is never shown, and no clone or fork gets it unless it is named
    #[arg(long, value_name = "NAME[=@FILE]", value_parser = secrets::named)]
    secret: Vec<secrets::Named>,
    /// A label
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    /// A volume, where it appears in the sandbox, and whether it can only be read or which directory of it is meant
    #[arg(long, value_name = "NAME:/PATH[:ro][:subpath=DIR]", value_parser = values::volume)]
    volume: Vec<wire::AttachVolume>,
    /// Where it may connect to: public (the internet, never private networks), none, or networks and host names with
    /// commas between, such as 198.51.100.0/24,example.com,*.example.com; no other name resolves
    #[arg(long, value_name = "WHERE", value_parser = values::egress)]
    egress: Option<wire::Egress>,
}

impl NewSandbox {
    /// The request for it.
    pub(super) fn request(self, name: Option<String>) -> Result<wire::CreateSandbox, Problem> {
        let asked = self.cpus.is_some() || self.memory.is_some() || self.disk.is_some() || self.processes.is_some();
        let resources = wire::ResourcesRequest {
            cpu_millis: self.cpus,
            memory_bytes: self.memory,
            disk_bytes: self.disk,
            processes: self.processes,
        };
        let image = if self.snapshot.is_some() { None } else { self.image.or_else(|| Some(IMAGE.to_owned())) };
        Ok(wire::CreateSandbox {
            image,
            pull: (self.snapshot.is_none() && self.pull != pull::When::Missing).then(|| self.pull.into()),
            start: self.start,
            snapshot: self.snapshot,
            name,
            resources: asked.then_some(resources),
            egress: self.egress,
            env: self.env.into_iter().collect::<BTreeMap<_, _>>(),
            secrets: secrets::given(self.secret)?,
            timeout_secs: self.timeout,
            idle_timeout_secs: self.idle_timeout,
            max_run_secs: self.max_run,
            volumes: self.volume,
            labels: self.label.into_iter().collect(),
            ..wire::CreateSandbox::default()
        })
    }
}

/// Creates it; prints it when it runs.
pub(super) async fn run(client: &Client, options: CreateOptions, format: Format) -> Done {
    let mut asked = options.sandbox.request(options.name)?;
    asked.on_timeout = options.on_timeout.map(|what| match what {
        OnTimeout::Suspend => wire::OnTimeout::Suspend,
        OnTimeout::Terminate => wire::OnTimeout::Terminate,
    });
    asked.on_suspend_failure = options.on_suspend_failure.map(|what| match what {
        OnSuspendFailure::Keep => wire::OnSuspendFailure::Keep,
        OnSuspendFailure::Terminate => wire::OnSuspendFailure::Terminate,
    });
    asked.keep_generations = options.keeping.keep_generations;
    asked.on_unrestorable = options.keeping.on_unrestorable.map(Into::into);
    asked.checkpoints = options.checkpoints.request();
    asked.port_access = options.ports.map(|access| match access {
        PortAccess::Public => wire::PortAccess::Public,
        PortAccess::Private => wire::PortAccess::Private,
    });
    asked.auto_resume = options.no_auto_resume.then_some(false);
    pull::before(client, &mut asked).await?;
    let progress = Progress::new("creating a sandbox");
    let sandbox = client.create(&asked).await?;
    drop(progress);
    table::one(&sandbox, format)
}
