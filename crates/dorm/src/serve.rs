//! `dorm serve`: assembles the daemon, runs it until it is told to stop, and shuts it down.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dorm_client::OwnerSocket;
use dorm_engine::Engine;
use dorm_engine_gvisor::GvisorEngine;
use dorm_guest_ids::GuestIds;
use dorm_http::{Access, ConnectionLimits, Connections, Domains, Keys, Origin};
use dorm_lifecycle::{DoorId, Limits};
use dorm_net::{HostNetwork, NameServers, TrafficLimits};
use dorm_ports::LateVault;
use dorm_service::{Budgets, LostSecrets, ParkLimits, Parts, Retention, SecretsKey, Service, Settings};
use dorm_storage::{ImportLimits, Storage};
use dorm_store::{SteppedStore, Store};
use dorm_worker::Program;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bounds::BoundOptions;
use crate::confine;
use crate::data::Data;
use crate::data_disk::HostDisk;
use crate::doors::{self, Listeners};
use crate::guest_ids;
use crate::heap;
use crate::identity::{self, Identity};
use crate::owner_socket;
use crate::program::Runsc;
use crate::records::FiledStore;
use crate::shutdown::Shutdown;
use crate::steps::ReportedSteps;
use crate::tls::TlsOptions;
use crate::values::{self, DoorAddress, Kept};

/// The interval between two samples of what running sandboxes use, as clients of other servers
/// expect it.
const USAGE_EVERY: Duration = Duration::from_secs(5);

/// Returns the user and group id of workers: the last id of the guests' range. A file of an image
/// has this owner only if the image asks for it, and on the host the id belongs to no user.
const fn worker(ids: GuestIds) -> u32 {
    ids.base() + (GuestIds::COUNT - 1)
}

