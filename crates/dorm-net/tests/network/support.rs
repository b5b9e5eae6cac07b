//! A host for one test, with an internet beside it, and ways to connect from and to any namespace.
//!
//! ```text
//! sandboxes ── the host 203.0.113.1 ── the internet 203.0.113.2, 198.51.100.10, 198.51.100.11, 192.168.77.5, 100.64.0.5
//! ```

use std::fs::File;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dorm_engine::{Lease, Network};
use dorm_lifecycle::{Egress, EgressDefault, EgressRule, EgressRules, Verdict};
use dorm_net::{Config, HostNetwork, NameServers};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

/// Longer than anything takes on the slowest host.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub(crate) const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub(crate) const PUBLIC_TOO: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);
pub(crate) const PRIVATE: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 168, 77, 5), Ipv4Addr::new(100, 64, 0, 5)];
pub(crate) const PORT: u16 = 8080;

/// The host of one test.
pub(crate) struct Host {
    notes: tempfile::TempDir,
}

/// Runs the scenario on a host of its own, on one thread and on those that it starts.
pub(crate) fn on_a_host<F: Future<Output = ()>>(scenario: impl FnOnce(Host) -> F + Send + 'static) {
    // The thread has the test's name, by which it may be skipped.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let Some(host) = Host::new() else {
            dorm_skip::skip("it needs root and the right to make network namespaces");
            return;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(4 * DEADLINE, scenario(host)).await.expect("the scenario came to an end")
        });
    });
    let thread = thread.unwrap();
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

impl Host {
    #[allow(unsafe_code)]
    fn new() -> Option<Self> {
        // SAFETY: neither flag unshares file descriptors.
        match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) } {
            Err(rustix::io::Errno::PERM) => return None,
            done => done.unwrap(),
        }
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
        mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
        mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).unwrap();
        run("ip link set lo up");
        run("ip netns add internet");
        run("ip link add net0 mtu 1400 type veth peer name eth0 mtu 1400 netns internet");
        run("ip addr add 203.0.113.1/24 dev net0");
        run("ip link set net0 up");
        run("ip -n internet link set eth0 up");
        run("ip -n internet link set lo up");
        run("ip -n internet addr add 203.0.113.2/24 dev eth0");
        for address in [PUBLIC, PUBLIC_TOO].iter().chain(&PRIVATE) {
            run(&format!("ip -n internet addr add {address}/32 dev eth0"));
        }
        run("ip route add default via 203.0.113.2");
        Some(Self { notes: tempfile::tempdir_in("/run").unwrap() })
    }

    /// The configuration of a daemon with this prefix.
    pub(crate) fn config(&self, prefix: &str) -> Config {
        let mut config = Config::new(self.directory(prefix), prefix);
        config.dns = NameServers::Fixed(vec![]);
        config
    }

    pub(crate) fn directory(&self, prefix: &str) -> PathBuf {
        self.notes.path().join(prefix)
    }

    pub(crate) async fn open(&self, prefix: &str) -> HostNetwork {
        HostNetwork::open(self.config(prefix)).await.unwrap()
    }

    /// The namespace of the internet.
    pub(crate) fn internet(&self) -> PathBuf {
        "/run/netns/internet".into()
    }

    /// The namespace of the host.
    pub(crate) fn itself(&self) -> PathBuf {
        "/proc/thread-self/ns/net".into()
    }

    /// Everything that a lease could leave behind on the host.
    pub(crate) fn traces(&self) -> Vec<String> {
        let shown = [said("ip -o link"), said("ip netns"), said("nft list tables")].concat();
        let lines = shown.lines().map(|line| line.split('@').next().unwrap_or_default().to_owned());
        lines.filter(|line| line.contains("dorm")).collect()
    }
}

/// A lease whose packets to `egress` are allowed.
pub(crate) async fn lease(network: &HostNetwork, egress: Egress) -> Lease {
    network.lease(&egress).await.unwrap()
}

pub(crate) fn only(networks: &[&str]) -> Egress {
    Egress::Allow(networks.iter().map(|&network| network.to_owned()).collect())
}

