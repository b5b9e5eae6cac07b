//! The host forwards packets of sandboxes, is no router for others, and is afterwards as before.

use std::path::Path;
use std::time::Duration;

use dorm_engine::Network;
use dorm_lifecycle::Egress;
use dorm_net::HostNetwork;

use crate::support::{PORT, PUBLIC, echo, lease, on_a_host, reaches, run, wait_for};

const RECORD: &str = "/run/dormouse/forwarding";
const WHOLE_HOST: &str = "/proc/sys/net/ipv4/ip_forward";

fn switch(device: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{device}/forwarding")
}

fn is_on(path: impl AsRef<Path>) -> bool {
    std::fs::read_to_string(path).unwrap().trim() == "1"
}

/// Makes the host no router, with an unused interface.
fn no_router() {
    std::fs::write(WHOLE_HOST, "0").unwrap();
    run("ip link add other0 type veth peer name other1");
    run("ip link set other0 up");
    assert!(!is_on(switch("net0")));
}

#[test]
fn a_host_that_is_no_router_becomes_none() {
    on_a_host(async |host| {
        no_router();
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(!is_on(WHOLE_HOST) && !is_on(switch("other0")) && is_on(switch("net0")));
        network.release(lease.id).await.unwrap();
        assert!(!is_on(WHOLE_HOST) && !is_on(switch("net0")));
        assert!(!Path::new(RECORD).exists());
    });
}

#[test]
fn the_last_daemon_switches_it_off() {
    on_a_host(async |host| {
        no_router();
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let (one, two) = (host.open("a").await, host.open("b").await);
        let (first, second) = (lease(&one, Egress::Public).await, lease(&two, Egress::Public).await);
        one.release(first.id).await.unwrap();
        assert!(reaches(&second.namespace, PUBLIC, PORT).await);
        two.release(second.id).await.unwrap();
        assert!(!is_on(switch("net0")) && !Path::new(RECORD).exists());
    });
}

#[test]
fn a_host_that_somebody_makes_a_router_meanwhile_stays_one() {
    on_a_host(async |host| {
        no_router();
        let network = host.open("a").await;
        let lease = network.lease(&Egress::None).await.unwrap();
        std::fs::write(WHOLE_HOST, "1").unwrap();
        network.release(lease.id).await.unwrap();
        assert!(is_on(WHOLE_HOST) && is_on(switch("net0")) && !Path::new(RECORD).exists());
    });
}

#[test]
fn what_was_recorded_and_not_done_or_is_gone_does_not_matter() {
    on_a_host(async |host| {
        no_router();
        std::fs::create_dir_all("/run/dormouse").unwrap();
        std::fs::write(RECORD, "net0\ngone0\n../../../../../run/x\nall").unwrap();
        std::fs::write("/run/x", "").unwrap();
        let network = host.open("a").await;
        let lease = network.lease(&Egress::None).await.unwrap();
        network.release(lease.id).await.unwrap();
        assert!(!is_on(switch("net0")) && !Path::new(RECORD).exists());
        assert_eq!(std::fs::read_to_string("/run/x").unwrap(), "");
    });
}

#[test]
fn an_interface_that_comes_back_forwards_again() {
    on_a_host(async |host| {
        no_router();
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let mut config = host.config("a");
        config.watch_every = Duration::from_millis(20);
        let network = HostNetwork::open(config).await.unwrap();
        let lease = lease(&network, Egress::Public).await;
        std::fs::write(switch("net0"), "0").unwrap();
        wait_for("it forwards again", || is_on(switch("net0"))).await;
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
    });
}
