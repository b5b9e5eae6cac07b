//! Images of the proof's own, which are imported and removed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use reqwest::Method;
use serde_json::{Value, json};

use super::Operation;
use crate::host::{names, word};
use crate::report::Kind;
use crate::world::{Fault, World};

const TAG: &str = "proof";
const FILES: u32 = 50;

/// The image directory of a daemon in `directory`.
pub(crate) fn directory(directory: &Path) -> PathBuf {
    directory.join("images")
}

fn source(world: &World) -> PathBuf {
    world.directory.join("source")
}

fn images(world: &World) -> PathBuf {
    directory(world.traces.data.parent().unwrap_or(Path::new("/")))
}

fn content(number: u32) -> String {
    format!("file {number}\n").repeat(100)
}

/// Makes the source of imports.
pub(crate) fn make_source(directory: &Path) -> Result<()> {
    let source = directory.join("source/etc");
    std::fs::create_dir_all(&source).with_context(|| format!("make {}", source.display()))?;
    for number in 0..FILES {
        let path = source.join(format!("file-{number}"));
        std::fs::write(&path, content(number)).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

pub(crate) async fn import(world: &World) -> Result<Value> {
    world.daemon.import_image(&source(world), TAG).await
}

pub(super) async fn remove(world: &World) -> Result<Value> {
    world.daemon.ask(Method::DELETE, &format!("/images/{TAG}"), None).await
}

pub(crate) async fn list(world: &World) -> Result<Vec<Value>> {
    let answer = world.daemon.get("/images").await?;
    Ok(answer["images"].as_array().cloned().unwrap_or_default())
}

/// Removes every image.
pub(crate) async fn is_gone(world: &World) -> Result<()> {
    for image in list(world).await? {
        world.daemon.ask(Method::DELETE, &format!("/images/{}", word(&image, "digest")), None).await?;
    }
    Ok(())
}

pub(super) async fn is_there(world: &World) -> Result<Value> {
    import(world).await
}

/// Checks that an image is whole or not there, and that nothing of a half one is left over.
pub(super) async fn judge(world: &World, operation: Operation, is_done: bool, faults: &mut Vec<Fault>) -> Result<()> {
    let listed = list(world).await?;
    let has_tag = |image: &Value| image["tags"].as_array().is_some_and(|tags| tags.contains(&json!(TAG)));
    let is_there = listed.iter().any(has_tag);
    if is_done && is_there != (operation == Operation::ImportImage) {
        faults.push((Kind::DataLost, format!("after '{}' there are the images {listed:?}", operation.name())));
    }
    for image in &listed {
        let rootfs = images(world).join(word(image, "digest")).join("rootfs");
        for number in 0..FILES {
            let path = rootfs.join(format!("etc/file-{number}"));
            if std::fs::read_to_string(&path).ok() != Some(content(number)) {
                faults.push((Kind::DataLost, format!("{} is not what was imported", path.display())));
            }
        }
    }
    let known: Vec<String> = listed.iter().map(|image| word(image, "digest")).collect();
    for name in names(&images(world))? {
        if !["tags", "layers", "references"].contains(&name.as_str())
            && !name.starts_with(".lock")
            && !known.contains(&name)
        {
            faults.push((Kind::LeftOver, format!("left over: {}", images(world).join(name).display())));
        }
    }
    if !is_there && names(&images(world).join("tags"))?.iter().any(|tag| tag == TAG) {
        faults.push((Kind::LeftOver, format!("left over: the tag {TAG} of no image")));
    }
    Ok(())
}