/// Rules such as `deny 10.0.0.0/8`.
pub(crate) fn rules(given: &[&str], default: EgressDefault) -> Egress {
    let rule = |text: &&str| {
        let (word, to) = text.split_once(' ').unwrap();
        let verdict = if word == "allow" { Verdict::Allow } else { Verdict::Deny };
        EgressRule { verdict, to: to.to_owned() }
    };
    Egress::Rules(EgressRules { rules: given.iter().map(rule).collect(), default, headers: Vec::new() })
}

/// The gateway of a lease.
pub(crate) fn gateway(lease: &Lease) -> PathBuf {
    format!("{}-gw", lease.namespace.display()).into()
}

/// Runs a command line without quotes.
pub(crate) fn run(line: &str) {
    said(line);
}

/// The output of a command line without quotes.
pub(crate) fn said(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `work` in a namespace, on a thread that ends with it.
pub(crate) fn inside<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> T {
    // Opened here: `thread-self` means the caller.
    let file = File::open(namespace).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

fn socket(namespace: &Path, kind: SocketType) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    inside(namespace, || socket_with(AddressFamily::INET, kind, flags, None).unwrap())
}

/// Listens in a namespace.
pub(crate) fn listen(namespace: &Path, address: Ipv4Addr, port: u16) -> TcpListener {
    let socket = socket(namespace, SocketType::STREAM);
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from((address, port))).unwrap();
    rustix::net::listen(&socket, 64).unwrap();
    TcpListener::from_std(socket.into()).unwrap()
}

/// Listens in a namespace and sends back everything it receives, as long as the test runs.
pub(crate) fn echo(namespace: &Path, address: Ipv4Addr, port: u16) {
    let listener = listen(namespace, address, port);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reading, mut writing) = stream.split();
                let _ = tokio::io::copy(&mut reading, &mut writing).await;
            });
        }
    });
}

/// Connects from a namespace. Neither success nor failure may take long.
pub(crate) async fn connect(namespace: &Path, address: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let socket = TcpSocket::from_std_stream(socket(namespace, SocketType::STREAM).into());
    let connecting = socket.connect((address, port).into());
    tokio::time::timeout(DEADLINE, connecting).await.expect("connecting was answered")
}

/// A datagram socket of a namespace that only talks to one address.
pub(crate) fn datagrams(namespace: &Path, address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = socket(namespace, SocketType::DGRAM);
    rustix::net::connect(&socket, &SocketAddr::from((address, port))).unwrap();
    UdpSocket::from_std(socket.into()).unwrap()
}

/// Sends a datagram and waits for the answer.
pub(crate) async fn ask(socket: &UdpSocket, question: &[u8]) -> io::Result<Vec<u8>> {
    socket.send(question).await?;
    let mut answer = [0; 512];
    let length = tokio::time::timeout(DEADLINE, socket.recv(&mut answer)).await.expect("the question was answered")?;
    Ok(answer[..length].to_vec())
}

/// Whether an echo answers there (`true`), or the connection is refused. Anything else, such as
/// silence, fails the test.
pub(crate) async fn reaches(namespace: &Path, address: Ipv4Addr, port: u16) -> bool {
    match connect(namespace, address, port).await {
        Ok(mut stream) => {
            say(&mut stream, b"hello").await.unwrap();
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{address}:{port}");
            false
        }
    }
}

/// Sends text to an echo and waits for it.
pub(crate) async fn say(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), text: &[u8]) -> io::Result<()> {
    stream.write_all(text).await?;
    let mut heard = vec![0; text.len()];
    tokio::time::timeout(DEADLINE, stream.read_exact(&mut heard)).await.expect("the echo answered")?;
    assert_eq!(heard, text);
    Ok(())
}

/// Waits until the condition holds.
pub(crate) async fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The number of datagrams to ports of the internet where nothing listens.
pub(crate) fn received_in_vain(host: &Host) -> u64 {
    let text = inside(&host.internet(), || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let line = text.lines().filter(|line| line.starts_with("Udp:")).nth(1).unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}
