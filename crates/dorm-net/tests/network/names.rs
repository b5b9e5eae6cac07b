//! Look-ups of names from a sandbox.

use std::net::Ipv4Addr;
use std::path::Path;

use dorm_engine::Network;
use dorm_lifecycle::{Egress, EgressDefault};
use hickory_proto::rr::RecordType;
use tokio::net::{TcpStream, UdpSocket};

use crate::name_server::{Found, look_up, look_up_by_stream, open, question, start};
use crate::support::{
    DEADLINE, PORT, PRIVATE, PUBLIC, PUBLIC_TOO, ask, connect, datagrams, echo, lease, on_a_host, only, reaches, rules,
    run, say, wait_for,
};

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

fn one() -> Found {
    Found::Addresses(vec![PUBLIC])
}

#[test]
fn names_are_asked_for_wherever_the_sandbox_sends_its_question() {
    on_a_host(async |host| {
        let network = open(&host, vec![start().await.0]).await;
        for egress in [Egress::Public, only(&["one.test"])] {
            let lease = lease(&network, egress).await;
            for server in [lease.gateway, ELSEWHERE] {
                assert_eq!(look_up(&lease.namespace, server, "one.test.").await, one());
                let twice = look_up_by_stream(&lease.namespace, server, &["one.test.", "one.test."]).await;
                assert_eq!(twice, [one(), one()]);
            }
        }
    });
}

#[test]
fn a_name_that_is_not_permitted_never_leaves_the_host() {
    on_a_host(async |host| {
        let (server, asked) = start().await;
        let network = open(&host, vec![server]).await;
        let secret = "secret-data.attacker.test.";
        for egress in [
            Egress::None,
            only(&[]),
            only(&["198.51.100.0/24"]),
            only(&["0.0.0.0/0"]),
            only(&["one.test", "*.wild.test"]),
        ] {
            let lease = lease(&network, egress).await;
            for server in [lease.gateway, ELSEWHERE] {
                assert_eq!(look_up(&lease.namespace, server, secret).await, Found::Refused);
                let twice = look_up_by_stream(&lease.namespace, server, &[secret, "wild.test."]).await;
                assert_eq!(twice, [Found::Refused, Found::Refused]);
            }
        }
        assert_eq!(asked.names(), [] as [&str; 0]);
        let lease = lease(&network, only(&["one.test", "*.wild.test"])).await;
        assert_eq!(look_up(&lease.namespace, lease.gateway, "one.test.").await, one());
        assert_eq!(
            look_up(&lease.namespace, lease.gateway, "a.B.Wild.Test.").await,
            Found::Addresses(vec![PUBLIC_TOO])
        );
        assert_eq!(asked.names(), ["one.test.", "a.b.wild.test."], "in lower case: the letters may carry data");
    });
}

#[test]
fn a_name_permits_its_addresses_and_no_others() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = open(&host, vec![start().await.0]).await;
        let (lease, other) = (lease(&network, only(&["one.test"])).await, lease(&network, only(&["one.test"])).await);
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await);
        assert_eq!(look_up(&lease.namespace, lease.gateway, "one.test.").await, one());
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(!reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
        assert!(!reaches(&other.namespace, PUBLIC, PORT).await, "what one sandbox learns permits nothing to another");
    });
}

