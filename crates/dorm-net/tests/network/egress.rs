//! The destinations that a sandbox may connect to.

use std::io;
use std::path::Path;

use dorm_engine::Network;
use dorm_lifecycle::{Egress, EgressDefault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    DEADLINE, Host, PORT, PRIVATE, PUBLIC, PUBLIC_TOO, ask, connect, datagrams, echo, lease, listen, on_a_host, only,
    reaches, received_in_vain, rules, run, say,
};

/// Starts an echo on all addresses of the internet.
fn internet(host: &Host) {
    echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
}

/// Whether a datagram is answered with a refusal: by the gateway at once, or by the internet, where
/// nothing listens.
async fn refused(namespace: &Path) -> bool {
    let socket = datagrams(namespace, PUBLIC, PORT);
    ask(&socket, b"hello").await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[test]
fn nothing_leaves_before_it_is_allowed_and_every_try_is_refused_at_once() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = network.lease(&Egress::None).await.unwrap();
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(!reaches(&lease.namespace, lease.gateway, PORT).await);
        // More than the rate of such answers that the kernel allows by default.
        for _ in 0..30 {
            assert!(refused(&lease.namespace).await);
        }
    });
}

#[test]
fn the_public_internet_is_reached_but_no_private_network() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
        for address in PRIVATE {
            assert!(reaches(&host.itself(), address, PORT).await, "the host reaches {address}");
            assert!(!reaches(&lease.namespace, address, PORT).await);
        }
        for address in [[169, 254, 169, 254], [10, 1, 2, 3], [172, 31, 0, 1], [168, 63, 129, 16], [240, 0, 0, 1]] {
            assert!(!reaches(&lease.namespace, address.into(), PORT).await);
        }
    });
}

#[test]
fn an_allow_list_lets_only_its_networks_through() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = lease(&network, only(&["198.51.100.10/32", "192.168.77.0/24", "192.168.77.5"])).await;
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(reaches(&lease.namespace, PRIVATE[0], PORT).await);
        assert!(!reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
        network.allow(lease.id, &only(&[])).await.unwrap();
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await);
        network.allow(lease.id, &only(&["0.0.0.0/0"])).await.unwrap();
        assert!(reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
    });
}

#[test]
fn a_changed_policy_ends_connections_that_it_does_not_allow_and_no_others() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        let mut kept = connect(&lease.namespace, PUBLIC, PORT).await.unwrap();
        let mut cut = connect(&lease.namespace, PUBLIC_TOO, PORT).await.unwrap();
        say(&mut kept, b"before").await.unwrap();
        say(&mut cut, b"before").await.unwrap();

        network.allow(lease.id, &only(&["198.51.100.10"])).await.unwrap();
        say(&mut kept, b"after").await.unwrap();
        assert!(say(&mut cut, b"after").await.is_err());

        network.allow(lease.id, &Egress::None).await.unwrap();
        assert!(say(&mut kept, b"after").await.is_err());
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await);
    });
}

/// Sends bytes to every client until its connection ends. Returns how each connection ended.
fn source(namespace: &Path) -> tokio::sync::mpsc::UnboundedReceiver<io::ErrorKind> {
    let (told, ends) = tokio::sync::mpsc::unbounded_channel();
    let listener = listen(namespace, [0, 0, 0, 0].into(), PORT);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let told = told.clone();
            tokio::spawn(async move {
                let end = loop {
                    if let Err(error) = stream.write_all(&[7; 4096]).await {
                        break error.kind();
                    }
                };
                let _ = told.send(end);
            });
        }
    });
    ends
}