/// Options of `dorm serve`. Every option has a default that works.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeOptions {
    /// A file in TOML that sets options of this command, by their names without dashes in front.
    /// Flags and environment variables override it. `dorm config show` shows the result
    #[arg(long, env = "DORM_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The data directory, which contains everything the daemon keeps
    #[arg(long, env = "DORM_DATA", default_value = crate::data::DEFAULT)]
    pub(crate) data: PathBuf,
    /// Address to listen on, for HTTP and HTTPS. One that is not loopback needs --tls-cert, and
    /// answers only to HTTPS
    #[arg(long, env = "DORM_LISTEN", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    #[command(flatten)]
    tls: TlsOptions,
    /// Address to listen on for clients of E2B, or `off`. One that is not loopback needs
    /// --tls-cert. By default 127.0.0.1 with the port after that of --listen, so 127.0.0.1:7071
    #[arg(long, env = "DORM_E2B", value_name = "ADDRESS", value_parser = values::door_address)]
    e2b: Option<DoorAddress>,
    /// Directory of images; several daemons of one host can share it. By default in the data
    /// directory
    #[arg(long, env = "DORM_IMAGES")]
    images: Option<PathBuf>,
    /// A domain that the daemon serves in addition to localhost, such as that of a proxy in front
    /// of it. Ports of sandboxes are at PORT-ID.DOMAIN; requests for other host names are refused.
    /// May be given several times
    #[arg(long = "domain", env = "DORM_DOMAINS", value_name = "DOMAIN", value_delimiter = ',')]
    domains: Vec<String>,
    /// The origin of a web page whose scripts may call the API with a key, such as
    /// https://app.example.org. May be given several times
    #[arg(long = "cors-origin", env = "DORM_CORS_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    origins: Vec<Origin>,
    /// Access to the ports of sandboxes that do not set it at creation
    #[arg(long, env = "DORM_PORTS", value_enum, default_value = "public", value_name = "ACCESS")]
    ports: values::PortAccess,
    /// The runsc to use. `auto` is dorm-runsc if it is installed and works on this host, or else
    /// runsc. dorm-runsc maps the memory of a resumed sandbox from its sleep image and copies a
    /// page only when it is written
    #[arg(long, env = "DORM_RUNSC", default_value = "auto", value_name = "PATH")]
    runsc: Runsc,
    /// Another runsc, for sandboxes and snapshots whose memory the first cannot restore; no new
    /// sandbox starts with it
    #[arg(long, env = "DORM_RUNSC_ALSO", value_name = "PATH", value_delimiter = ':')]
    runsc_also: Vec<PathBuf>,
    /// How many warm containers of each kind (booted, empty, without a network) to keep ready. 0
    /// for none: everything works, but slower
    #[arg(long, env = "DORM_WARM_CONTAINERS", default_value_t = 1)]
    warm_containers: usize,
    /// How many suspended sandboxes may stay in memory
    #[arg(long, env = "DORM_PARK_COUNT", default_value_t = 64)]
    park_count: usize,
    /// How much memory suspended sandboxes may hold in total, in MiB. By default a quarter of the
    /// host's memory
    #[arg(long, env = "DORM_PARK_MEMORY_MIB")]
    park_memory_mib: Option<u64>,
    /// Maximum sum of the memory limits of running sandboxes, in MiB. By default one and a half
    /// times the host's memory, since few sandboxes use all of their limit
    #[arg(long, env = "DORM_MEMORY_BUDGET_MIB")]
    memory_budget_mib: Option<u64>,
    /// Maximum sum of the CPU limits of running sandboxes, such as 8 or 1.5. By default unlimited
    #[arg(long, env = "DORM_CPU_BUDGET", value_name = "COUNT", value_parser = values::cpus)]
    cpu_budget: Option<u32>,
    /// Maximum number of sandboxes, running or suspended. By default unlimited
    #[arg(long, env = "DORM_SANDBOX_BUDGET", value_name = "COUNT")]
    sandbox_budget: Option<u64>,
    /// How much of the host's memory must stay available for new work to be accepted, in MiB. By
    /// default a twentieth of it
    #[arg(long, env = "DORM_MEMORY_RESERVE_MIB")]
    memory_reserve_mib: Option<u64>,
    /// Maximum size of all sleep images and snapshots together, in MiB. By default limited only by
    /// the disk
    #[arg(long, env = "DORM_DISK_BUDGET_MIB")]
    disk_budget_mib: Option<u64>,
    /// How much of the disk must stay free for new work to be accepted, in MiB. By default a
    /// fiftieth of it, at most 1 GiB
    #[arg(long, env = "DORM_DISK_RESERVE_MIB")]
    disk_reserve_mib: Option<u64>,
    /// How long terminated sandboxes and finished operations stay on record, such as 30d or 12h, or
    /// `forever`. A terminated sandbox stays at least as long as its snapshots and the sandboxes
    /// created from it are on record
    #[arg(long, env = "DORM_KEEP_TERMINATED", default_value = "30d", value_name = "DURATION", value_parser = values::kept)]
    keep_terminated: Kept,
    /// How long events stay on record, such as 30d, or `forever`. An event that a webhook has not
    /// received stays three times as long
    #[arg(long, env = "DORM_KEEP_EVENTS", default_value = "30d", value_name = "DURATION", value_parser = values::kept)]
    keep_events: Kept,
    /// Start with an empty database in a data directory that has lost its own. Everything that the
    /// lost database recorded is left alone
    #[arg(long)]
    new_store: bool,
    /// Start in a copy of a data directory whose sandboxes still run on this host. They are left
    /// alone
    #[arg(long)]
    as_copy: bool,
    /// Overcommit ratio of the disk for the disks of running sandboxes and of volumes, such as 4 or
    /// 1.5. They take space only as they are written to, and few are filled. With 1 no sandbox ever
    /// waits for space
    #[arg(long, env = "DORM_DISK_OVERCOMMIT", value_name = "RATIO", default_value = "4", value_parser = values::thousandths)]
    disk_overcommit: u32,
    /// Pause sandboxes while less than this is free on the disk, in MiB, until twice as much is
    /// free. By default a twentieth of the disk, at most 512 MiB
    #[arg(long, env = "DORM_DISK_FLOOR_MIB")]
    disk_floor_mib: Option<u64>,
    /// Maximum total length of the files of an image, in MiB, holes included. A larger image is
    /// refused before it is written
    #[arg(long, env = "DORM_IMAGE_MIB_MAX", value_name = "MIB", default_value_t = 65_536)]
    image_mib_max: u64,
    /// Maximum length of one file of an image, in MiB
    #[arg(long, env = "DORM_IMAGE_FILE_MIB_MAX", value_name = "MIB", default_value_t = 65_536)]
    image_file_mib_max: u64,
    /// Maximum number of files, directories and links in an image
    #[arg(long, env = "DORM_IMAGE_ENTRIES_MAX", value_name = "COUNT", default_value_t = 2_000_000)]
    image_entries_max: u64,
    /// How many bytes one byte of a compressed layer or archive may expand to, beyond the first GiB
    #[arg(long, env = "DORM_IMAGE_RATIO_MAX", value_name = "RATIO", default_value_t = 1000)]
    image_ratio_max: u64,
    /// Disk space to hold in reserve, in MiB, so that a full disk can be emptied: only terminate,
    /// deletions, gc and the start of the daemon use it. 0 for none
    #[arg(long, env = "DORM_DISK_KEEP_MIB", default_value_t = 64)]
    disk_keep_mib: u64,
    /// How fast to read everything on the disk in the background and compare it with what was
    /// written, in MiB per second. Everything is read at most once a day, and other reads of the
    /// host go first. 0 for never
    #[arg(long, env = "DORM_SCRUB_MIB_PER_SECOND", value_name = "MIB", default_value_t = 4)]
    scrub_mib_per_second: u64,
    /// How many MiB per second each sandbox may send, and receive, over its network. 0 for no limit
    #[arg(long, env = "DORM_NETWORK_MIB_PER_SECOND", value_name = "MIB", default_value_t = 128)]
    network_mib_per_second: u64,
    /// How many packets per second each sandbox may send. 0 for no limit
    #[arg(long, env = "DORM_NETWORK_PACKETS_PER_SECOND", value_name = "COUNT", default_value_t = 100_000)]
    network_packets_per_second: u32,
    /// How many connections to other hosts each sandbox may have open. It may open half as many at
    /// once and a twentieth per second; the host's connection table must have room for twice as
    /// many per sandbox
    #[arg(long, env = "DORM_NETWORK_CONNECTIONS", value_name = "COUNT", default_value = "2048")]
    network_connections: NonZeroU32,
    /// How long the agent in a sandbox may take to answer before the sandbox is shown as
    /// unreachable, such as 30s
    #[arg(long, env = "DORM_AGENT_LIMIT", value_name = "TIME", default_value = "30s", value_parser = values::duration)]
    agent_limit: f64,
    /// End the run of a sandbox that has been unreachable for this long, such as 12h. By default
    /// never: it keeps running, and is asked again until it answers
    #[arg(long, env = "DORM_MAX_UNREACHABLE", value_name = "TIME", value_parser = values::duration)]
    max_unreachable: Option<f64>,
    /// How long a sandbox may take to start, in addition to the time for reading a memory snapshot
    #[arg(long, env = "DORM_START_LIMIT", value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    start_limit: f64,
    /// How long a suspend, resume, rewind or checkpoint may take, in addition to the time for its
    /// data
    #[arg(long, env = "DORM_OPERATION_LIMIT", value_name = "TIME", default_value = "300s", value_parser = values::duration)]
    operation_limit: f64,
    /// Minimum throughput of the disk, in MiB per second: each operation gets the time that its
    /// data takes at this rate
    #[arg(long, env = "DORM_MIN_THROUGHPUT_MIB", value_name = "MIB", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    min_throughput_mib: u64,
    /// How long the daemon may take to stop after SIGTERM or SIGINT, such as 60s. Operations under
    /// way are finished within this time; the next start recovers those that are not. A second
    /// signal ends the daemon at once
    #[arg(long, env = "DORM_SHUTDOWN_LIMIT", value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    shutdown_limit: f64,
    /// The first of the 65,536 user and group ids of the host that guest ids are mapped to. None of
    /// them may belong to anyone else in /etc/subuid, /etc/subgid, /etc/passwd or /etc/group. By
    /// default those of the data directory, and 1879048192 for a new one. They change only while no
    /// sandbox of the data directory runs
    #[arg(long, env = "DORM_GUEST_IDS", value_name = "BASE")]
    guest_ids: Option<GuestIds>,
    /// The file with the key that encrypts the secrets of sandboxes in records. It is created if it
    /// is missing. Keep it on another disk, and keep a copy: without it no secret can be read
    /// [default: secrets-key in the data directory]
    #[arg(long, env = "DORM_SECRETS_KEY", value_name = "FILE")]
    secrets_key: Option<PathBuf>,
    /// Start and resume sandboxes without those secrets that cannot be read because their key is
    /// lost. By default such sandboxes stay suspended
    #[arg(long, env = "DORM_WITHOUT_LOST_SECRETS")]
    without_lost_secrets: bool,
    #[command(flatten)]
    bounds: BoundOptions,
    /// Allow webhooks, and redirects of registries, to addresses in this network, such as
    /// 127.0.0.0/8; may be given several times. By default only public addresses are allowed.
    /// Registries that are named are contacted at any address
    #[arg(long, env = "DORM_ALLOW_NETWORK", value_name = "NETWORK", value_delimiter = ',')]
    allow_network: Vec<ipnet::IpNet>,
    /// A file in PEM with certificate authorities that hosts of header rules may have, besides the
    /// roots of this host; may be given several times
    #[arg(long, env = "DORM_UPSTREAM_CA", value_name = "FILE", value_delimiter = ',')]
    upstream_ca: Vec<PathBuf>,
    /// A name server for the names that sandboxes look up, such as 192.0.2.53 or 192.0.2.53:5353;
    /// may be given several times. By default those in /etc/resolv.conf
    #[arg(long, env = "DORM_NAME_SERVER", value_name = "ADDRESS", value_delimiter = ',', value_parser = values::name_server)]
    name_server: Vec<SocketAddr>,
    /// Report each step at this Unix socket and wait there to continue; for `dorm prove`.
    #[arg(long, hide = true, value_name = "SOCKET")]
    steps: Option<PathBuf>,
    /// Shift the wall clock by the seconds in this file; for `dorm prove`.
    #[arg(long, hide = true, value_name = "FILE")]
    clock_shift: Option<PathBuf>,
}

