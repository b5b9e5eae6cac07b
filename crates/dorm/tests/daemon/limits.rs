//! Guests that reach limits: the operation at the limit fails, and the sandbox and its other
//! processes continue.

use dorm_testing::until;
use serde_json::json;

use crate::place::{Counter, PATIENCE, Place};

#[tokio::test]
async fn a_full_disk_is_an_error_inside_and_nothing_else() {
    let place = Place::new();
    let daemon = place.daemon();
    let asked = json!({ "name": "web", "image": "base", "resources": { "disk_bytes": 256 << 20 } });
    let mut counter = Counter::create(daemon, asked).await;
    let id = counter.id.clone();
    let (code, said) = daemon.exec(&id, &["dd", "if=/dev/zero", "of=/root/big", "bs=1M", "count=400"]).await.unwrap();
    assert!(code != 0 && said.contains("No space left"), "{code} {said}");
    let used = daemon.get(&format!("/sandboxes/{id}/usage")).await.unwrap()["disk_bytes"].as_u64().unwrap();
    assert!((200 << 20..=256 << 20).contains(&used), "{used} bytes of it are taken");
    assert_eq!(daemon.exec(&id, &["rm", "/root/big"]).await.unwrap().0, 0);
    assert_eq!(daemon.exec(&id, &["sh", "-c", "echo kept > /root/small"]).await.unwrap().0, 0);
    counter.is_whole(daemon).await;
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    counter.is_whole(daemon).await;
    assert_eq!(daemon.exec(&id, &["cat", "/root/small"]).await.unwrap().1.trim(), "kept");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_process_that_takes_all_memory_dies_alone() {
    let place = Place::new();
    let daemon = place.daemon();
    let asked = json!({ "name": "web", "image": "base", "resources": { "memory_bytes": 256 << 20 } });
    let mut counter = Counter::create(daemon, asked).await;
    let id = counter.id.clone();
    daemon.exec(&id, &["sh", "-c", "echo kept > /root/file"]).await.unwrap();
    let greedy = "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 20)))";
    let (code, _) = daemon.exec(&id, &["python3", "-c", greedy]).await.unwrap();
    assert_ne!(code, 0);
    counter.is_whole(daemon).await;
    assert_eq!(daemon.exec(&id, &["cat", "/root/file"]).await.unwrap().1.trim(), "kept");
    assert_eq!(daemon.describe(&id).await.unwrap()["generation"], 1, "it is still the same run");
    let noted = || async {
        let events = daemon.get(&format!("/events?sandbox={id}&limit=100")).await?;
        Ok(events.to_string().contains("oom_victim_killed"))
    };
    until(PATIENCE, "the event is there", noted).await.unwrap();
    place.end(&[]).await;
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_the_sandbox_can_be_ended() {
    let place = Place::new();
    let daemon = place.daemon();
    let asked = json!({ "name": "web", "image": "base", "resources": { "processes": 64 } });
    let id = daemon.create(asked).await.unwrap();
    let bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
    let process = json!({ "argv": ["python3", "-c", bomb] });
    daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
    let bounded = || async {
        let usage = daemon.get(&format!("/sandboxes/{id}/usage")).await?;
        Ok(usage["processes"].as_u64().unwrap_or(0) > 0 || daemon.describe(&id).await?["state"] == "terminated")
    };
    until(PATIENCE, "it runs", bounded).await.unwrap();
    let other = daemon.create(json!({ "image": "base" })).await.unwrap();
    assert_eq!(daemon.exec(&other, &["true"]).await.unwrap().0, 0, "another sandbox does not notice");
    assert_eq!(daemon.act(&id, "terminate").await.unwrap()["state"], "terminated");
    place.end(&["memory pressure", "run"]).await;
}

#[tokio::test]
async fn a_sandbox_reads_and_writes_its_disk_no_faster_than_allowed() {
    const LIMITED: [&str; 8] = [
        "--warm-containers",
        "0",
        "--disk-write-mib-per-second",
        "8",
        "--disk-read-mib-per-second",
        "8",
        "--disk-operations-per-second",
        "0",
    ];
    let mut place = Place::with(&LIMITED);
    let id = place.daemon().create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let disk = std::fs::read_dir(place.daemon().data().join("gvisor/containers")).unwrap().flatten().next().unwrap();
    let disk = std::fs::File::open(disk.path().join("disk/mnt")).unwrap();
    rustix::fs::syncfs(&disk).unwrap();
    // Writes go to the host's memory first. Writing them to the disk takes as long as the limit
    // permits, also for a process outside of the sandbox that waits for it.
    let began = std::time::Instant::now();
    let (code, said) =
        place.daemon().exec(&id, &["dd", "if=/dev/urandom", "of=/root/big", "bs=1M", "count=48"]).await.unwrap();
    assert_eq!(code, 0, "{said}");
    tokio::task::spawn_blocking(move || rustix::fs::syncfs(&disk)).await.unwrap().unwrap();
    let took = began.elapsed();
    assert!(took.as_secs() >= 4, "48 MiB at 8 MiB a second in {took:?}");
    let usage = place.daemon().get(&format!("/sandboxes/{id}/usage")).await.unwrap();
    assert_eq!(usage["disk_io"]["write_limit"], 8 << 20, "{usage}");
    assert_eq!(usage["disk_io"]["operations_limit"], json!(null), "{usage}");
    // A daemon with other limits applies them to the sandboxes that it adopts.
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    place.daemon_mut().start_again_with(&["--warm-containers", "0"]).unwrap();
    let usage = place.daemon().get(&format!("/sandboxes/{id}/usage")).await.unwrap();
    assert_eq!(usage["disk_io"]["write_limit"], 256 << 20, "{usage}");
    place.end(&[]).await;
}
