//! Volumes: created, attached, written to, kept through sleep, detached and removed.
//!
//! Each acknowledgement is noted at once, since the daemon may die between two requests of one
//! operation.

use anyhow::{Context as _, Result, bail, ensure};
use dorm_testing::{Daemon, held_by_kernel, until};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Heard, Operation, Scene};
use crate::diary::{Diary, Removal};
use crate::host::{names, word};
use crate::probe::{PATIENCE, Probe};
use crate::report::Kind;
use crate::world::{Fault, World, fault};

const PLACE: &str = "/data";
const SIZE: u64 = 32 << 20;

/// Makes a volume with a file, and for some operations a sandbox that has it attached.
pub(super) async fn prepare(world: &mut World, operation: Operation, scene: &mut Scene) -> Result<()> {
    if operation == Operation::UseVolume {
        return Ok(());
    }
    make(world, &scene.label).await?;
    put(world, &scene.label, "before").await?;
    let probe = match operation {
        Operation::AttachVolume => world.create(json!({ "name": format!("with-{}", scene.label) })).await?,
        Operation::SleepWithVolume => {
            let asked = json!({ "name": format!("with-{}", scene.label), "volumes": attached(&scene.label) });
            let probe = world.create(asked).await?;
            world.diary.is_attached = Some(true);
            probe
        }
        _ => return Ok(()),
    };
    scene.subject = Some(probe);
    Ok(())
}

fn attached(volume: &str) -> Value {
    json!([{ "volume": volume, "path": PLACE }])
}

async fn make(world: &mut World, name: &str) -> Result<()> {
    world.daemon.post("/volumes", json!({ "name": name, "size_bytes": SIZE })).await?;
    world.diary.is_made = true;
    Ok(())
}

async fn remove(world: &mut World, name: &str) -> Result<Value> {
    world.diary.removal = Removal::Asked;
    let removed = world.daemon.ask(Method::DELETE, &format!("/volumes/{name}"), None).await?;
    world.diary.removal = Removal::Done;
    Ok(removed)
}

/// Writes the file from outside of a sandbox.
async fn put(world: &mut World, name: &str, text: &str) -> Result<()> {
    world.diary.asked = Some(text.to_owned());
    let path = format!("/volumes/{name}/files?path=in/file");
    let answer = world.daemon.request(Method::PUT, &path).body(text.to_owned()).timeout(PATIENCE).send().await?;
    ensure!(answer.status().is_success(), "write {path}: {}", answer.text().await?);
    acknowledged(world);
    Ok(())
}

/// Writes the file in a sandbox.
async fn write(world: &mut World, id: &str, text: &str) -> Result<()> {
    world.diary.asked = Some(text.to_owned());
    world.daemon.write(id, &format!("{PLACE}/in/file"), text.as_bytes().to_vec()).await?;
    // As anywhere, a guest's write is only on the disk after a sync.
    let (code, said) = world.daemon.exec(id, &["sync"]).await?;
    ensure!(code == 0, "sync: {said}");
    acknowledged(world);
    Ok(())
}

fn acknowledged(world: &mut World) {
    world.diary.held = world.diary.asked.take();
}

/// The file, read from outside of a sandbox; `None` if there is none.
async fn get(daemon: &Daemon, name: &str) -> Result<Option<String>> {
    let path = format!("/volumes/{name}/files?path=in/file");
    let answer = daemon.request(Method::GET, &path).timeout(PATIENCE).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    match status.as_u16() {
        200 => Ok(Some(text)),
        404 => Ok(None),
        _ => bail!("{path}: {status}: {text}"),
    }
}

