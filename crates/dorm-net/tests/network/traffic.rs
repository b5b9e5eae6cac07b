//! The limits on the traffic of one sandbox.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::time::{Duration, Instant};

use dorm_engine::{Network, NetworkError};
use dorm_lifecycle::Egress;
use dorm_net::{HostNetwork, TrafficLimits};
use rustix::net::sockopt;
use tokio::io::AsyncReadExt;

use crate::support::{
    DEADLINE, Host, PORT, PUBLIC, connect, datagrams, echo, inside, lease, on_a_host, reaches, received_in_vain, say,
};

const ANY: std::net::Ipv4Addr = std::net::Ipv4Addr::UNSPECIFIED;

async fn open(host: &Host, limits: TrafficLimits) -> HostNetwork {
    let mut config = host.config("a");
    config.limits = limits;
    HostNetwork::open(config).await.unwrap()
}

#[test]
fn neither_direction_is_faster_than_its_limit() {
    const RATE: u64 = 2 << 20;
    const BYTES: usize = 4 << 20;
    on_a_host(async |host| {
        echo(&host.internet(), ANY, PORT);
        let limits = TrafficLimits { bytes_per_second: NonZeroU64::new(RATE), ..TrafficLimits::default() };
        let network = open(&host, limits).await;
        let lease = lease(&network, Egress::Public).await;
        let begun = Instant::now();
        let stream = connect(&lease.namespace, PUBLIC, PORT).await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        let sending =
            tokio::spawn(async move { tokio::io::copy(&mut vec![7; BYTES].as_slice(), &mut writing).await.unwrap() });
        let mut heard = vec![0; BYTES];
        tokio::time::timeout(2 * DEADLINE, reading.read_exact(&mut heard)).await.unwrap().unwrap();
        sending.await.unwrap();
        // Everything beyond the burst has waited. A slow host only takes longer.
        assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());

        let counted = network.traffic(lease.id).await.unwrap();
        assert!(counted.sent_bytes > BYTES as u64 && counted.received_bytes > BYTES as u64, "{counted:?}");
        assert!(counted.sent_bytes < 2 * BYTES as u64, "{counted:?}");
        assert_eq!(counted.limit_bytes_per_second, Some(RATE));
        network.release(lease.id).await.unwrap();
        assert!(matches!(network.traffic(lease.id).await, Err(NetworkError::NoLease(_))));
    });
}

/// The number of connections in the table of a namespace.
fn connections(namespace: &Path) -> usize {
    let read = || std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").unwrap();
    inside(namespace, read).trim().parse().unwrap()
}

#[test]
fn a_flood_of_connections_fills_no_table_and_stops_no_neighbour() {
    const CONNECTIONS: u32 = 64;
    on_a_host(async |host| {
        echo(&host.internet(), ANY, PORT);
        let connections_max = NonZeroU32::new(CONNECTIONS).unwrap();
        let network = open(&host, TrafficLimits { connections: connections_max, ..TrafficLimits::default() }).await;
        let (hostile, neighbour) = (lease(&network, Egress::Public).await, lease(&network, Egress::Public).await);
        let mut refused = 0;
        for _ in 0..400 {
            match connect(&hostile.namespace, PUBLIC, PORT).await {
                // Closed by a reset: it no longer counts as a connection, but stays in the tables
                // for a while.
                Ok(stream) => sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "it fails at once");
                    refused += 1;
                }
            }
        }
        let mut sockets = Vec::new();
        for port in 0..400 {
            let socket = datagrams(&hostile.namespace, PUBLIC, 20_000 + port);
            let _ = socket.send(b"hello").await;
            sockets.push(socket);
        }
        let most = 2 * usize::try_from(CONNECTIONS).unwrap();
        assert!(connections(&host.itself()) <= most, "{} of the host", connections(&host.itself()));
        let gateway = crate::support::gateway(&hostile);
        assert!(connections(&gateway) <= most, "{} of the gateway", connections(&gateway));
        assert!(reaches(&neighbour.namespace, PUBLIC, PORT).await);
        assert!(refused > 0);
    });
}

/// The seconds that closed connections stay in the table of a namespace.
fn closed_for(namespace: &Path) -> Vec<u32> {
    let table = inside(namespace, || std::fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap());
    let closed = table.lines().filter(|line| line.contains(" CLOSE "));
    closed.map(|line| line.split_whitespace().nth(4).unwrap().parse().unwrap()).collect()
}

#[test]
fn connections_that_are_over_leave_the_tables_soon() {
    on_a_host(async |host| {
        echo(&host.internet(), ANY, PORT);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        let mut stream = connect(&lease.namespace, PUBLIC, PORT).await.unwrap();
        say(&mut stream, b"hello").await.unwrap();
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        for namespace in [host.itself(), crate::support::gateway(&lease)] {
            let seconds = closed_for(&namespace);
            assert!(!seconds.is_empty() && seconds.iter().all(|seconds| *seconds <= 5), "{seconds:?}");
        }
    });
}

#[test]
fn many_datagrams_of_one_flow_are_one_connection() {
    on_a_host(async |host| {
        let connections = NonZeroU32::new(4).unwrap();
        let network = open(&host, TrafficLimits { connections, ..TrafficLimits::default() }).await;
        let lease = lease(&network, Egress::Public).await;
        crate::support::run("ip netns exec internet nft add table ip silent");
        crate::support::run(
            "ip netns exec internet nft add chain ip silent input { type filter hook input priority 0 ; }",
        );
        crate::support::run(&format!(
            "ip netns exec internet nft add rule ip silent input udp dport {PORT} counter drop"
        ));
        let socket = datagrams(&lease.namespace, PUBLIC, PORT);
        for _ in 0..50 {
            socket.send(b"hello").await.unwrap();
        }
        let shown = crate::support::said("ip netns exec internet nft list table ip silent");
        assert!(shown.contains("counter packets 50"), "{shown}");
    });
}

#[test]
fn packets_beyond_the_limit_do_not_leave_the_sandbox() {
    on_a_host(async |host| {
        let packets_per_second = NonZeroU32::new(1);
        let network = open(&host, TrafficLimits { packets_per_second, ..TrafficLimits::default() }).await;
        let lease = lease(&network, Egress::Public).await;
        let before = received_in_vain(&host);
        let socket = datagrams(&lease.namespace, PUBLIC, PORT);
        for _ in 0..300 {
            let _ = socket.send(b"hello").await;
        }
        assert!(received_in_vain(&host) - before < 150);
    });
}

#[test]
fn without_limits_everything_passes() {
    on_a_host(async |host| {
        echo(&host.internet(), ANY, PORT);
        let limits = TrafficLimits { bytes_per_second: None, packets_per_second: None, ..TrafficLimits::default() };
        let network = open(&host, limits).await;
        let lease = lease(&network, Egress::Public).await;
        let mut stream = connect(&lease.namespace, PUBLIC, PORT).await.unwrap();
        say(&mut stream, &vec![7; 64 << 10]).await.unwrap();
        assert_eq!(network.traffic(lease.id).await.unwrap().limit_bytes_per_second, None);
    });
}
