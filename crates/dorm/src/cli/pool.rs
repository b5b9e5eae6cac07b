//! `dorm pool`: sandboxes that are made in advance.

use clap::Subcommand;
use dorm_api_types as wire;
use dorm_client::Client;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::progress::Progress;
use super::shown;
use crate::exit;
use crate::values::{self, PortAccess, Wake};

/// Options of `dorm pool`.
#[derive(Debug, clap::Args)]
pub(crate) struct PoolOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: PoolVerb,
}

#[derive(Debug, Subcommand)]
enum PoolVerb {
    /// Create a pool: sandboxes are made in advance and wait, suspended, to be claimed
    Create(Box<CreateOptions>),
    /// List pools
    Ls,
    /// Show a pool
    Describe {
        /// Name of the pool
        name: String,
    },
    /// Change how many sandboxes wait, and how many there may be; a number that is not given stays
    #[command(group(clap::ArgGroup::new("numbers").required(true).multiple(true).args(["ready", "most", "no_most"])))]
    Resize {
        /// Name of the pool
        name: String,
        #[command(flatten)]
        size: NewSize,
    },
    /// Claim a sandbox: it is resumed, and from then on is a sandbox like any other
    Claim(Box<ClaimOptions>),
    /// Remove pools; sandboxes that wait are terminated, claimed ones stay
    Rm {
        /// The names of the pools
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

/// The numbers of a pool.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Size {
    /// How many sandboxes wait
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    ready: u64,
    /// How many there may be, waiting and claimed [default: any number]
    #[arg(long, value_name = "COUNT")]
    most: Option<u64>,
}

/// Changed numbers of a pool.
#[derive(Clone, Copy, Debug, clap::Args)]
struct NewSize {
    /// How many sandboxes wait
    #[arg(long, value_name = "COUNT")]
    ready: Option<u64>,
    /// How many there may be, waiting and claimed
    #[arg(long, value_name = "COUNT", conflicts_with = "no_most")]
    most: Option<u64>,
    /// Allow any number of sandboxes, waiting and claimed
    #[arg(long)]
    no_most: bool,
}

#[derive(Debug, clap::Args)]
struct CreateOptions {
    /// Name of the pool
    name: String,
    #[command(flatten)]
    size: Size,
    /// Image to boot from, by tag or digest, or the name of a snapshot [default: base]
    #[arg(long, value_name = "IMAGE", conflicts_with = "snapshot")]
    image: Option<String>,
    /// Snapshot to start from instead
    #[arg(long, value_name = "ID")]
    snapshot: Option<String>,
    #[command(flatten)]
    start: super::sbx::StartOptions,
    /// CPU limit, such as 0.5 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = values::cpus)]
    cpus: Option<u32>,
    /// Memory limit [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Disk limit [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    disk: Option<u64>,
    /// Their egress, as for `dorm sbx create`
    #[arg(long, value_name = "WHERE", value_parser = values::egress)]
    egress: Option<wire::Egress>,
    /// Add a header with a project secret to their HTTPS requests, such as 'api.example.com:
    /// Authorization: Bearer {API_KEY}'. The daemon adds it outside the sandboxes, which never get
    /// the secret
    #[arg(long, value_name = "HOST: HEADER: VALUE", value_parser = values::given_header)]
    header: Vec<values::GivenHeader>,
    /// An environment variable for all processes in them
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    /// A label
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
}

#[derive(Debug, clap::Args)]
struct ClaimOptions {
    /// Name of the pool
    pool: String,
    /// Name of the sandbox
    #[arg(long)]
    name: Option<String>,
    /// An environment variable for processes that start in it
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    /// A label
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    /// How long it may run, such as 5m; every resume restarts this limit
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    timeout: Option<f64>,
    /// How long it may be idle
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    idle_timeout: Option<f64>,
    /// The calls that wake it when it is suspended: never, traffic for its ports, or any call
    /// [default: traffic]
    #[arg(long, value_enum, value_name = "WHEN")]
    wake: Option<Wake>,
    /// Access to its ports: public, or private [default: as the pool]
    #[arg(long, value_enum, value_name = "ACCESS")]
    ports: Option<PortAccess>,
    /// Wait this long until a sandbox is ready
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_wait: Option<f64>,
}

const TITLES: [&str; 5] = ["POOL", "WAITING", "CLAIMED", "MOST", "PROBLEM"];

/// Runs `dorm pool`.
pub(crate) async fn run(options: PoolOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        PoolVerb::Create(options) => show(&client.create_pool(&create(*options)?).await?, format)?,
        PoolVerb::Ls => {
            let pools = client.pools().await?;
            match format {
                Format::Json => output::json(&pools)?,
                Format::Table => output::table(&TITLES, &pools.iter().map(row).collect::<Vec<_>>())?,
            }
        }
        PoolVerb::Describe { name } => show(&client.pool(&name).await?, format)?,
        PoolVerb::Resize { name, size } => show(&resize(&client, &name, size).await?, format)?,
        PoolVerb::Claim(options) => return claim(&client, *options, format).await,
        PoolVerb::Rm { names } => {
            for name in names {
                client.delete_pool(&name).await?;
                output::talk(&format!("pool {name} is removed"));
            }
        }
    }
    Ok(exit::OK)
}