pub(super) async fn perform(world: &mut World, operation: Operation, scene: &Scene) -> Result<Value> {
    let name = scene.label.clone();
    let id = scene.subject.as_ref().map(|subject| subject.id.clone()).unwrap_or_default();
    match operation {
        Operation::UseVolume => {
            make(world, &name).await?;
            put(world, &name, "in").await?;
            put(world, &name, "again").await?;
            let found = get(&world.daemon, &name).await?;
            ensure!(found.as_deref() == Some("again"), "the file is {found:?}");
            remove(world, &name).await
        }
        Operation::CreateWithVolume => {
            let asked = json!({ "image": world.image, "labels": { "prove": name }, "volumes": attached(&name) });
            let view = world.daemon.post("/sandboxes", asked).await?;
            write(world, &word(&view, "id"), "inside").await?;
            Ok(view)
        }
        Operation::AttachVolume => {
            let path = format!("/sandboxes/{id}/volumes");
            let asked = json!({ "volume": name, "path": PLACE });
            world.diary.is_attached = None;
            world.daemon.post(&path, asked).await?;
            world.diary.is_attached = Some(true);
            write(world, &id, "attached").await?;
            world.diary.is_attached = None;
            let view = world.daemon.ask(Method::DELETE, &format!("{path}?path={PLACE}"), None).await?;
            world.diary.is_attached = Some(false);
            Ok(view)
        }
        _ => {
            write(world, &id, "awake").await?;
            world.daemon.act(&id, "suspend").await?;
            world.diary.has_slept = true;
            world.daemon.act(&id, "evict").await?;
            // The volume is free.
            put(world, &name, "asleep").await?;
            let view = world.daemon.act(&id, "resume").await?;
            write(world, &id, "awake again").await?;
            Ok(view)
        }
    }
}

/// Checks that nothing acknowledged is lost, that at most one sandbox can write, and that no lease
/// or device is left over. Then removes everything.
pub(super) async fn judge(
    world: &mut World,
    operation: Operation,
    scene: Scene,
    heard: &Heard,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let name = scene.label.clone();
    let is_there = world.daemon.try_ask(Method::GET, &format!("/volumes/{name}"), None).await?.status == 200;
    let diary = world.diary.clone();
    if is_there && diary.removal == Removal::Done {
        faults.push((Kind::WrongAnswer, format!("volume {name} is there, though it was removed")));
    }
    if !is_there && diary.is_made && diary.removal == Removal::Not {
        faults.push((Kind::DataLost, format!("volume {name} is gone")));
    }
    if is_there {
        let mut users = living(world, &name, &scene).await?;
        if operation == Operation::CreateWithVolume {
            let told = heard.as_ref().map(|view| word(view, "id"));
            // A sandbox that ran without an image ends in a power cut.
            let may_be_over = world.lost_power && users.is_empty();
            if users.len() > 1 || (!may_be_over && told.as_ref().is_some_and(|told| users != [told.clone()])) {
                faults.push((Kind::SandboxLost, format!("{users:?} were created, and {told:?} was answered")));
            }
        }
        if let Some(mut subject) = scene.subject {
            faults.extend(used(world, &mut subject, &name, &diary).await?);
            users.push(subject.id);
        }
        for user in users {
            faults.extend(writes(world, &user, &name).await?);
            world.daemon.act(&user, "terminate").await?;
        }
        if !diary_allows(world, &name).await? {
            let found = get(&world.daemon, &name).await?;
            faults.push((Kind::DataLost, format!("{found:?} is on volume {name} instead of {:?}", diary.held)));
        }
        faults.extend(clean(world, &name).await?);
        // The volume has no lease any more: a new one is granted at once.
        let asked = json!({ "image": world.image, "volumes": attached(&name) });
        match world.daemon.create(asked).await {
            Ok(id) => drop(world.daemon.act(&id, "terminate").await?),
            Err(error) => faults.push((Kind::LeftOver, format!("volume {name} cannot be written to: {error:#}"))),
        }
        remove(world, &name).await?;
    }
    faults.extend(world.settle().await?);
    let left = names(&world.traces.data.join("volumes"))?;
    faults.extend(left.into_iter().map(|name| (Kind::LeftOver, format!("left over: volumes/{name}"))));
    // No volume is in use: no mount and no device may be left.
    let held = || held_by_kernel(&world.traces.data).into_iter().filter(|found| found.contains("/volumes/"));
    let none = until(PATIENCE, "volumes are let go", || async { Ok(held().next().is_none()) }).await;
    if none.is_err() {
        faults.extend(held().map(|found| (Kind::LeftOver, format!("left over: {found}"))));
    }
    Ok(())
}

async fn diary_allows(world: &World, name: &str) -> Result<bool> {
    Ok(world.diary.allows(get(&world.daemon, name).await?.as_deref()))
}

