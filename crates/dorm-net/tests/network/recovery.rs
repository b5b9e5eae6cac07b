//! The daemon ends between any two steps, and restarts.

use std::process::Command;

use dorm_engine::Network;
use dorm_lifecycle::Egress;

use crate::support::{PORT, PUBLIC, echo, lease, on_a_host, reaches, run};

#[test]
fn leases_outlive_the_daemon_with_their_policy() {
    on_a_host(async |host| {
        echo(&host.internet(), [0, 0, 0, 0].into(), PORT);
        let network = host.open("a").await;
        let lease = lease(&network, Egress::Public).await;
        network.close().await;
        drop(network);
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);

        let network = host.open("a").await;
        assert_eq!(network.leases().await.unwrap(), std::slice::from_ref(&lease));
        assert!(reaches(&lease.namespace, PUBLIC, PORT).await);
        echo(&lease.namespace, lease.address, PORT);
        assert!(network.connect(lease.id, PORT).await.is_ok());
        network.release(lease.id).await.unwrap();
        assert_eq!(host.traces(), Vec::<String>::new());
    });
}

#[test]
fn whatever_was_half_made_or_half_removed_goes_at_the_next_start() {
    on_a_host(async |host| {
        let parts = ["ip link del dorma-0", "ip netns del dorm-a-0", "ip netns del dorm-a-0-gw"];
        for stage in ["making", "made"] {
            for missing in 0..8_u8 {
                let network = host.open("a").await;
                let lease = network.lease(&Egress::None).await.unwrap();
                network.close().await;
                drop(network);
                for (index, part) in parts.iter().enumerate().filter(|(index, _)| missing & (1 << index) != 0) {
                    // Without its gateway the uplink is gone too.
                    if index != 0 || host.traces().iter().any(|trace| trace.contains("dorma-0")) {
                        run(part);
                    }
                }
                let note = host.directory("a").join(format!("{}.json", lease.id.0));
                std::fs::write(note, format!(r#"{{"stage":"{stage}"}}"#)).unwrap();

                let network = host.open("a").await;
                let kept = usize::from(stage == "made" && missing == 0);
                assert_eq!(network.leases().await.unwrap().len(), kept, "{stage} without {missing:03b}");
                network.remove_all().await.unwrap();
                assert_eq!(host.traces(), Vec::<String>::new(), "{stage} without {missing:03b}");
            }
        }
    });
}

#[test]
fn a_new_daemon_waits_for_the_commands_of_a_killed_one() {
    on_a_host(async |host| {
        std::fs::create_dir_all(host.directory("a")).unwrap();
        let lock = std::fs::File::create(host.directory("a").join("lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let done = host.directory("a").join("done");
        let script = format!("sleep 0.3; echo > {}", done.display());
        let mut command = Command::new("sh").args(["-c", &script]).stdout(lock).spawn().unwrap();
        let _network = host.open("a").await;
        assert!(done.exists());
        command.wait().unwrap();
    });
}

#[test]
fn a_note_without_anything_made_is_removed() {
    on_a_host(async |host| {
        std::fs::create_dir_all(host.directory("a")).unwrap();
        std::fs::write(host.directory("a").join("0.json"), "").unwrap();
        std::fs::write(host.directory("a").join("1.draft"), "{").unwrap();
        let network = host.open("a").await;
        assert_eq!(network.leases().await.unwrap(), []);
        assert_eq!(network.lease(&Egress::None).await.unwrap().id.0, 0);
    });
}

#[test]
fn a_lease_that_cannot_be_made_leaves_nothing_and_does_not_stop_the_next() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        std::fs::create_dir_all("/run/netns").unwrap();
        run("mount -t tmpfs -o nr_inodes=1 none /run/netns");
        let error = network.lease(&Egress::None).await.unwrap_err();
        run("umount /run/netns");
        assert!(error.to_string().contains("create network lease 0"), "{error}");
        assert_eq!(host.traces(), Vec::<String>::new());
        assert_eq!(network.lease(&Egress::None).await.unwrap().id.0, 0);
    });
}

#[test]
fn a_name_from_before_a_restart_of_the_host_does_not_matter() {
    on_a_host(async |host| {
        std::fs::create_dir_all("/run/netns").unwrap();
        std::fs::write("/run/netns/dorm-a-0-gw", "").unwrap();
        let network = host.open("a").await;
        let lease = network.lease(&Egress::None).await.unwrap();
        assert_eq!(lease.id.0, 0);
        network.release(lease.id).await.unwrap();
        assert_eq!(host.traces(), Vec::<String>::new());
    });
}

#[test]
fn everything_with_the_prefix_can_be_removed_without_notes() {
    on_a_host(async |host| {
        let network = host.open("a").await;
        for _ in 0..3 {
            network.lease(&Egress::None).await.unwrap();
        }
        let other = host.open("b").await;
        let kept = other.lease(&Egress::None).await.unwrap();
        network.close().await;
        drop(network);
        std::fs::remove_dir_all(host.directory("a")).unwrap();
        let network = host.open("a").await;
        let next = network.lease(&Egress::None).await.unwrap();
        assert_eq!(next.id.0, 4, "numbers in use are not given out, though nothing notes them");
        network.remove_all().await.unwrap();
        assert_eq!(other.leases().await.unwrap(), [kept]);
        other.remove_all().await.unwrap();
        assert_eq!(host.traces(), Vec::<String>::new());
    });
}
