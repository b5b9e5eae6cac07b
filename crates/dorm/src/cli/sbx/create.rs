//! `dorm sbx create`.

use std::collections::BTreeMap;

use dorm_api_types as wire;
use dorm_client::Client;

use super::checkpoints::NewCheckpoints;
use super::port_options::PortOptions;
use super::suspend::NoWait;
use super::{secrets, table};
use crate::cli::output::Format;
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::pull;
use crate::values;
use crate::values::Wake;

/// The image of a sandbox if none is given.
pub(in crate::cli) const IMAGE: &str = "base";

/// Options of `dorm sbx create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateOptions {
    /// Name: lower-case letters, digits and hyphens. A named sandbox can be suspended; without a
    /// name it is ephemeral
    name: Option<String>,
    #[command(flatten)]
    sandbox: NewSandbox,
    /// Suspend the sandbox, suspend it with its files only, or terminate it when a time limit
    /// expires. By default, suspend a named sandbox and terminate an unnamed one
    #[arg(long, value_enum, value_name = "ACTION")]
    on_timeout: Option<OnTimeout>,
    /// If it cannot be suspended at its deadline: keep it running and retry with growing delays, up
    /// to 10 minutes, or terminate it after 11 failures in a row (about 17 minutes) [default: keep]
    #[arg(long, value_enum, value_name = "ACTION")]
    on_suspend_failure: Option<OnSuspendFailure>,
    /// The calls that wake it when it is suspended: never, traffic for its ports, or any call
    /// [default: traffic]
    #[arg(long, value_enum, value_name = "WHEN")]
    wake: Option<Wake>,
    /// Wait this long, in turn with others, if there is no room for it
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_wait: Option<f64>,
    #[command(flatten)]
    waiting: NoWait,
    #[command(flatten)]
    ports: PortOptions,
    #[command(flatten)]
    retention: SleepRetention,
    #[command(flatten)]
    checkpoints: NewCheckpoints,
}