#[test]
fn a_download_that_a_changed_policy_forbids_ends_for_both_sides() {
    on_a_host(async |host| {
        let mut ends = source(&host.internet());
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        let mut cut = connect(&lease.namespace, PUBLIC, PORT).await.unwrap();
        let mut kept = connect(&lease.namespace, PUBLIC_TOO, PORT).await.unwrap();
        let mut some = vec![0; 1 << 20];
        cut.read_exact(&mut some).await.unwrap();
        network.allow(lease.id, &only(&["198.51.100.11"])).await.unwrap();
        // The sandbox only receives.
        let rest = async {
            loop {
                match cut.read(&mut some).await {
                    Ok(0) => panic!("it ended as if it were complete"),
                    Ok(_) => {}
                    Err(error) => break error.kind(),
                }
            }
        };
        let end = tokio::time::timeout(DEADLINE, rest).await.expect("the sandbox is told");
        assert_eq!(end, io::ErrorKind::ConnectionReset);
        let end = tokio::time::timeout(DEADLINE, ends.recv()).await.expect("the sender is told").unwrap();
        assert!(matches!(end, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{end:?}");
        let mut more = vec![0; 8 << 20];
        tokio::time::timeout(DEADLINE, kept.read_exact(&mut more)).await.unwrap().unwrap();
    });
}

#[test]
fn the_first_rule_that_matches_decides() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = lease(&network, rules(&["deny 198.51.100.11", "allow 198.51.0.0/16"], EgressDefault::Deny)).await;
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(!reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
        network.allow(lease.id, &rules(&["deny 198.51.100.10"], EgressDefault::Public)).await.unwrap();
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
        network.allow(lease.id, &Egress::closed()).await.unwrap();
        assert!(!reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
    });
}

#[test]
fn a_wide_rule_opens_no_private_network_and_one_that_names_it_does() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = lease(&network, only(&["0.0.0.0/0"])).await;
        for wide in ["allow 0.0.0.0/0", "allow 192.0.0.0/3", "allow 64.0.0.0/2"] {
            network.allow(lease.id, &rules(&[wide], EgressDefault::Public)).await.unwrap();
            assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
            for address in PRIVATE {
                assert!(!reaches(&lease.namespace, address, PORT).await, "{wide} {address}");
            }
            assert!(!reaches(&lease.namespace, [169, 254, 169, 254].into(), PORT).await);
        }
        let named = rules(&["allow 0.0.0.0/0", "allow 192.168.77.0/24"], EgressDefault::Deny);
        network.allow(lease.id, &named).await.unwrap();
        assert!(reaches(&lease.namespace, PRIVATE[0], PORT).await);
        assert!(!reaches(&lease.namespace, PRIVATE[1], PORT).await);
    });
}

#[test]
fn a_list_that_cannot_be_read_changes_nothing() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        for wrong in ["example", "198.51.100.0/33", "::/0", "1.2.3.4; flush ruleset"] {
            assert!(network.allow(lease.id, &only(&["10.0.0.0/8", wrong])).await.is_err());
        }
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
    });
}

#[test]
fn much_data_passes_a_host_with_small_packets() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        let stream = connect(&lease.namespace, PUBLIC, PORT).await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        let sent = vec![7; 4 << 20];
        let sending = tokio::spawn(async move { tokio::io::copy(&mut sent.as_slice(), &mut writing).await.unwrap() });
        let mut heard = vec![0; 4 << 20];
        tokio::time::timeout(2 * DEADLINE, reading.read_exact(&mut heard)).await.unwrap().unwrap();
        assert_eq!(sending.await.unwrap(), 4 << 20);
    });
}

#[test]
fn sandboxes_with_a_forged_address_are_not_let_out() {
    on_a_host(async |host| {
        internet(&host);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        let name = lease.namespace.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        run(&format!("ip -n {name} addr flush dev eth0"));
        run(&format!("ip -n {name} addr add 10.9.9.9/32 dev eth0"));
        run(&format!("ip -n {name} route add 10.0.0.1/32 dev eth0"));
        run(&format!("ip -n {name} route add default via 10.0.0.1"));
        let before = received_in_vain(&host);
        let socket = datagrams(&lease.namespace, PUBLIC, PORT);
        for _ in 0..5 {
            socket.send(b"hello").await.unwrap();
        }
        // A packet of another lease shows that those before it have been processed.
        let other = crate::support::lease(&network, Egress::Public).await;
        assert!(refused(&other.namespace).await);
        assert_eq!(received_in_vain(&host), before + 1);
    });
}
