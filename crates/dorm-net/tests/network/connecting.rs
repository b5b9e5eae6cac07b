//! Connections from the host into a sandbox.

use dorm_engine::{LeaseId, Network, NetworkError};
use dorm_lifecycle::Egress;
use tokio::io::AsyncReadExt as _;

use crate::support::{PORT, echo, lease, on_a_host, say};

#[test]
fn a_server_in_a_sandbox_is_reached_whatever_may_leave() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        for egress in [Egress::None, Egress::Public] {
            let lease = lease(&network, egress).await;
            echo(&lease.namespace, lease.address, PORT);
            let mut stream = network.connect(lease.id, PORT).await.unwrap();
            say(&mut stream, b"hello").await.unwrap();
        }
    });
}

#[test]
fn two_leases_have_the_same_address_inside_and_are_distinguished() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        let (one, two) = (network.lease(&Egress::None).await.unwrap(), network.lease(&Egress::None).await.unwrap());
        assert_eq!((one.address, one.mac, one.gateway), (two.address, two.mac, two.gateway));
        assert_ne!((one.id, &one.namespace), (two.id, &two.namespace));
        echo(&one.namespace, one.address, PORT);
        assert!(network.connect(one.id, PORT).await.is_ok());
        assert!(matches!(network.connect(two.id, PORT).await, Err(NetworkError::Refused(PORT))));
    });
}

#[test]
fn a_connection_ends_when_its_lease_is_released_and_no_other_does() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        let (one, two) = (lease(&network, Egress::None).await, lease(&network, Egress::None).await);
        echo(&one.namespace, one.address, PORT);
        echo(&two.namespace, two.address, PORT);
        let (mut ended, mut kept) =
            (network.connect(one.id, PORT).await.unwrap(), network.connect(two.id, PORT).await.unwrap());
        say(&mut ended, b"hello").await.unwrap();
        let waiting = tokio::spawn(async move { ended.read(&mut [0]).await });
        network.release(one.id).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        assert!(matches!(network.connect(one.id, PORT).await, Err(NetworkError::NoLease(_))));
        say(&mut kept, b"hello").await.unwrap();
    });
}

#[test]
fn a_lease_that_is_not_there_is_named() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        let id = LeaseId(7);
        assert!(matches!(network.connect(id, PORT).await, Err(NetworkError::NoLease(LeaseId(7)))));
        assert!(matches!(network.allow(id, &Egress::Public).await, Err(NetworkError::NoLease(LeaseId(7)))));
        network.release(id).await.unwrap();
    });
}
