//! Root in a sandbox attacks the host without harm to the host.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::json;

use crate::place::{Counter, Place};

/// The disk usage of the files below a directory, without those of other mounts.
fn bytes_below(directory: &Path) -> u64 {
    let device = |path: &Path| path.symlink_metadata().map(|found| found.dev()).ok();
    let here = device(directory);
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() && device(&entry.path()) == here => bytes_below(&entry.path()),
        Ok(found) if found.is_file() => found.blocks() * 512,
        _ => 0,
    });
    sizes.sum()
}

#[tokio::test]
async fn the_agents_standard_error_is_no_way_past_the_disks_size() {
    let place = Place::new();
    let daemon = place.daemon();
    let asked = json!({ "name": "web", "image": "base", "resources": { "disk_bytes": 64 << 20 } });
    let mut counter = Counter::create(daemon, asked).await;
    let id = counter.id.clone();
    let before = bytes_below(daemon.data());
    let flood = "
import os, time
out = os.open('/proc/1/fd/2', os.O_WRONLY)
end, written = time.monotonic() + 20, 0
while written < 8 << 20 and time.monotonic() < end:
    try: written += os.write(out, b'x' * 65536)
    except BlockingIOError: time.sleep(0.01)
print(written)
";
    let (code, said) = daemon.exec(&id, &["python3", "-c", flood]).await.unwrap();
    assert_eq!(code, 0, "{said}");
    let written: u64 = said.trim().parse().unwrap();
    assert!(written > 1 << 20, "it could write {written} bytes");
    let grown = bytes_below(daemon.data()).saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes more on the host's disk");
    counter.is_whole(daemon).await;
    // The sandbox can still be suspended and resumed.
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    counter.is_whole(daemon).await;
    place.end(&[]).await;
}

/// Creates empty files, whose names alone use up the memory of the sandbox's kernel.
const MANY_FILES: &str = "
import os
for number in range(150000):
    directory = f'/root/many/{number // 1000}'
    if number % 1000 == 0: os.makedirs(directory)
    os.close(os.open(f'{directory}/{number}' + 'f' * 100, os.O_CREAT | os.O_WRONLY))
";

#[tokio::test]
async fn a_sandbox_with_very_many_files_outlives_its_snapshots_and_sleeps() {
    let place = Place::with(&["--warm-containers", "0"]);
    let daemon = place.daemon();
    let resources = json!({ "memory_bytes": 704 << 20, "disk_bytes": 2_u64 << 30 });
    let id = daemon.create(json!({ "name": "many", "image": "base", "resources": resources })).await.unwrap();
    let process = json!({ "argv": ["sh", "-c", "echo $$ > /root/pid; exec sleep 100000"] });
    daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
    assert_eq!(daemon.exec(&id, &["python3", "-c", MANY_FILES]).await.unwrap().0, 0);
    let is_whole = "kill -0 $(cat /root/pid) && find /root/many -type f | wc -l";
    let whole = || async { daemon.exec(&id, &["sh", "-c", is_whole]).await.unwrap().1.trim().to_owned() };
    daemon.checkpoint(&id, "filesystem").await.unwrap();
    assert_eq!(whole().await, "150000");
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    assert_eq!(whole().await, "150000");
    place.end(&[]).await;
}
