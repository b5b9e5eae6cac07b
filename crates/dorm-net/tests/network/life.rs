//! Leases are created and removed.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dorm_engine::{LeaseId, Network, NetworkError};
use dorm_lifecycle::Egress;

use crate::support::{PORT, PUBLIC, echo, lease, on_a_host, reaches, run, wait_for};

#[test]
fn a_released_lease_leaves_nothing_behind() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        let (one, two) = (network.lease(&Egress::None).await.unwrap(), network.lease(&Egress::None).await.unwrap());
        assert!(!host.traces().is_empty());
        network.release(one.id).await.unwrap();
        assert_eq!(network.leases().await.unwrap(), std::slice::from_ref(&two));
        assert!(host.traces().iter().any(|trace| trace.contains("dorm_a")), "the rules stay for the other");
        network.release(two.id).await.unwrap();
        network.release(two.id).await.unwrap();
        assert_eq!(host.traces(), Vec::<String>::new());
        assert_eq!(network.leases().await.unwrap(), []);
        let left: Vec<_> =
            std::fs::read_dir(host.directory("a")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"]);
    });
}

#[test]
fn twenty_leases_are_made_and_released_at_once() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = host.open("a").await;
        let leases = all((0..20).map(|_| lease(&network, Egress::Public))).await;
        let numbers: BTreeSet<LeaseId> = leases.iter().map(|lease| lease.id).collect();
        assert_eq!(numbers.len(), 20);
        for lease in &leases {
            assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        }
        for released in all(numbers.iter().map(|id| network.release(*id))).await {
            released.unwrap();
        }
        assert_eq!(host.traces(), Vec::<String>::new());
    });
}

#[test]
fn daemons_with_different_prefixes_share_a_host() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let (one, two) = (host.open("a").await, host.open("b").await);
        let leases = all((0..6).map(|turn| lease(if turn % 2 == 0 { &one } else { &two }, Egress::Public))).await;
        let numbers: BTreeSet<LeaseId> = leases.iter().map(|lease| lease.id).collect();
        assert_eq!(numbers.len(), 6, "no number, and so no network, is given twice on a host");
        one.remove_all().await.unwrap();
        assert_eq!(two.leases().await.unwrap().len(), 3);
        for lease in two.leases().await.unwrap() {
            assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        }
        two.remove_all().await.unwrap();
        assert_eq!(host.traces(), Vec::<String>::new());
    });
}

#[test]
fn a_number_is_used_again_after_its_release() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        let first = network.lease(&Egress::None).await.unwrap();
        network.release(first.id).await.unwrap();
        assert_eq!(network.lease(&Egress::None).await.unwrap(), first);
    });
}

#[test]
fn networks_that_the_host_uses_are_left_out() {
    on_a_host(async |host| {
        run("ip route add 10.200.0.0/29 dev lo");
        run("ip addr add 10.200.0.13/32 dev net0");
        run("ip route add 10.200.0.8/32 via 203.0.113.2");
        run("ip route add 10.0.0.0/8 via 203.0.113.2");
        let network = host.open("a").await;
        assert_eq!(
            network.lease(&Egress::None).await.unwrap().id,
            LeaseId(3),
            "a wider network than ours is none of ours"
        );
    });
}

#[test]
fn when_every_number_is_taken_the_caller_is_told() {
    on_a_host(async |host| {
        let mut config = host.config("a");
        config.supernet = "10.200.0.0/29".parse().unwrap();
        let network = dorm_net::HostNetwork::open(config).await.unwrap();
        let (one, _two) = (network.lease(&Egress::None).await.unwrap(), network.lease(&Egress::None).await.unwrap());
        assert!(matches!(network.lease(&Egress::None).await, Err(NetworkError::Exhausted(2))));
        network.release(one.id).await.unwrap();
        assert!(network.lease(&Egress::None).await.is_ok());
    });
}

#[test]
fn a_lease_that_nobody_waits_for_any_more_removes_itself() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        {
            let mut lease = pin!(network.lease(&Egress::None));
            // On a machine that stood still meanwhile it may be ready at once.
            if let Poll::Ready(made) = lease.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return network.release(made.unwrap().id).await.unwrap();
            }
            wait_for("the lease is being made", || !host.traces().is_empty()).await;
        }
        wait_for("the lease is gone", || host.traces().is_empty()).await;
        assert_eq!(network.leases().await.unwrap(), []);
    });
}

/// Polls all futures until each is ready.
async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in waiting.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if waiting.iter().all(|(_, output)| output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}
