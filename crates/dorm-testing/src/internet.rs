//! A network namespace with a public address beside this host, which sandboxes can reach.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The part of the internet of one test. Dropping it removes it.
pub struct Internet {
    name: String,
    /// Its address.
    pub address: String,
    /// The address of this host in its network.
    pub host: String,
    server: Option<Child>,
}

/// How the addresses of all internets of tests begin.
const NETWORK: &str = "203.0.113.";

/// Sends zeros to every client that connects to port 8000, as long as it is connected.
const SERVER: &str = "import socket,threading\n\
    def serve(peer):\n\
    \x20   try:\n\
    \x20       while True: peer.sendall(bytes(65536))\n\
    \x20   except OSError: peer.close()\n\
    listening = socket.create_server(('0.0.0.0', 8000)); print('ready', flush=True)\n\
    while True: threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()\n";

/// Returns the IPv4 addresses of this host, without those that the internets of tests give it: they
/// are of this host only until such a test ends.
///
/// # Errors
/// If `hostname` cannot be run.
pub fn addresses_of_this_host() -> Result<Vec<String>> {
    let addresses = Command::new("hostname").arg("-I").output().context("run hostname")?;
    let text = String::from_utf8_lossy(&addresses.stdout).into_owned();
    let lasting = |address: &&str| address.contains('.') && !address.starts_with(NETWORK);
    Ok(text.split_whitespace().filter(lasting).map(str::to_owned).collect())
}

fn ip(line: &str) -> bool {
    let status = Command::new("ip").args(line.split_whitespace()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Internet {
    /// The name of its network namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes one with a server. Several tests may do so at once: the name of the namespace is the
    /// lock on its addresses.
    ///
    /// # Errors
    /// Without the permission to make network namespaces, or without python3.
    pub fn new() -> Result<Self> {
        let slot = (0..64).find(|slot| ip(&format!("netns add inet-test-{slot}"))).context("find a free network")?;
        let (name, first) = (format!("inet-test-{slot}"), slot * 4);
        let (host, address) = (format!("{NETWORK}{}", first + 1), format!("{NETWORK}{}", first + 2));
        let mut internet = Self { name: name.clone(), address: address.clone(), host: host.clone(), server: None };
        for line in [
            format!("link add inett{slot} type veth peer name eth0 netns {name}"),
            format!("addr add {host}/30 dev inett{slot}"),
            format!("link set inett{slot} up"),
            format!("-n {name} addr add {address}/30 dev eth0"),
            format!("-n {name} link set eth0 up"),
            format!("-n {name} link set lo up"),
            format!("-n {name} route add default via {host}"),
        ] {
            ensure!(ip(&line), "ip {line}");
        }
        let (server, _) = internet.serve(&["python3", "-c", SERVER])?;
        internet.server = Some(server);
        Ok(internet)
    }

    /// Starts a program in it. Returns when the program has printed `ready`, with what it prints
    /// from then on.
    ///
    /// # Errors
    /// If the program cannot be started, or prints something else.
    pub fn serve(&self, program: &[&str]) -> Result<(Child, impl Iterator<Item = String> + Send + use<>)> {
        // `ip netns exec` would copy all mounts of the host for as long as the program runs, also
        // those of other tests, which could then not be undone.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).args(program).stdout(Stdio::piped());
        let mut server = command.spawn().with_context(|| format!("start {program:?}"))?;
        let mut lines = BufReader::new(server.stdout.take().context("its output")?).lines().map_while(Result::ok);
        let first = lines.next();
        if first.as_deref() != Some("ready") {
            end(&mut server);
        }
        ensure!(first.as_deref() == Some("ready"), "{program:?} said {first:?}");
        Ok((server, lines))
    }
}

/// Ends a server.
pub(crate) fn end(server: &mut Child) {
    let _ = server.kill();
    let _ = server.wait();
}

impl Drop for Internet {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            end(server);
        }
        // The link first: the kernel removes it some time after the namespace, whose name another
        // test may have by then.
        ip(&format!("link del {}", self.name.replace("inet-test-", "inett")));
        ip(&format!("netns del {}", self.name));
    }
}
