//! Commands.

use anyhow::{Result, ensure};

use super::Stage;
use super::volume::DATA;

pub(super) async fn a_command_leaves_the_memory_of_others_alone(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    for (command, code) in [("exit 0", 0), ("exit 9", 9)] {
        ensure!(stage.daemon().exec(&id, &["sh", "-c", command]).await?.0 == code, "'{command}' has another code");
        witness.counts(stage.daemon(), &id).await?;
    }
    Ok(())
}

pub(super) async fn what_a_command_has_written_stays(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    let (code, _) = stage.daemon().exec(&id, &["sh", "-c", "echo written > /root/note; exit 3"]).await?;
    ensure!(code == 3, "it ended with {code}");
    stage.has_note(&id, "written\n").await
}

pub(super) async fn a_command_ends_with_its_own_code(stage: &dyn Stage) -> Result<()> {
    let (id, witness) = stage.begin().await?;
    let ended = stage.daemon().exec(&id, &["sh", "-c", "echo said; exit 7"]).await?;
    ensure!(ended == (7, "said\n".to_owned()), "{ended:?}");
    ensure!(stage.processes(&id).await? == [witness.process], "other processes did not continue alone");
    Ok(())
}

pub(super) async fn a_command_takes_no_room_of_its_own(stage: &dyn Stage) -> Result<()> {
    let id = stage.create(stage.large()).await?;
    stage.has_no_room("/sandboxes", stage.small()).await?;
    ensure!(stage.daemon().exec(&id, &["true"]).await?.0 == 0, "it did not run");
    Ok(())
}

pub(super) async fn a_command_writes_to_a_volume_as_it_is_attached(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    let writer = stage.create(stage.writer()).await?;
    let reader = stage.create(stage.reader()).await?;
    let (code, _) = stage.daemon().exec(&writer, &["sh", "-c", "echo written > /data/note; exit 3"]).await?;
    ensure!(code == 3, "it ended with {code}");
    stage.volume_has(DATA, "note", "written\n").await?;
    stage.sees(&reader, "note", "written\n").await?;
    stage.cannot_write(&reader).await?;
    stage.volume_has(DATA, "note", "written\n").await
}
