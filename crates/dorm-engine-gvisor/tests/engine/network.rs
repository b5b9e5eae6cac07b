//! Networks for tests: none at all, and plain pairs of namespaces without any rules.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use async_trait::async_trait;
use dorm_engine::{BoxStream, Lease, LeaseId, Network, NetworkError, PortStream, Traffic};
pub(crate) use dorm_engine_gvisor::NoNetwork;
use dorm_lifecycle::Egress;
use tokio_util::sync::CancellationToken;

use crate::host::lease_like;

/// Pairs of namespaces, all with the same addresses, that lead nowhere else.
pub(crate) struct Pairs {
    prefix: String,
    taken: Mutex<Vec<(Lease, CancellationToken)>>,
}

impl Pairs {
    pub(crate) fn new() -> Self {
        let mut bytes = [0_u8; 4];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
        Self { prefix: format!("dt{:08x}", u32::from_ne_bytes(bytes)), taken: Mutex::default() }
    }

    fn inside(&self, id: u16) -> String {
        format!("{}s{id}", self.prefix)
    }

    fn gateway(&self, id: u16) -> String {
        format!("{}g{id}", self.prefix)
    }

    fn make(&self, id: u16) -> Lease {
        let (inside, gateway) = (self.inside(id), self.gateway(id));
        ip(&["netns", "add", &inside]);
        ip(&["netns", "add", &gateway]);
        ip(&["-n", &gateway, "link", "add", "gw", "type", "veth", "peer", "name", "eth0", "netns", &inside]);
        ip(&["-n", &inside, "link", "set", "eth0", "address", "02:00:00:00:01:02"]);
        ip(&["-n", &gateway, "addr", "add", "10.0.0.1/30", "dev", "gw"]);
        ip(&["-n", &inside, "addr", "add", "10.0.0.2/30", "dev", "eth0"]);
        ip(&["-n", &gateway, "link", "set", "gw", "up"]);
        ip(&["-n", &inside, "link", "set", "eth0", "up"]);
        lease_like(id, Path::new("/run/netns").join(inside))
    }

    /// The namespaces that exist.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.to_str().unwrap().contains(&self.prefix)).collect()
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        for path in self.left() {
            let name = path.file_name().unwrap().to_str().unwrap();
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn check(egress: &Egress) -> Result<(), NetworkError> {
    let operation = "set the egress of a test network".to_owned();
    egress.check().map_err(|error| NetworkError::Failed { operation, source: error.into() })
}

#[async_trait]
impl Network for Pairs {
    async fn lease(&self, egress: &Egress) -> Result<Lease, NetworkError> {
        check(egress)?;
        let mut taken = self.taken.lock().unwrap();
        let id = (1..).find(|id| taken.iter().all(|(lease, _)| lease.id.0 != *id)).unwrap();
        let lease = self.make(id);
        taken.push((lease.clone(), CancellationToken::new()));
        Ok(lease)
    }

    async fn allow(&self, lease: LeaseId, egress: &Egress) -> Result<(), NetworkError> {
        let known = self.taken.lock().unwrap().iter().any(|(known, _)| known.id == lease);
        if !known {
            return Err(NetworkError::NoLease(lease));
        }
        check(egress)
    }

    async fn connect(&self, lease: LeaseId, port: u16) -> Result<BoxStream, NetworkError> {
        let find = |(known, released): &(Lease, CancellationToken)| (known.id == lease).then(|| released.clone());
        let released = self.taken.lock().unwrap().iter().find_map(find).ok_or(NetworkError::NoLease(lease))?;
        let namespace = std::fs::File::open(Path::new("/run/netns").join(self.gateway(lease.0))).unwrap();
        let socket = std::thread::spawn(move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind).unwrap();
            let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), port));
            std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(60))
        });
        match socket.join().unwrap() {
            Ok(socket) => {
                socket.set_nonblocking(true).unwrap();
                Ok(Box::new(PortStream::new(tokio::net::TcpStream::from_std(socket).unwrap(), released)))
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Err(NetworkError::Refused(port)),
            Err(error) => Err(NetworkError::Failed { operation: format!("connect to {port}"), source: error.into() }),
        }
    }

    async fn traffic(&self, _: LeaseId) -> Result<Traffic, NetworkError> {
        Ok(Traffic::default())
    }

    async fn release(&self, lease: LeaseId) -> Result<(), NetworkError> {
        let mut taken = self.taken.lock().unwrap();
        if let Some(at) = taken.iter().position(|(known, _)| known.id == lease) {
            ip(&["netns", "del", &self.gateway(lease.0)]);
            ip(&["netns", "del", &self.inside(lease.0)]);
            taken.remove(at).1.cancel();
        }
        Ok(())
    }

    async fn leases(&self) -> Result<Vec<Lease>, NetworkError> {
        Ok(self.taken.lock().unwrap().iter().map(|(lease, _)| lease.clone()).collect())
    }
}