/// Runs the daemon until SIGTERM or SIGINT, and ends the process if stopping takes too long.
pub(crate) async fn serve(options: ServeOptions) -> Result<()> {
    options.tls.check(options.listen)?;
    let e2b = options.e2b.unwrap_or_else(|| beside(options.listen));
    e2b.0.map_or(Ok(()), |address| options.tls.check(address))?;
    if let Some(path) = &options.config {
        tracing::info!(path = %path.display(), "read the configuration file");
    }
    let domains = domains(&options)?;
    let shutdown = Shutdown::listen(length(options.shutdown_limit)).await?;
    let descriptors = confine::raise_descriptors();
    let mut data = Data::take(&options.data)?;
    let guest_ids = guest_ids::choose(data.path(), options.guest_ids)?;
    data.is_reachable(&images(&options, &data)?, guest_ids.ids)?;
    let budgets = budgets(&options, data.path())?;
    let disk = HostDisk::of(data.path(), options.disk_keep_mib.saturating_mul(1 << 20), budgets.disk_floor_bytes / 2);
    disk.make_room_to_start();
    data.note_holder()?;
    let key = data.key()?;
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {}; choose another address with --listen", options.listen))?;
    let e2b = listen_at(e2b).await?;
    guest_ids.record_new(data.path())?;
    let asked = identity::Asked { new_store: options.new_store, as_copy: options.as_copy };
    let (identity, store) = identity::open(data.path(), asked).await?;
    guest_ids.record_change(data.path())?;
    let _group = confine::group(&identity.prefix, options.bounds.daemon_memory_mib)?;
    let store = Arc::new(store);
    let filed = Arc::new(FiledStore::new(store.clone(), data.path()));
    let service = open(&options, &data, (identity, guest_ids.ids), filed.clone(), (budgets, disk)).await?;
    // Parts of the daemon have created directories in it.
    data.sync()?;
    let scheme = if options.listen.ip().is_loopback() { "http" } else { "https" };
    let address = format!("{scheme}://{}", listener.local_addr().context("get the listening address")?);
    data.note_address(&address)?;
    let owner = OwnerSocket::of(data.path()).and_then(|socket| Ok((owner_socket::listen(&socket)?, socket)));
    let (owner, socket) = owner.with_context(|| format!("cannot listen on api.sock in {}", data.path().display()))?;
    let others = others(e2b.as_ref())?;
    // In one line: programs that start the daemon wait for this line and read no other.
    let doors: String = others.iter().map(|(_, at)| format!(", clients of E2B: {at}")).collect();
    println!("dorm is ready on {address} (data in {}){doors}", data.path().display());
    let catching_up = tokio::spawn(catch_up(filed.clone()));
    tokio::spawn(heap::keep_small());
    prepare_images(&service);
    let stop = CancellationToken::new();
    let tls = options.tls.open(&service, &domains, options.listen)?;
    let access = Access::new(service.clone(), Keys::new([key]), domains);
    let access = Access { tls, origins: options.origins.clone(), doors: others, ..access };
    let connections = Connections::new(ConnectionLimits::of_descriptors(descriptors));
    let server = doors::open(access, Listeners { api: listener, owner, e2b }, connections, &stop);
    let server = tokio::spawn(server.run(shutdown.grace()));
    let until = shutdown.asked().await;
    stop.cancel();
    if let Err(error) = owner_socket::remove(&socket) {
        tracing::debug!(%error, "cannot remove the owner's socket; the next start removes it");
    }
    match tokio::time::timeout_at(until, server).await {
        Ok(ended) => ended.context("stop the API")?,
        Err(_) => tracing::warn!("closing API connections that did not end in time"),
    }
    let under_way = service.stop_within(until.saturating_duration_since(Instant::now())).await;
    if !under_way.is_empty() {
        Shutdown::leave(&under_way);
    }
    catching_up.abort();
    filed.close().await;
    store.close().await.context("close the store")?;
    tracing::info!("stopped; running sandboxes keep running");
    Ok(())
}

