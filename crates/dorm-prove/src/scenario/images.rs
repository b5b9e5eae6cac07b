//! A damaged file of an image: a daemon that has not used the image since its start refuses it by
//! name, and the image works again as soon as it is imported again.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::json;

use super::layers::damaged;
use crate::damage::Damage;
use crate::host::word;
use crate::operation::{images_directory, import_image, list_images, remove_images};
use crate::report::Kind;
use crate::world::{Fault, WarmContainers, World};

/// Damages a file of an image in every way.
pub(super) async fn run(world: &mut World, random: &mut fastrand::Rng) -> Result<(u64, Vec<Fault>)> {
    let (mut faults, mut done) = (Vec::new(), 0);
    for damage in Damage::ALL {
        import_image(world).await?;
        let images = list_images(world).await?;
        let [image] = images.as_slice() else { bail!("there are {} images, not one", images.len()) };
        let digest = word(image, "digest");
        let above = world.traces.data.parent().unwrap_or(Path::new("/"));
        let file = images_directory(above).join(&digest).join("rootfs/etc/file-0");
        world.restart(WarmContainers::None)?;
        let aside = world.directory.join("aside");
        fs::rename(&file, &aside).with_context(|| format!("set {} aside", file.display()))?;
        damaged(&aside, &file, damage, random)?;
        fs::remove_file(&aside).context("remove what was set aside")?;
        refused(world, &digest, damage, &mut faults).await?;
        // The damage was detected before, which must not keep the import from repairing it.
        import_image(world).await?;
        let checked = world.daemon.post("/verify", json!({ "kind": "image", "id": digest })).await?;
        if checked["verdict"] != "sound" {
            faults.push((Kind::WrongAnswer, format!("an image that was imported again is still damaged: {checked}")));
        }
        remove_images(world).await?;
        done += 1;
    }
    faults.extend(world.settle().await?);
    Ok((done, faults))
}

/// Checks that nothing is started from the image, and that the damaged file is named.
async fn refused(world: &World, digest: &str, damage: Damage, faults: &mut Vec<Fault>) -> Result<()> {
    let answer = world.daemon.try_ask(Method::POST, "/sandboxes", Some(json!({ "image": digest }))).await?;
    let said = answer.body.to_string();
    if answer.status < 400 {
        faults.push((Kind::DataLost, format!("a sandbox was started from a damaged image ({damage:?}): {said}")));
        world.daemon.act(&word(&answer.body, "id"), "terminate").await?;
    } else if !said.contains("file-0") {
        faults.push((Kind::WrongAnswer, format!("the refusal does not name the damaged file ({damage:?}): {said}")));
    }
    Ok(())
}
