//! Look-ups of names from a sandbox.

use std::net::{Ipv4Addr, SocketAddr};

use dorm_engine::Network;
use dorm_lifecycle::Egress;
use dorm_net::{HostNetwork, NameServers};
use tokio::net::UdpSocket;

use crate::support::{Host, ask, connect, datagrams, echo, lease, on_a_host, only, reaches, say};

const QUESTION: &[u8] = b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0\x01x\0\0\x01\0\x01";
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

/// A name server on the host's loopback, where no sandbox could reach it, that sends back each question; and a
/// network that uses it.
async fn with_server(host: &Host) -> HostNetwork {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    echo(&host.itself(), Ipv4Addr::LOCALHOST, address.port());
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = server.recv_from(&mut buffer).await {
            server.send_to(&buffer[..length], from).await.unwrap();
        }
    });
    open(host, vec![address]).await
}

async fn open(host: &Host, servers: Vec<SocketAddr>) -> HostNetwork {
    let mut config = host.config("a");
    config.dns = NameServers::Fixed(servers);
    HostNetwork::open(config).await.unwrap()
}

#[test]
fn names_are_asked_for_wherever_the_sandbox_sends_its_question() {
    on_a_host(async |host| {
        let network = with_server(&host).await;
        for egress in [Egress::Public, only(&[])] {
            let lease = lease(&network, egress).await;
            for server in [lease.gateway, ELSEWHERE] {
                assert_eq!(ask(&datagrams(&lease.namespace, server, 53), QUESTION).await.unwrap(), QUESTION);
                let mut stream = connect(&lease.namespace, server, 53).await.unwrap();
                say(&mut stream, QUESTION).await.unwrap();
            }
        }
    });
}

#[test]
fn without_egress_names_are_refused_at_once() {
    on_a_host(async |host| {
        let network = with_server(&host).await;
        let lease = lease(&network, Egress::Public).await;
        network.allow(lease.id, &Egress::None).await.unwrap();
        for server in [lease.gateway, ELSEWHERE] {
            assert!(ask(&datagrams(&lease.namespace, server, 53), QUESTION).await.is_err());
            assert!(!reaches(&lease.namespace, server, 53).await);
        }
    });
}

#[test]
fn a_question_that_no_server_answers_gets_a_failure() {
    on_a_host(async |host| {
        let network = open(&host, vec![]).await;
        let lease = lease(&network, Egress::Public).await;
        let answer = ask(&datagrams(&lease.namespace, lease.gateway, 53), QUESTION).await.unwrap();
        assert_eq!((answer[2] & 0x80, answer[3] & 0x0f), (0x80, 2));
    });
}

#[test]
fn while_the_daemon_is_down_names_are_refused_and_afterwards_answered() {
    on_a_host(async |host| {
        let network = with_server(&host).await;
        let lease = lease(&network, Egress::Public).await;
        network.close().await;
        drop(network);
        assert!(ask(&datagrams(&lease.namespace, lease.gateway, 53), QUESTION).await.is_err());
        let _network = with_server(&host).await;
        assert_eq!(ask(&datagrams(&lease.namespace, lease.gateway, 53), QUESTION).await.unwrap(), QUESTION);
    });
}
