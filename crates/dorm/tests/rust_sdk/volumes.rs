//! Volumes.

use anyhow::Result;
use dorm_client::Dormouse;
use dorm_client::types::{AttachVolume, CreateVolume, VolumeFileKind, Writers};
use futures_util::TryStreamExt as _;

use crate::cases::{Cases, code_of};

fn asked(name: &str, writers: Writers) -> CreateVolume {
    CreateVolume { name: name.to_owned(), size_bytes: Some(64 << 20), writers: Some(writers) }
}

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
}

crate::cases::area! {
    a_volume_is_created_found_and_listed,
    a_name_is_taken_once,
    files_are_written_and_read_without_a_sandbox,
    a_volume_is_attached_at_the_start,
    a_volume_is_attached_to_and_detached_from_a_running_sandbox,
    two_sandboxes_share_a_volume,
    a_volume_for_reading_only_is_not_written_to,
    a_volume_in_use_is_not_deleted,
}

#[tokio::test]
async fn volumes() {
    let mut cases = Cases::new("volumes");
    let dormouse = cases.dormouse();
    dormouse.client().create_volume(&asked("shared", Writers::Many)).await.unwrap();
    let on = On { dormouse };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_volume_is_created_found_and_listed(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let volume = client.volume("shared").await?;
    assert_eq!((volume.size_bytes, volume.writers), (64 << 20, Writers::Many));
    assert_eq!(client.volume(&volume.id).await?, volume);
    assert!(client.volumes().await?.iter().any(|one| one.id == volume.id));
    Ok(())
}

async fn a_name_is_taken_once(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    assert_eq!(code_of(client.create_volume(&asked("shared", Writers::One)).await), "conflict");
    Ok(())
}

async fn files_are_written_and_read_without_a_sandbox(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let contents = futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"outside"))]);
    client.write_volume("shared", "dir/file", contents).await?;
    let read = client.read_volume("shared", "dir/file").await?;
    assert_eq!(read.try_collect::<Vec<_>>().await?.concat(), b"outside");
    let entries = client.volume_files("shared", "dir").await?;
    assert_eq!((entries[0].name.as_str(), entries[0].kind), ("file", VolumeFileKind::File));
    assert_eq!(code_of(client.read_volume("shared", "none").await), "not_found");
    Ok(())
}

async fn a_volume_is_attached_at_the_start(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let client = on.dormouse.client();
    let sandbox = dormouse.create("base").volume("shared", "/data").await?;
    assert_eq!(sandbox.files().read_text("/data/dir/file").await?, "outside");
    sandbox.files().write("/data/inside", "yes").await?;
    sandbox.terminate().await?;
    let read = client.read_volume("shared", "inside").await?;
    assert_eq!(read.try_collect::<Vec<_>>().await?.concat(), b"yes");
    Ok(())
}

async fn a_volume_is_attached_to_and_detached_from_a_running_sandbox(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").await?;
    let attached = sandbox.attach("shared", "/mnt/data").await?;
    assert_eq!(attached.volumes[0].path, "/mnt/data");
    assert_eq!(sandbox.files().read_text("/mnt/data/dir/file").await?, "outside");
    assert!(sandbox.detach("/mnt/data").await?.volumes.is_empty());
    assert!(!sandbox.files().exists("/mnt/data/dir").await?);
    sandbox.terminate().await?;
    Ok(())
}

async fn two_sandboxes_share_a_volume(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let one = dormouse.create("base").volume("shared", "/data").await?;
    let two = dormouse.create("base").volume("shared", "/data").await?;
    one.files().write("/data/both", "seen").await?;
    assert_eq!(two.files().read_text("/data/both").await?, "seen");
    one.terminate().await?;
    two.terminate().await?;
    Ok(())
}

async fn a_volume_for_reading_only_is_not_written_to(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let client = on.dormouse.client();
    let sandbox = dormouse.create("base").await?;
    let path = "/data".to_owned();
    let volume = AttachVolume { volume: "shared".to_owned(), path, read_only: true, subpath: None };
    client.attach(sandbox.id(), &volume).await?;
    assert!(!sandbox.exec("touch /data/new").await?.is_success());
    sandbox.terminate().await?;
    Ok(())
}

async fn a_volume_in_use_is_not_deleted(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let client = on.dormouse.client();
    let sandbox = dormouse.create("base").volume("shared", "/data").await?;
    assert_eq!(code_of(client.delete_volume("shared").await), "conflict");
    sandbox.terminate().await?;
    client.delete_volume("shared").await?;
    assert_eq!(code_of(client.volume("shared").await), "not_found");
    Ok(())
}