#[test]
fn a_denied_name_does_not_resolve_and_the_order_of_rules_decides() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = open(&host, vec![start().await.0]).await;
        let lease = lease(&network, rules(&["deny one.test"], EgressDefault::Public)).await;
        let look_up = async |name| look_up(&lease.namespace, lease.gateway, name).await;
        assert_eq!(look_up("one.test.").await, Found::Refused);
        assert_eq!(look_up("a.b.wild.test.").await, Found::Addresses(vec![PUBLIC_TOO]));
        // Clients send this for "only this name".
        network.allow(lease.id, &rules(&["allow one.test", "deny 0.0.0.0/0"], EgressDefault::Public)).await.unwrap();
        assert_eq!(look_up("one.test.").await, one());
        assert_eq!(look_up("a.b.wild.test.").await, Found::Refused);
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(!reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
        // A name does not open a network that an earlier rule denies.
        let network_first = rules(&["deny 198.51.100.10", "allow one.test", "allow *.wild.test"], EgressDefault::Deny);
        network.allow(lease.id, &network_first).await.unwrap();
        assert_eq!(look_up("one.test.").await, one());
        assert_eq!(look_up("a.b.wild.test.").await, Found::Addresses(vec![PUBLIC_TOO]));
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
        // Names on two sides of a denied network are kept apart.
        let apart = rules(&["allow one.test", "deny 198.51.100.0/24", "allow *.wild.test"], EgressDefault::Deny);
        network.allow(lease.id, &apart).await.unwrap();
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await, "what was learned before is forgotten");
        assert_eq!(look_up("one.test.").await, one());
        assert_eq!(look_up("a.b.wild.test.").await, Found::Addresses(vec![PUBLIC_TOO]));
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(!reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
    });
}

#[test]
fn aliases_are_followed_within_one_answer() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = open(&host, vec![start().await.0]).await;
        let lease = lease(&network, only(&["alias.test"])).await;
        assert!(matches!(look_up(&lease.namespace, lease.gateway, "alias.test.").await, Found::Addresses(_)));
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        assert!(!reaches(&lease.namespace, PUBLIC_TOO, PORT).await, "a record of another name is in the answer, too");
        assert_eq!(look_up(&lease.namespace, lease.gateway, "cdn.elsewhere.").await, Found::Refused);
    });
}

#[test]
fn a_name_that_leads_to_a_private_address_permits_nothing() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = open(&host, vec![start().await.0]).await;
        let private = [PRIVATE[0], PRIVATE[1], [169, 254, 169, 254].into()];
        for egress in [only(&["rebind.test"]), only(&["*"])] {
            let lease = lease(&network, egress).await;
            let answer = look_up(&lease.namespace, lease.gateway, "rebind.test.").await;
            assert_eq!(answer, Found::Addresses(private.to_vec()));
            for address in private {
                assert!(!reaches(&lease.namespace, address, PORT).await, "{address}");
            }
        }
        let lease = lease(&network, only(&["rebind.test", "192.168.77.0/24"])).await;
        assert!(matches!(look_up(&lease.namespace, lease.gateway, "rebind.test.").await, Found::Addresses(_)));
        assert!(reaches(&lease.namespace, PRIVATE[0], PORT).await, "a network of the list permits it");
        assert!(!reaches(&lease.namespace, PRIVATE[1], PORT).await);
    });
}

#[test]
fn a_connection_by_name_continues_when_its_address_is_forgotten() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = open(&host, vec![start().await.0]).await;
        let lease = lease(&network, only(&["one.test"])).await;
        assert_eq!(look_up(&lease.namespace, lease.gateway, "one.test.").await, one());
        let mut stream = connect(&lease.namespace, PUBLIC, PORT).await.unwrap();
        say(&mut stream, b"before").await.unwrap();
        run(&format!("ip netns exec {} nft flush set ip dorm named", gateway_name(&lease.namespace)));
        say(&mut stream, b"after").await.unwrap();
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await);

        network.allow(lease.id, &only(&["two.test"])).await.unwrap();
        assert!(say(&mut stream, b"later").await.is_err());
    });
}

fn gateway_name(namespace: &Path) -> String {
    format!("{}-gw", namespace.file_name().unwrap().to_str().unwrap())
}

#[test]
fn a_changed_list_changes_the_names_at_once() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = open(&host, vec![start().await.0]).await;
        let lease = lease(&network, only(&["one.test"])).await;
        assert_eq!(look_up(&lease.namespace, lease.gateway, "one.test.").await, one());
        network.allow(lease.id, &only(&["two.test"])).await.unwrap();
        assert_eq!(look_up(&lease.namespace, lease.gateway, "one.test.").await, Found::Refused);
        assert!(!reaches(&lease.namespace, PUBLIC, PORT).await, "what was learned is forgotten");
        assert_eq!(look_up(&lease.namespace, lease.gateway, "two.test.").await, Found::Addresses(vec![PUBLIC_TOO]));
        assert!(reaches(&lease.namespace, PUBLIC_TOO, PORT).await);
    });
}