/// Options for the sleep images of a sandbox.
#[derive(Debug, clap::Args)]
struct SleepRetention {
    /// How many of its sleep images to keep; an older one is used if the newest is damaged
    /// [default: 1]
    #[arg(long, value_name = "COUNT")]
    keep_generations: Option<u32>,
    /// If no sleep image can be restored: fail and stay suspended, or boot fresh, without memory
    /// and files [default: fail]
    #[arg(long, value_enum, value_name = "ACTION")]
    on_unrestorable: Option<OnUnrestorable>,
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
pub(super) enum OnTimeout {
    Suspend,
    SuspendFiles,
    Terminate,
}

impl From<OnTimeout> for wire::OnTimeout {
    fn from(what: OnTimeout) -> Self {
        match what {
            OnTimeout::Suspend => Self::Suspend,
            OnTimeout::SuspendFiles => Self::SuspendFiles,
            OnTimeout::Terminate => Self::Terminate,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnSuspendFailure {
    Keep,
    Terminate,
}

/// Whether the program of the image is started.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct StartOptions {
    /// Start the image's entrypoint and command as a process with the label `start`; a sandbox in
    /// which that fails is terminated
    #[arg(long)]
    start: bool,
    /// Do not start the entrypoint and command that a filesystem snapshot or a template would start
    #[arg(long, conflicts_with = "start")]
    no_start: bool,
}

impl StartOptions {
    /// Returns what was asked for, if anything.
    pub(in crate::cli) fn asked(&self) -> Option<bool> {
        (self.start || self.no_start).then_some(self.start)
    }
}

/// Options of every new sandbox.
#[derive(Debug, clap::Args)]
pub(super) struct NewSandbox {
    /// The image to start from: a tag or digest, an image in a registry, such as
    /// docker.io/library/python:3.12, or the name of a snapshot [default: base]
    #[arg(long)]
    image: Option<String>,
    /// When to contact the registry of the image
    #[arg(long, value_enum, default_value = "missing", value_name = "WHEN")]
    pull: pull::When,
    #[command(flatten)]
    start: StartOptions,
    /// Start from this snapshot instead: a memory snapshot continues where it was, a filesystem
    /// snapshot boots. Egress and ports are by default as they were for its source
    #[arg(long, value_name = "ID", conflicts_with = "image")]
    snapshot: Option<String>,
    /// Start from this template instead; other options override its settings
    #[arg(long, value_name = "NAME[:TAG]", conflicts_with_all = ["image", "snapshot"])]
    template: Option<String>,
    /// CPU limit, such as 0.5 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = values::cpus)]
    cpus: Option<u32>,
    /// Memory limit [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Disk limit: how much it can write [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    disk: Option<u64>,
    /// Maximum number of processes and threads [default: 512]
    #[arg(long, value_name = "COUNT")]
    processes: Option<u32>,
    /// How long it may run, such as 5m; every resume restarts this limit
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout: Option<f64>,
    /// How long it may be idle
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    idle_timeout: Option<f64>,
    /// How long it may run after a call has woken it [default: as --timeout]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout_after_wake: Option<f64>,
    /// How long it may run without a break, even if a hold keeps it awake
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_run: Option<f64>,
    /// An environment variable for all processes in it
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    /// A secret for all processes in it: NAME for the value in the environment of this command, or
    /// NAME=@FILE for the content of a file. It is never shown, and a clone or fork gets it only if
    /// it is named there
    #[arg(long, value_name = "NAME[=@FILE]", value_parser = secrets::named)]
    secret: Vec<secrets::Named>,
    /// A label
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    /// An annotation: a note of a program that uses the sandbox on behalf of others
    #[arg(long, value_name = "PROGRAM/KEY=VALUE", value_parser = values::annotation)]
    annotation: Vec<(values::AnnotationName, String)>,
    /// A volume, its path in the sandbox, and optionally read-only access or a directory of the
    /// volume to attach
    #[arg(long, value_name = "NAME:/PATH[:ro][:subpath=DIR]", value_parser = values::volume)]
    volume: Vec<wire::AttachVolume>,
    /// Where it may connect to: public (the internet, never private networks), closed (nowhere, can
    /// be changed later), none (no network device), a comma-separated list of networks and host
    /// names, such as 198.51.100.0/24,example.com,*.example.com (no other name resolves), or rules
    /// in their order, such as deny:203.0.113.0/24,allow:*.example.com,default:public
    #[arg(long, value_name = "WHERE", value_parser = values::egress)]
    egress: Option<wire::Egress>,
    /// Add a header with a project secret to its HTTPS requests, such as 'api.example.com:
    /// Authorization: Bearer {API_KEY}'. The daemon adds it outside the sandbox, which never gets
    /// the secret
    #[arg(long, value_name = "HOST: HEADER: VALUE", value_parser = values::given_header)]
    header: Vec<values::GivenHeader>,
}

impl NewSandbox {
    /// Returns the API request.
    pub(super) fn request(self, name: Option<String>) -> Result<wire::CreateSandbox, Problem> {
        let asked = self.cpus.is_some() || self.memory.is_some() || self.disk.is_some() || self.processes.is_some();
        let resources = wire::ResourcesRequest {
            cpu_millis: self.cpus,
            memory_bytes: self.memory,
            disk_bytes: self.disk,
            processes: self.processes,
        };
        if self.snapshot.is_some() && self.egress.is_none() && !self.header.is_empty() {
            let message = "--header without --egress would replace the egress of the snapshot";
            return Err(Problem::usage(message, "give both"));
        }
        let has_other = self.snapshot.is_some() || self.template.is_some();
        let image = if has_other { None } else { self.image.or_else(|| Some(IMAGE.to_owned())) };
        Ok(wire::CreateSandbox {
            image,
            pull: (!has_other && self.pull != pull::When::Missing).then(|| self.pull.into()),
            start: self.start.asked(),
            snapshot: self.snapshot,
            template: self.template,
            name,
            resources: asked.then_some(resources),
            egress: values::with_headers(self.egress, self.header).map_err(|error| Problem::usage(error, ""))?,
            env: self.env.into_iter().collect::<BTreeMap<_, _>>(),
            secrets: secrets::given(self.secret)?,
            timeout_secs: self.timeout,
            idle_timeout_secs: self.idle_timeout,
            timeout_after_wake_secs: self.timeout_after_wake,
            max_run_secs: self.max_run,
            volumes: self.volume,
            labels: self.label.into_iter().collect(),
            annotations: values::by_program(self.annotation),
            ..wire::CreateSandbox::default()
        })
    }
}

/// Creates a sandbox and prints it when it runs.
pub(super) async fn run(client: &Client, options: CreateOptions, format: Format) -> Done {
    let mut asked = options.sandbox.request(options.name)?;
    asked.on_timeout = options.on_timeout.map(Into::into);
    asked.on_suspend_failure = options.on_suspend_failure.map(|what| match what {
        OnSuspendFailure::Keep => wire::OnSuspendFailure::Keep,
        OnSuspendFailure::Terminate => wire::OnSuspendFailure::Terminate,
    });
    asked.keep_generations = options.retention.keep_generations;
    asked.on_unrestorable = options.retention.on_unrestorable.map(Into::into);
    asked.checkpoints = options.checkpoints.request();
    asked.port_access = options.ports.access();
    asked.port_host = options.ports.host();
    asked.port_rules = Some(options.ports.rules()).filter(|rules| !rules.is_empty());
    asked.wake = options.wake.map(Into::into);
    asked.max_wait_secs = options.max_wait;
    asked.wait = options.waiting.wait();
    pull::before(client, &mut asked).await?;
    let progress = Progress::new("creating a sandbox");
    let sandbox = client.create(&asked).await?;
    drop(progress);
    table::one(&sandbox, format)
}