/// The sandboxes that were created with the volume.
async fn living(world: &World, name: &str, scene: &Scene) -> Result<Vec<String>> {
    let found = world.daemon.get(&format!("/sandboxes?label=prove={name}")).await?;
    let found = found["sandboxes"].as_array().into_iter().flatten();
    let living = found.filter(|sandbox| sandbox["state"] != "terminated").map(|sandbox| word(sandbox, "id"));
    let own = scene.subject.as_ref().map(|subject| subject.id.clone());
    Ok(living.filter(|id| Some(id) != own.as_ref()).collect())
}

/// Checks that the sandbox has its data, and the volume if it should. Resumes it if it slept.
async fn used(world: &mut World, subject: &mut Probe, name: &str, diary: &Diary) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let view = world.daemon.describe(&subject.id).await?;
    if word(&view, "state") == "suspended" {
        // Its lease was released: another sandbox can take it, and does.
        let asked = json!({ "image": world.image, "volumes": attached(name) });
        match world.daemon.create(asked).await {
            Ok(id) => {
                let text = get(&world.daemon, name).await?;
                faults.extend(check(diary, text.as_deref(), name));
                write(world, &id, "another").await?;
                world.daemon.act(&id, "terminate").await?;
            }
            Err(error) => faults.push((Kind::LeftOver, format!("a sleeper keeps volume {name}: {error:#}"))),
        }
    }
    world.daemon.act(&subject.id, "resume").await?;
    faults.extend(subject.is_whole(&world.daemon).await.err().map(fault));
    let volumes = view["volumes"].as_array().cloned().unwrap_or_default();
    let is_attached = volumes.iter().any(|volume| volume["path"] == PLACE);
    if diary.is_attached.is_some_and(|wanted| wanted != is_attached) {
        faults.push((Kind::DataLost, format!("volume {name} is attached: {is_attached}, not as was acknowledged")));
    }
    let (code, said) = world.daemon.exec(&subject.id, &["cat", &format!("{PLACE}/in/file")]).await?;
    match (is_attached, code) {
        (true, 0) => faults.extend(check(&world.diary, Some(&said), name)),
        (true, _) => faults.push((Kind::DataLost, format!("volume {name} is not seen inside: {said}"))),
        (false, 0) => faults.push((Kind::LeftOver, format!("volume {name} is seen inside: {said}"))),
        (false, _) => {}
    }
    Ok(faults)
}

fn check(diary: &Diary, text: Option<&str>, name: &str) -> Option<Fault> {
    let what = || format!("{text:?} is on volume {name} instead of {:?}", diary.held);
    (!diary.allows(text)).then(|| (Kind::DataLost, what()))
}

/// Checks that a sandbox running with the volume can write to it, and that no second writer can be
/// created.
async fn writes(world: &mut World, id: &str, name: &str) -> Result<Vec<Fault>> {
    let view = world.daemon.describe(id).await?;
    let has = view["volumes"].as_array().is_some_and(|volumes| !volumes.is_empty());
    if !has || word(&view, "state") != "running" {
        return Ok(Vec::new());
    }
    write(world, id, "its own").await.with_context(|| format!("sandbox {id} cannot write to its volume"))?;
    let asked = json!({ "image": world.image, "volumes": attached(name) });
    let second = world.daemon.try_ask(Method::POST, "/sandboxes", Some(asked)).await?;
    if second.status == 409 {
        return Ok(Vec::new());
    }
    if let Some(second) = second.body["id"].as_str() {
        world.daemon.act(second, "terminate").await?;
    }
    Ok(vec![(Kind::DataLost, format!("volume {name} has a second writer beside {id}: {}", second.body))])
}

/// Checks that the volume has no unknown files.
async fn clean(world: &World, name: &str) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for directory in ["", "in"] {
        let asked = format!("/volumes/{name}/files/list?path=/{directory}");
        let listed = world.daemon.try_ask(Method::GET, &asked, None).await?;
        for entry in listed.body["entries"].as_array().into_iter().flatten() {
            if !["in", "file"].contains(&word(entry, "name").as_str()) {
                faults.push((Kind::LeftOver, format!("left over: {} on volume {name}", entry["name"])));
            }
        }
    }
    Ok(faults)
}