/// Changes the given numbers. A request has both, so the present ones are read first; a change by
/// another caller between the two requests is overwritten, because pools have no revision.
async fn resize(client: &Client, name: &str, size: NewSize) -> Result<wire::Pool, Problem> {
    let NewSize { ready, most, no_most } = size;
    let asked = match (ready, most, no_most) {
        (Some(ready), None, true) => wire::ResizePool { ready, most: None },
        (Some(ready), Some(most), _) => wire::ResizePool { ready, most: Some(most) },
        _ => {
            let pool = client.pool(name).await?;
            let most = if no_most { None } else { most.or(pool.most) };
            wire::ResizePool { ready: ready.unwrap_or(pool.ready), most }
        }
    };
    Ok(client.resize_pool(name, &asked).await?)
}

fn create(options: CreateOptions) -> Result<wire::CreatePool, Problem> {
    let resources = wire::ResourcesRequest {
        cpu_millis: options.cpus,
        memory_bytes: options.memory,
        disk_bytes: options.disk,
        processes: None,
    };
    let is_limited = options.cpus.is_some() || options.memory.is_some() || options.disk.is_some();
    let image = match options.snapshot {
        Some(_) => None,
        None => Some(options.image.unwrap_or_else(|| super::sbx::IMAGE.to_owned())),
    };
    Ok(wire::CreatePool {
        name: options.name,
        image,
        snapshot: options.snapshot,
        start: options.start.asked(),
        resources: is_limited.then_some(resources),
        egress: values::with_headers(options.egress, options.header).map_err(|error| Problem::usage(error, ""))?,
        env: options.env.into_iter().collect(),
        labels: options.label.into_iter().collect(),
        ready: options.size.ready,
        most: options.size.most,
        ..wire::CreatePool::default()
    })
}

async fn claim(client: &Client, options: ClaimOptions, format: Format) -> Done {
    let asked = wire::ClaimRequest {
        name: options.name,
        env: options.env.into_iter().collect(),
        labels: options.label.into_iter().collect(),
        timeout_secs: options.timeout,
        idle_timeout_secs: options.idle_timeout,
        wake: options.wake.map(Into::into),
        port_access: options.ports.map(Into::into),
        max_wait_secs: options.max_wait,
        ..wire::ClaimRequest::default()
    };
    let progress = Progress::new("claiming a sandbox");
    let sandbox = client.claim(&options.pool, &asked).await?;
    drop(progress);
    super::sbx::show(&sandbox, format)
}

fn show(pool: &wire::Pool, format: Format) -> Result<(), Problem> {
    match format {
        Format::Json => output::json(pool),
        Format::Table => output::table(&TITLES, &[row(pool)]),
    }
}

fn row(pool: &wire::Pool) -> Vec<String> {
    vec![
        pool.name.clone(),
        format!("{} / {}", pool.waiting, pool.ready),
        pool.claimed.to_string(),
        pool.most.map_or_else(shown::none, |most| most.to_string()),
        pool.problem.clone().unwrap_or_else(shown::none),
    ]
}
