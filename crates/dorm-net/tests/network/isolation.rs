//! Destinations that no policy lets a sandbox reach: the host and other sandboxes.

use std::net::Ipv4Addr;

use dorm_engine::Network;
use dorm_lifecycle::Egress;

use crate::support::{HOST, PORT, PUBLIC, echo, gateway, inside, lease, on_a_host, only, reaches, run, said};

const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

#[test]
fn no_service_of_the_host_is_reached_on_any_of_its_addresses() {
    on_a_host(async |host| {
        run("ip addr add 198.51.100.99/32 dev lo");
        run("ip addr add 172.30.0.1/32 dev lo");
        echo(&host.itself(), ANY, PORT);
        let network = host.open("a").await;
        for egress in [Egress::Public, only(&["0.0.0.0/0"]), only(&["0.0.0.0/0", "172.16.0.0/12", "10.0.0.0/8"])] {
            let lease = lease(&network, egress).await;
            let mut seen = 0;
            for address in addresses() {
                assert!(reaches(&host.itself(), address, PORT).await);
                assert!(!reaches(&lease.namespace, address, PORT).await, "{address}");
                seen += 1;
            }
            assert!(seen >= 4, "its own, both on lo, and that of the uplink");
            // The gateway itself cannot bypass the rules: the host refuses it as well.
            assert!(!reaches(&gateway(&lease), HOST, PORT).await);
        }
    });
}

#[test]
fn no_other_sandbox_is_reached_be_it_of_this_daemon_or_another() {
    on_a_host(async |host| {
        let (network, other) = (host.open("a").await, host.open("b").await);
        let lease = lease(&network, only(&["0.0.0.0/0"])).await;
        for victim in [network.lease(&Egress::None).await.unwrap(), other.lease(&Egress::None).await.unwrap()] {
            echo(&gateway(&victim), ANY, PORT);
            echo(&victim.namespace, ANY, PORT);
            let uplink = uplink(&gateway(&victim));
            assert!(!reaches(&lease.namespace, uplink, PORT).await);
            assert!(!reaches(&gateway(&lease), uplink, PORT).await);
            assert!(!reaches(&lease.namespace, lease.gateway, PORT).await);
        }
    });
}

#[test]
fn a_port_of_the_host_that_leads_to_a_container_is_not_reached() {
    on_a_host(async |host| {
        run("ip netns add container");
        run("ip link add bridge0 type veth peer name eth0 netns container");
        run("ip addr add 172.20.0.1/24 dev bridge0");
        run("ip link set bridge0 up");
        run("ip -n container addr add 172.20.0.2/24 dev eth0");
        run("ip -n container link set eth0 up");
        run("ip -n container route add default via 172.20.0.1");
        run("nft add table ip docker");
        run("nft add chain ip docker pre { type nat hook prerouting priority -100 ; }");
        run("nft add rule ip docker pre ip daddr 203.0.113.1 tcp dport 8080 dnat to 172.20.0.2:8080");
        echo("/run/netns/container".as_ref(), ANY, PORT);
        let network = host.open("a").await;
        let lease = lease(&network, only(&["0.0.0.0/0"])).await;
        assert!(reaches(&host.internet(), HOST, PORT).await);
        assert!(!reaches(&lease.namespace, HOST, PORT).await);
    });
}

#[test]
fn nobody_outside_reaches_into_a_sandbox() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        echo(&lease.namespace, ANY, PORT);
        run("ip -n internet route add 10.200.0.0/16 via 203.0.113.1");
        let uplink = uplink(&gateway(&lease));
        assert!(!reaches(&host.internet(), uplink, PORT).await);
        assert!(!reaches(&host.internet(), uplink, 53).await);
    });
}

#[test]
fn there_is_no_other_protocol_to_go_by() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        let lease = lease(&network, only(&["0.0.0.0/0"])).await;
        for namespace in [&lease.namespace, &gateway(&lease)] {
            let addresses = inside(namespace, || said("ip -6 -o addr"));
            assert_eq!(addresses.lines().filter(|line| !line.contains(" lo ")).count(), 0, "{addresses}");
        }
        let shown = said("ip -6 -o addr");
        assert!(!shown.contains("dorm"), "{shown}");
    });
}

#[test]
fn rules_that_someone_removed_are_there_again_with_the_next_lease() {
    on_a_host(async |host| {
        echo(&host.itself(), ANY, PORT);
        echo(&host.internet(), ANY, PORT);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        run("nft flush ruleset");
        network.lease(&Egress::None).await.unwrap();
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(!reaches(&lease.namespace, HOST, PORT).await);
    });
}

#[test]
fn the_rules_of_the_host_are_set_again_only_after_a_change() {
    on_a_host(async |host| {
        // Its first line has the number of the table, which a new one does not get again.
        let table = || said("nft -a list table inet dorm_a").lines().next().map(str::to_owned);
        let network = host.open("a").await;
        network.lease(&Egress::None).await.unwrap();
        let first = table();
        assert!(first.as_ref().is_some_and(|line| line.contains("handle")), "{first:?}");
        network.lease(&Egress::Public).await.unwrap();
        assert_eq!(table(), first);
        run("nft add table ip other");
        network.lease(&Egress::Public).await.unwrap();
        assert_ne!(table(), first);
    });
}

/// Every IPv4 address of the host but its loopback.
fn addresses() -> Vec<Ipv4Addr> {
    let shown = said("ip -4 -o addr");
    let words = shown.lines().map(|line| line.split_whitespace().nth(3).unwrap().split('/').next().unwrap());
    words.map(|word| word.parse().unwrap()).filter(|address: &Ipv4Addr| !address.is_loopback()).collect()
}

/// The address of a gateway on its uplink.
fn uplink(gateway: &std::path::Path) -> Ipv4Addr {
    let shown = inside(gateway, || said("ip -4 -o addr show dev uplink"));
    shown.split_whitespace().nth(3).unwrap().split('/').next().unwrap().parse().unwrap()
}
