//! An image in layers, imported from a directory and pulled from a registry: it is whole or not
//! there, and none of its files are left without an owner.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::images::{directory, list};
use super::{Heard, Operation};
use crate::host::{names, word};
use crate::layered_image::{self, LayeredImage};
use crate::report::Kind;
use crate::world::{Fault, World};

const TAG: &str = "layered";

/// Puts the image where it can be imported and pulled from.
pub(super) fn make(world: &mut World) -> Result<()> {
    if world.layered.is_none() {
        world.layered = Some(LayeredImage::make(&world.directory)?);
    }
    Ok(())
}

pub(super) async fn perform(world: &World, operation: Operation) -> Result<Value> {
    let Some(layered) = &world.layered else { bail!("there is no image in layers") };
    match operation {
        Operation::PullImage => {
            let reference = format!("{}/proof:1", layered.registry());
            world.daemon.post("/images/pull", json!({ "reference": reference, "tag": TAG, "pull": "always" })).await
        }
        Operation::RemoveLayers => world.daemon.ask(Method::DELETE, &format!("/images/{TAG}"), None).await,
        _ => world.daemon.import_image(layered.layout(), TAG).await,
    }
}

/// Checks that the image is whole or not there, and that later operations work as if nothing had
/// happened.
pub(super) async fn judge(world: &World, operation: Operation, heard: &Heard, faults: &mut Vec<Fault>) -> Result<()> {
    let is_there = whole_or_gone(world, faults).await?;
    if heard.is_some() && is_there != (operation != Operation::RemoveLayers) {
        let how = if is_there { "there" } else { "not there" };
        faults.push((Kind::DataLost, format!("after '{}' the image is {how}", operation.name())));
    }
    let again = if operation == Operation::RemoveLayers { Operation::ImportLayers } else { operation };
    if let Err(error) = perform(world, again).await {
        faults.push((Kind::WrongAnswer, format!("the next '{}' does not work: {error:#}", again.name())));
        return Ok(());
    }
    if !whole_or_gone(world, faults).await? {
        faults.push((Kind::DataLost, format!("after the next '{}' there is no image", again.name())));
    }
    if again == Operation::PullImage {
        let blobs = world.traces.data.join("pulls/blobs/sha256");
        left_over(&blobs, &[], faults)?;
    }
    in_a_sandbox(world, faults).await?;
    for image in list(world).await? {
        world.daemon.ask(Method::DELETE, &format!("/images/{}", word(&image, "digest")), None).await?;
    }
    left_over(&images(world).join("layers"), &[], faults)?;
    left_over(&images(world).join("tags"), &[], faults)
}

fn images(world: &World) -> PathBuf {
    directory(world.traces.data.parent().unwrap_or(Path::new("/")))
}

/// Checks every file among the images. Returns whether the image is there.
async fn whole_or_gone(world: &World, faults: &mut Vec<Fault>) -> Result<bool> {
    let listed = list(world).await?;
    let mut digests: Vec<String> = listed.iter().map(|image| word(image, "digest")).collect();
    for digest in &digests {
        let root = images(world).join(digest).join("rootfs");
        for (path, content) in layered_image::expected() {
            let found = fs::read_to_string(root.join(&path)).ok();
            if found != content {
                faults.push((Kind::DataLost, format!("{path} in image {digest} is not what its layers say")));
            }
        }
        for (one, other) in layered_image::LINKED {
            let inode = |path: &str| fs::metadata(root.join(path)).map(|facts| facts.ino()).ok();
            if inode(one).is_none() || inode(one) != inode(other) {
                faults.push((Kind::DataLost, format!("{one} and {other} in image {digest} are not one file")));
            }
        }
    }
    let layers = if digests.is_empty() { Vec::new() } else { layered_image::layer_names() };
    left_over(&images(world).join("layers"), &layers, faults)?;
    digests.extend(["tags", "layers", "references"].map(str::to_owned));
    left_over(&images(world), &digests, faults)?;
    Ok(!listed.is_empty())
}

/// Reports everything in `directory` besides `known` and locks.
fn left_over(directory: &Path, known: &[String], faults: &mut Vec<Fault>) -> Result<()> {
    for name in names(directory)? {
        if !name.starts_with(".lock") && !known.contains(&name) {
            faults.push((Kind::LeftOver, format!("left over: {}", directory.join(name).display())));
        }
    }
    Ok(())
}

/// Checks that a sandbox of the image has all of its files.
async fn in_a_sandbox(world: &World, faults: &mut Vec<Fault>) -> Result<()> {
    let id = match world.daemon.create(json!({ "image": TAG })).await {
        Ok(id) => id,
        Err(error) => {
            faults.push((Kind::DataLost, format!("nothing can be started from the image: {error:#}")));
            return Ok(());
        }
    };
    for (path, content) in layered_image::expected() {
        let asked = format!("/sandboxes/{id}/files?path=/{path}");
        let answer = world.daemon.request(Method::GET, &asked).send().await?;
        let found = if answer.status().is_success() { Some(answer.text().await?) } else { None };
        if found != content {
            faults.push((Kind::DataLost, format!("a sandbox of the image finds another /{path} in it")));
        }
    }
    world.daemon.act(&id, "terminate").await?;
    Ok(())
}
