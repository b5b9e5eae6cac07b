//! A network namespace with a public address beside this host, which sandboxes can reach.

use std::process::{Child, Command, Stdio};

/// The part of the internet of one test. Dropping it removes it.
pub(crate) struct Internet {
    name: String,
    /// Its address.
    pub(crate) address: String,
    /// The address of this host in its network.
    pub(crate) host: String,
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
pub(crate) fn addresses_of_this_host() -> Vec<String> {
    let addresses = Command::new("hostname").arg("-I").output().unwrap();
    let text = String::from_utf8(addresses.stdout).unwrap();
    let lasting = |address: &&str| address.contains('.') && !address.starts_with(NETWORK);
    text.split_whitespace().filter(lasting).map(str::to_owned).collect()
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split_whitespace()).stderr(Stdio::null()).status().unwrap().success()
}

impl Internet {
    /// The name of its network namespace.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes one with a server. Several tests may do so at once: the name of the namespace is the
    /// lock on its addresses.
    pub(crate) fn new() -> Self {
        let slot = (0..64).find(|slot| ip(&format!("netns add inet-test-{slot}"))).expect("a free network");
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
            assert!(ip(&line), "ip {line}");
        }
        let mut server = Command::new("ip")
            .args(["netns", "exec", &name, "python3", "-c", SERVER])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        internet.server = Some(server);
        internet
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        // The link goes with the namespace.
        ip(&format!("netns del {}", self.name));
    }
}