/// Returns the host names that the daemon answers to.
fn domains(options: &ServeOptions) -> Result<Domains> {
    Domains::with(options.domains.iter().cloned())
        .map_err(|wrong| anyhow::anyhow!("--domain '{wrong}' is not a domain, such as sandboxes.example.org"))
}

/// Returns the addresses of the doors beside the native API.
fn others(e2b: Option<&TcpListener>) -> Result<Vec<(DoorId, SocketAddr)>> {
    let of = |listener: &TcpListener| Ok((dorm_e2b::DOOR, listener.local_addr()?));
    e2b.into_iter().map(of).collect::<std::io::Result<_>>().context("get the listening address")
}

/// Returns the default address of a door beside the native API.
fn beside(api: SocketAddr) -> DoorAddress {
    let port = match api.port() {
        0 => Some(0),
        port => port.checked_add(1),
    };
    DoorAddress(port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// Listens at the address of a door, if it has one.
async fn listen_at(door: DoorAddress) -> Result<Option<TcpListener>> {
    let Some(address) = door.0 else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    listener.map(Some).with_context(|| {
        format!("cannot listen on {address} for clients of E2B; choose another address with --e2b, or `--e2b off`")
    })
}

async fn catch_up(filed: Arc<FiledStore>) {
    if let Err(error) = filed.catch_up().await {
        tracing::warn!(%error, "cannot update the record files; until the next start `dorm repair` may find outdated ones");
    }
}

async fn open(
    options: &ServeOptions,
    data: &Data,
    (identity, guest_ids): (Identity, GuestIds),
    store: Arc<dyn Store>,
    (budgets, disk): (Budgets, HostDisk),
) -> Result<Service> {
    let path = data.path();
    let steps = match &options.steps {
        Some(socket) => ReportedSteps::to(socket)?,
        None => dorm_steps::pass(),
    };
    let Identity { id, prefix } = identity;
    let owner = dorm_storage::Owner { id: id.clone(), data: path.to_owned() };
    let secrets_key = secrets_key(options, data, &*store).await?;
    let vault = LateVault::default();
    let network = network(options, path, (&id, &prefix), &steps, &vault)?;
    let network = HostNetwork::open(network).await?;
    let agent = dorm_agent_binary::install(path)?;
    let engine = GvisorEngine::open(dorm_engine_gvisor::Config {
        directory: path.join("gvisor"),
        runsc: options.runsc.programs(),
        runsc_also: options.runsc_also.iter().map(|path| crate::program::find(path)).collect(),
        agent,
        trial: dorm_agent_binary::TRIAL,
        network: Arc::new(network),
        warm_containers: options.warm_containers,
        cgroup_prefix: format!("dormouse-{prefix}"),
        guest_ids,
        owner: id,
        files: options.bounds.files(),
        io: options.bounds.io(),
        unlimited_disks: options.bounds.allow_unlimited_disks,
        steps: steps.clone(),
        reader: Some(Program::this(worker(guest_ids))),
    })
    .await?;
    let images = images(options, data)?;
    let storage = Storage::open_for(path, &images, guest_ids, steps.clone())?
        .limited(budgets.disk_reserve_bytes, image_limits(options))
        .read_by(Program::this(worker(guest_ids)))
        .owned_by(owner)?;
    let destinations = dorm_ports::Destinations::public_and(options.allow_network.iter().copied());
    let pulls = dorm_oci::Config {
        steps: steps.clone(),
        destinations: destinations.clone(),
        ..dorm_oci::Config::new(path.join("pulls"))
    };
    let registry = dorm_oci::open(pulls, storage.clone())
        .with_context(|| format!("cannot open {} for pulls", path.join("pulls").display()))?;
    let limiting = options.bounds.limiting();
    let volumes = dorm_service::Volumes::for_guests(path.join("volumes"), limiting, guest_ids, steps.clone());
    let store: Arc<dyn Store> = match options.steps {
        Some(_) => Arc::new(SteppedStore::new(store, steps)),
        None => store,
    };
    let engine: Arc<dyn Engine> = engine;
    let memory_bytes = options.park_memory_mib.map_or_else(|| host_memory() / 4, |mib| mib << 20);
    let parts = Parts {
        volumes,
        store,
        engine,
        storage,
        clock: crate::clock::clock(options.clock_shift.as_ref()),
        settings: Settings {
            park: ParkLimits { memory_bytes, count: options.park_count },
            budgets,
            registry: Some(registry.shared()),
            webhooks: destinations,
            retention: Retention { terminated: options.keep_terminated.0, events: options.keep_events.0 },
            data_disk: Some(Arc::new(disk)),
            scrub_bytes_per_second: Some(options.scrub_mib_per_second.saturating_mul(1 << 20)).filter(|pace| *pace > 0),
            limits: limits(options),
            agent: length(options.agent_limit),
            port_access: match options.ports {
                values::PortAccess::Public => dorm_lifecycle::PortAccess::Public,
                values::PortAccess::Private => dorm_lifecycle::PortAccess::Private,
            },
            port_secret: Some(dorm_service::PortSecret(data.port_secret()?)),
            secrets_key: Some(secrets_key),
            roots: roots_of_host(),
            usage_every: Some(USAGE_EVERY),
            max_unreachable: options.max_unreachable.map(length),
            ..Settings::default()
        },
    };
    let (service, report) = Service::open(parts).await?;
    vault.open(Arc::new(service.vault()));
    for line in &report.lines {
        tracing::info!("{line}");
    }
    tracing::info!(sandboxes = report.sandboxes, runs = report.runs, "recovered");
    Ok(service)
}

fn network(
    options: &ServeOptions,
    data: &Path,
    (owner, prefix): (&str, &str),
    steps: &Arc<dyn dorm_steps::Steps>,
    vault: &LateVault,
) -> Result<dorm_net::Config> {
    let mut network = dorm_net::Config::new(data.join("network"), prefix.to_owned());
    network.owner = owner.to_owned();
    network.steps = steps.clone();
    network.limits = TrafficLimits {
        bytes_per_second: NonZeroU64::new(options.network_mib_per_second.saturating_mul(1 << 20)),
        packets_per_second: NonZeroU32::new(options.network_packets_per_second),
        connections: options.network_connections,
    };
    network.vault = vault.clone();
    if !options.name_server.is_empty() {
        network.dns = NameServers::Fixed(options.name_server.clone());
    }
    for path in &options.upstream_ca {
        network.also_trusted.append(&mut authorities(path)?);
    }
    Ok(network)
}

/// Returns the certificates in a file in PEM.
fn authorities(path: &Path) -> Result<Vec<Vec<u8>>> {
    let read = || format!("cannot read the certificates in --upstream-ca {}", path.display());
    let found = CertificateDer::pem_file_iter(path).with_context(read)?;
    let found: Vec<_> = found.map(|one| Ok(one?.to_vec())).collect::<Result<_>>().with_context(read)?;
    match found.is_empty() {
        true => bail!("--upstream-ca {} contains no certificate in PEM", path.display()),
        false => Ok(found),
    }
}

/// Returns the roots that this host trusts, in PEM, if it has them in a usual place.
fn roots_of_host() -> Option<Arc<str>> {
    let places = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
    places.iter().find_map(|path| std::fs::read_to_string(path).ok()).map(Arc::from)
}

/// Returns the key that encrypts secrets. A new one is created only if no stored secret needs an
/// older key, or if such secrets may be lost.
async fn secrets_key(options: &ServeOptions, data: &Data, store: &dyn Store) -> Result<SecretsKey> {
    let path = options.secrets_key.clone().unwrap_or_else(|| data.secrets_key_path());
    let lost = if options.without_lost_secrets { LostSecrets::LeaveOut } else { LostSecrets::Refuse };
    if let Some(key) = crate::data::read_secrets_key(&path)? {
        return Ok(SecretsKey::new(key, lost));
    }
    let (living, _) = store.living_and_unreadable().await?;
    let locked = living.iter().filter(|record| SecretsKey::seals(&record.sandbox.spec.secrets)).count();
    let of_projects: usize = store.projects().await?.iter().map(|project| project.secrets.len()).sum();
    if locked + of_projects > 0 && lost == LostSecrets::Refuse {
        bail!(
            "{} is missing, but it encrypts secrets of living sandboxes ({locked}) and of projects ({of_projects}): put it back, or give its path with \
             --secrets-key; if it is lost, --without-lost-secrets creates a new one and resumes them without those secrets",
            path.display()
        );
    }
    Ok(SecretsKey::new(data.make_secrets_key(&path)?, lost))
}

/// Returns the absolute path of the images, since engine processes have another working directory.
fn images(options: &ServeOptions, data: &Data) -> Result<PathBuf> {
    let images = options.images.clone().unwrap_or_else(|| data.path().join("images"));
    std::path::absolute(&images).with_context(|| format!("cannot find {}", images.display()))
}

fn host_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

fn budgets(options: &ServeOptions, data: &Path) -> Result<Budgets> {
    let disk =
        rustix::fs::statvfs(data).with_context(|| format!("cannot get the size of the disk of {}", data.display()))?;
    let disk_bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
    let memory = host_memory();
    let mib = |asked: Option<u64>| asked.map(|mib| mib.saturating_mul(1 << 20));
    Ok(Budgets {
        memory_bytes: Some(mib(options.memory_budget_mib).unwrap_or(memory / 2 * 3)),
        memory_reserve_bytes: mib(options.memory_reserve_mib).unwrap_or(memory / 20),
        cpu_millis: options.cpu_budget.map(u64::from),
        sandboxes: options.sandbox_budget,
        disk_bytes: mib(options.disk_budget_mib),
        disks_bytes: Some(disk_bytes / 1000 * u64::from(options.disk_overcommit)),
        disk_floor_bytes: mib(options.disk_floor_mib).unwrap_or((disk_bytes / 20).min(512 << 20)),
        disk_reserve_bytes: mib(options.disk_reserve_mib).unwrap_or((disk_bytes / 50).min(1 << 30)),
    })
}

fn image_limits(options: &ServeOptions) -> ImportLimits {
    ImportLimits {
        entries: options.image_entries_max,
        bytes: options.image_mib_max.saturating_mul(1 << 20),
        file_bytes: options.image_file_mib_max.saturating_mul(1 << 20),
        ratio: options.image_ratio_max,
    }
}

/// Returns a duration of at most ten years.
fn length(seconds: f64) -> Duration {
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
}

fn limits(options: &ServeOptions) -> Limits {
    let operation = length(options.operation_limit);
    Limits {
        start: length(options.start_limit),
        suspend: operation,
        resume: operation,
        snapshot: operation,
        bytes_per_second: options.min_throughput_mib.saturating_mul(1 << 20),
        ..Limits::default()
    }
}

/// Prepares every tagged image in the background, so that the next create from it is fast.
fn prepare_images(service: &Service) {
    let service = service.clone();
    tokio::spawn(async move {
        match service.storage().images().await {
            Ok(images) => {
                for image in images.into_iter().filter(|image| !image.tags.is_empty()) {
                    service.prepare(&image.digest);
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list the images to prepare"),
        }
    });
}
