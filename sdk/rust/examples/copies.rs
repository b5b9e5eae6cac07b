//! Snapshots, forks and rewinds: several attempts, of which the best is kept.

use dorm_client::types::{PromoteRequest, SnapshotKind};
use dorm_client::{ClientError, Dormouse};

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let dormouse = Dormouse::from_env()?;
    let source = dormouse.create("base").name("copies").await?;
    source.files().write("/work/answer", "none").await?;
    let snapshot = source.checkpoint(SnapshotKind::Filesystem).await?;

    // Each child continues with the memory, processes and files of the source.
    let children = source.fork(3).await?;
    for (number, child) in children.iter().enumerate() {
        child.exec(format!("echo attempt {number} > /work/answer")).check().await?;
    }

    // The source continues as the child that has won, under its own id and name.
    children[1].promote(&PromoteRequest::default()).await?;
    for child in &children {
        child.terminate().await?;
    }
    print!("{}", source.files().read_text("/work/answer").await?);
    let changes = source.diff(&snapshot.id).await?.changes;
    for entry in changes.iter().filter(|entry| entry.path.to_string().starts_with("/work/")) {
        println!("{} {:?}", entry.path, entry.change);
    }

    let rewound = source.rewind(&snapshot.id).await?;
    println!("{}", source.files().read_text("/work/answer").await?);
    println!("the state before is kept: {}", rewound.future.is_some());

    source.terminate().await?;
    for snapshot in source.snapshots().await? {
        dormouse.client().delete_snapshot(&snapshot.id, true).await?;
    }
    Ok(())
}