#[test]
fn names_and_what_they_led_to_outlive_the_daemon() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let (server, asked) = start().await;
        let network = open(&host, vec![server]).await;
        let listed = lease(&network, only(&["one.test"])).await;
        let closed = lease(&network, only(&["198.51.100.0/24"])).await;
        assert_eq!(look_up(&listed.namespace, listed.gateway, "one.test.").await, one());
        network.close().await;
        drop(network);
        assert!(reaches(&listed.namespace, PUBLIC, PORT).await);

        let _network = open(&host, vec![server]).await;
        assert!(reaches(&listed.namespace, PUBLIC, PORT).await);
        assert_eq!(look_up(&listed.namespace, listed.gateway, "one.test.").await, one());
        assert_eq!(look_up(&listed.namespace, listed.gateway, "two.test.").await, Found::Refused);
        assert_eq!(look_up(&closed.namespace, closed.gateway, "one.test.").await, Found::Refused);
        assert_eq!(asked.names(), ["one.test.", "one.test."]);
    });
}

#[test]
fn a_question_that_no_server_answers_gets_a_failure() {
    on_a_host(async |host| {
        let network = open(&host, vec![]).await;
        let lease = lease(&network, Egress::Public).await;
        assert_eq!(look_up(&lease.namespace, lease.gateway, "one.test.").await, Found::Failed);
        assert_eq!(look_up_by_stream(&lease.namespace, lease.gateway, &["one.test."]).await, [Found::Failed]);
    });
}

#[test]
fn while_the_daemon_is_down_names_are_refused_and_afterwards_answered() {
    on_a_host(async |host| {
        let (server, _) = start().await;
        let network = open(&host, vec![server]).await;
        let lease = lease(&network, Egress::Public).await;
        network.close().await;
        drop(network);
        assert!(ask(&datagrams(&lease.namespace, lease.gateway, 53), b"a question").await.is_err());
        let _network = open(&host, vec![server]).await;
        assert_eq!(look_up(&lease.namespace, lease.gateway, "one.test.").await, one());
    });
}

/// The number of open descriptors of this process; every test has a process of its own.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_thousand_connections_to_the_name_server_take_few_descriptors_of_the_daemon() {
    on_a_host(async |host| {
        let network = open(&host, vec![start().await.0]).await;
        let (greedy, other) = (lease(&network, Egress::Public).await, lease(&network, Egress::Public).await);
        let before = descriptors();
        let mut streams: Vec<TcpStream> = Vec::new();
        let mut most = 0;
        for _ in 0..1000 {
            streams.push(connect(&greedy.namespace, greedy.gateway, 53).await.unwrap());
            most = most.max(descriptors() - before - streams.len());
        }
        wait_for("the daemon has closed those that it has no place for", || {
            most = most.max(descriptors() - before - streams.len());
            let closed = streams.iter().filter(|stream| stream.try_read(&mut [0]).is_ok_and(|length| length == 0));
            closed.count() >= 1000 - 8
        })
        .await;
        assert!(most <= 2 * 8, "{most} descriptors");
        assert_eq!(look_up_by_stream(&other.namespace, other.gateway, &["one.test."]).await, [one()]);
    });
}

#[test]
fn questions_without_an_answer_take_few_descriptors_of_the_daemon() {
    on_a_host(async |host| {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let network = open(&host, vec![silent.local_addr().unwrap()]).await;
        let lease = lease(&network, Egress::Public).await;
        let socket = datagrams(&lease.namespace, lease.gateway, 53);
        let before = descriptors();
        let question = question("one.test.", RecordType::A);
        for _ in 0..200 {
            socket.send(&question).await.unwrap();
        }
        // Queries beyond the limit fail at once: when one has, every place is taken.
        let mut answer = [0; 512];
        tokio::time::timeout(DEADLINE, socket.recv(&mut answer)).await.unwrap().unwrap();
        let opened = descriptors() - before;
        assert!(opened <= 64, "{opened} descriptors");
    });
}
