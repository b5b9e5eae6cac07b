//! Compares a daemon's host with the daemon's records: nothing may be missing and nothing left
//! over.
//!
//! It reads kernel state and files, not the daemon's own view.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use dorm_testing::{held_by_kernel, processes_of};
use serde_json::Value;

/// How long all processes that were killed may take to end.
const GONE: Duration = Duration::from_secs(10);

/// The sandboxes and snapshots that a daemon lists.
pub(crate) struct Records {
    /// Living sandboxes.
    pub(crate) sandboxes: Vec<Value>,
    pub(crate) snapshots: Vec<Value>,
}

/// The places where one daemon leaves traces.
pub(crate) struct Traces {
    pub(crate) data: PathBuf,
    /// The common prefix of the names of everything it makes.
    pub(crate) prefix: String,
    /// The directories of its control groups, once found.
    groups: Vec<PathBuf>,
}

/// A container that the engine's notes name.
struct Container {
    id: String,
    sandbox: Option<String>,
    lease: Option<u64>,
}

impl Records {
    /// The sandboxes and snapshots that are not at rest.
    pub(crate) fn unrest(&self) -> Vec<String> {
        let resting = |sandbox: &&Value| {
            let state = sandbox["state"].as_str().unwrap_or_default();
            matches!(state, "running" | "suspended" | "terminated") && sandbox["operation"].is_null()
        };
        let mut unrest: Vec<String> = self
            .sandboxes
            .iter()
            .filter(|sandbox| !resting(sandbox))
            .map(|sandbox| format!("sandbox {} stays {}", word(sandbox, "id"), word(sandbox, "state")))
            .collect();
        let begun = |snapshot: &&Value| matches!(word(snapshot, "status").as_str(), "in_progress" | "deleting");
        unrest.extend(
            self.snapshots
                .iter()
                .filter(begun)
                .map(|snapshot| format!("snapshot {} stays {}", word(snapshot, "id"), word(snapshot, "status"))),
        );
        unrest
    }
}

pub(crate) fn word(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

impl Traces {
    pub(crate) fn of(data: PathBuf, prefix: String) -> Self {
        Self { data, prefix, groups: Vec::new() }
    }

    /// Everything that is on the host and not on record, or the other way round.
    pub(crate) fn differences(&mut self, records: &Records) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        self.saved_states(records, &mut wrong)?;
        let containers = self.containers()?;
        runs(records, &containers, &mut wrong);
        let known: BTreeSet<&str> = containers.iter().map(|container| container.id.as_str()).collect();
        self.processes(&known, &mounted(records), &mut wrong);
        self.files(&known, &mut wrong)?;
        self.control_groups(&known, &mut wrong);
        let leases: BTreeSet<u64> = containers.iter().filter_map(|container| container.lease).collect();
        self.network(&leases, &mut wrong)?;
        if wrong.is_empty() {
            // The only check that starts a program.
            self.rules(!leases.is_empty(), &mut wrong)?;
        }
        Ok(wrong)
    }

    /// Saved states in the storage: one for each sleep image and each snapshot. A sleep image of
    /// files is the content of a snapshot.
    fn saved_states(&self, records: &Records, wrong: &mut Vec<String>) -> Result<()> {
        let mut wanted: BTreeMap<(String, u64), i64> = BTreeMap::new();
        for sandbox in &records.sandboxes {
            let older = sandbox["older_images"].as_array().into_iter().flatten();
            for image in older.chain([&sandbox["sleep_image"]]).filter(|image| image["keeps"] != "files") {
                if let Some(generation) = image["generation"].as_u64() {
                    *wanted.entry((word(sandbox, "id"), generation)).or_default() += 1;
                }
            }
        }
        for snapshot in records.snapshots.iter().filter(|snapshot| snapshot["status"] == "completed") {
            let generation = snapshot["generation"].as_u64().unwrap_or_default();
            *wanted.entry((word(snapshot, "source"), generation)).or_default() += 1;
        }
        for (path, manifest) in self.manifests()? {
            let Some(manifest) = manifest else {
                wrong.push(format!("left over: {}", path.display()));
                continue;
            };
            let body = &manifest["body"];
            let of = (word(body, "sandbox"), body["generation"].as_u64().unwrap_or_default());
            *wanted.entry(of).or_default() -= 1;
            for file in body["files"].as_array().into_iter().flatten() {
                let file_path = path.join(word(file, "name"));
                let bytes = std::fs::metadata(&file_path).map(|facts| facts.len()).ok();
                if bytes != file["bytes"].as_u64() {
                    wrong.push(format!("{} has {bytes:?} bytes instead of {}", file_path.display(), file["bytes"]));
                }
            }
        }
        // An image of generation 0 is that of another sandbox, which only the manifest names.
        let mut foreign: i64 =
            wanted.iter().filter(|((_, generation), _)| *generation == 0).map(|(_, count)| count).sum();
        for ((sandbox, generation), mut count) in wanted {
            if generation == 0 {
                continue;
            }
            while count < 0 && foreign > 0 {
                (count, foreign) = (count + 1, foreign - 1);
            }
            match count {
                0 => {}
                1.. => wrong.push(format!("missing: the image of sandbox {sandbox}, generation {generation}")),
                _ => wrong.push(format!("left over: an image of sandbox {sandbox}, generation {generation}")),
            }
        }
        if foreign > 0 {
            wrong.push(format!("missing: {foreign} images that sandboxes have of others"));
        }
        Ok(())
    }

    /// Every entry of the directory of saved states, with its manifest; `None` if it has none.
    pub(crate) fn manifests(&self) -> Result<Vec<(PathBuf, Option<Value>)>> {
        let directory = self.data.join("saved_states");
        let mut found = Vec::new();
        for name in names(&directory)? {
            let path = directory.join(&name);
            let text = std::fs::read(path.join("manifest.json")).ok();
            let manifest = text.and_then(|text| serde_json::from_slice(&text).ok()).filter(|_| !name.contains('.'));
            found.push((path, manifest));
        }
        Ok(found)
    }

    fn containers(&self) -> Result<Vec<Container>> {
        let directory = self.data.join("gvisor/containers");
        let mut containers = Vec::new();
        for id in names(&directory)? {
            let note = std::fs::read(directory.join(&id).join("note.json")).unwrap_or_default();
            let note: Value = serde_json::from_slice(&note).unwrap_or_default();
            let run = note["duty"]["run"]["run"].as_str();
            let sandbox = run.and_then(|run| run.rsplit_once('-')).map(|(sandbox, _)| sandbox.to_owned());
            containers.push(Container { id, sandbox, lease: note["lease"]["held"]["id"].as_u64() });
        }
        Ok(containers)
    }

    fn processes(&self, known: &BTreeSet<&str>, volumes: &BTreeSet<String>, wrong: &mut Vec<String>) {
        let mut alive = BTreeSet::new();
        for (pid, line) in processes_of(&self.data) {
            // The daemon's own process, and programs it is just executing.
            if line.contains(" serve ") {
                continue;
            }
            match known.iter().find(|id| line.contains(**id)) {
                Some(id) if line.starts_with("runsc-sandbox") => drop(alive.insert(*id)),
                Some(_) => {}
                None => wrong.push(format!("left over: process {pid}: {}", line.trim())),
            }
        }
        wrong.extend(known.difference(&alive).map(|id| format!("missing: the process of container {id}")));
        for found in held_by_kernel(&self.data) {
            // The mount points of volumes, shared by all containers; a leftover volume there has
            // the name of its container.
            let is_for_all = found.contains("/gvisor/slots ");
            // A run that has detached a volume may keep its device until the run ends.
            let is_device = found.starts_with("loop device") && found.contains("/volumes/");
            let is_volume = volumes.iter().any(|id| found.contains(&format!("/volumes/{id}/")));
            if !is_for_all && !is_volume && !is_device && !known.iter().any(|id| found.contains(id)) {
                wrong.push(format!("left over: {found}"));
            }
        }
    }

    /// Files that runsc keeps outside of the container directories.
    fn files(&self, known: &BTreeSet<&str>, wrong: &mut Vec<String>) -> Result<()> {
        for name in names(&self.data.join("gvisor/runsc"))? {
            if !known.iter().any(|id| name.contains(id)) {
                wrong.push(format!("left over: gvisor/runsc/{name}"));
            }
        }
        Ok(())
    }

    fn control_groups(&mut self, known: &BTreeSet<&str>, wrong: &mut Vec<String>) {
        self.find_groups();
        for directory in &self.groups {
            for group in directories(directory) {
                if !known.contains(group.as_str()) {
                    wrong.push(format!("left over: control group {}", directory.join(group).display()));
                }
            }
        }
    }

    fn find_groups(&mut self) {
        if self.groups.is_empty() {
            search(Path::new("/sys/fs/cgroup"), &format!("dormouse-{}", self.prefix), 6, &mut self.groups);
        }
    }

    fn network(&self, leases: &BTreeSet<u64>, wrong: &mut Vec<String>) -> Result<()> {
        let mut look = |kind: &str, found: Vec<u64>| {
            let found: BTreeSet<u64> = found.into_iter().collect();
            wrong.extend(leases.difference(&found).map(|id| format!("missing: {kind} of network lease {id}")));
            wrong.extend(found.difference(leases).map(|id| format!("left over: {kind} of network lease {id}")));
        };
        let spaces = names(Path::new("/run/netns")).unwrap_or_default();
        let start = format!("dorm-{}-", self.prefix);
        let numbers = spaces.iter().filter_map(|name| name.strip_prefix(&start));
        let (gateways, sandboxes): (Vec<&str>, Vec<&str>) = numbers.partition(|name| name.ends_with("-gw"));
        look("the namespace", sandboxes.iter().filter_map(|name| name.parse().ok()).collect());
        look("the gateway", gateways.iter().filter_map(|name| name.trim_end_matches("-gw").parse().ok()).collect());
        let links = std::fs::read_to_string("/proc/net/dev").context("list interfaces")?;
        let start = format!("dorm{}-", self.prefix);
        let links = links.lines().filter_map(|line| line.split_once(':')?.0.trim().strip_prefix(&start)?.parse().ok());
        look("the interface", links.collect());
        let notes = names(&self.data.join("network"))?;
        look("the note", notes.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect());
        Ok(())
    }

    fn rules(&self, wanted: bool, wrong: &mut Vec<String>) -> Result<()> {
        let table = format!("dorm_{}", self.prefix);
        let listed = Command::new("nft").args(["list", "tables"]).env("PATH", PATH).output().context("run nft")?;
        let is_there = String::from_utf8_lossy(&listed.stdout).split_whitespace().any(|word| word == table);
        match (wanted, is_there) {
            (true, false) => wrong.push(format!("missing: the packet rules {table}")),
            (false, true) => wrong.push(format!("left over: the packet rules {table}")),
            (true, true) | (false, false) => {}
        }
        Ok(())
    }
}

impl Traces {
    /// Removes the parent control groups, which a daemon keeps when it has no sandbox any more.
    pub(crate) fn remove_groups(&mut self) {
        for group in std::mem::take(&mut self.groups) {
            let _ = std::fs::remove_dir(group);
        }
    }

    /// The processes of the daemon that still run.
    pub(crate) fn processes_left(&self) -> Vec<(u32, String)> {
        processes_of(&self.data)
    }

    /// Ends and removes everything that a daemon that no longer starts has made, found by its
    /// names.
    pub(crate) fn clear_by_force(&mut self) {
        self.find_groups();
        // A frozen process does not die even when killed.
        for group in &self.groups {
            for inner in directories(group) {
                let inner = group.join(inner);
                for (switch, word) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
                    if inner.join(switch).exists() {
                        let _ = std::fs::write(inner.join(switch), word);
                    }
                }
            }
        }
        let inside = self.groups.iter().flat_map(|group| processes_in(group));
        for pid in processes_of(&self.data).into_iter().map(|(pid, _)| pid).chain(inside) {
            let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
            let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        // The latest mounts are unmounted first.
        for mount in mounts.lines().rev().filter_map(|line| line.split(' ').nth(4)) {
            if Path::new(mount).starts_with(&self.data) {
                let _ = rustix::mount::unmount(mount, rustix::mount::UnmountFlags::DETACH);
            }
        }
        let start = format!("dorm-{}-", self.prefix);
        let spaces = names(Path::new("/run/netns")).unwrap_or_default();
        for space in spaces.iter().filter(|name| name.starts_with(&start)) {
            let name = Path::new("/run/netns").join(space);
            let _ = rustix::mount::unmount(&name, rustix::mount::UnmountFlags::DETACH);
            let _ = std::fs::remove_file(&name);
        }
        run("nft", &["delete", "table", "inet", &format!("dorm_{}", self.prefix)]);
        let end = Instant::now() + GONE;
        for group in &self.groups {
            for inner in directories(group) {
                remove_once_empty(&group.join(inner), end);
            }
        }
        self.remove_groups();
    }

    /// The leftovers on the host after everything was tried, with the reason.
    pub(crate) fn remains(&mut self, reason: String) -> Vec<String> {
        // Its own files are removed with its directory; only leftovers in the kernel matter.
        for own in ["gvisor", "saved_states", "network"] {
            let _ = std::fs::remove_dir_all(self.data.join(own));
        }
        let nothing = Records { sandboxes: Vec::new(), snapshots: Vec::new() };
        let mut left = self.differences(&nothing).unwrap_or_else(|error| vec![format!("{error:#}")]);
        if !left.is_empty() {
            left.push(reason);
        }
        left
    }
}

fn run(program: &str, arguments: &[&str]) {
    let _ = Command::new(program).args(arguments).env("PATH", PATH).output();
}

/// The `PATH` for programs of the host: that of a shell made by `su` may lack some directories.
pub(crate) const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// The volumes of sandboxes that run or are parked.
fn mounted(records: &Records) -> BTreeSet<String> {
    let has_them = |sandbox: &&Value| matches!(word(sandbox, "residence").as_str(), "running" | "parked");
    let volumes = records.sandboxes.iter().filter(has_them).filter_map(|sandbox| sandbox["volumes"].as_array());
    volumes.flatten().map(|volume| word(volume, "volume")).collect()
}

/// Checks that each sandbox that runs or is parked has exactly one container, and that there are no
/// others.
fn runs(records: &Records, containers: &[Container], wrong: &mut Vec<String>) {
    let mut wanted: BTreeMap<String, i64> = BTreeMap::new();
    for sandbox in &records.sandboxes {
        if matches!(word(sandbox, "residence").as_str(), "running" | "parked") {
            wanted.insert(word(sandbox, "id"), 1);
        }
    }
    for container in containers {
        match &container.sandbox {
            Some(sandbox) => *wanted.entry(sandbox.clone()).or_default() -= 1,
            None => wrong.push(format!("left over: container {}, which no run has", container.id)),
        }
    }
    for (sandbox, count) in wanted {
        match count {
            0 => {}
            1.. => wrong.push(format!("missing: the container of sandbox {sandbox}")),
            _ => wrong.push(format!("left over: a container of sandbox {sandbox}")),
        }
    }
}

/// The names in a directory; empty if there is no such directory.
pub(crate) fn names(directory: &Path) -> Result<Vec<String>> {
    match std::fs::read_dir(directory) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("list {}", directory.display())),
    }
}

/// The processes in the groups below a control group.
fn processes_in(group: &Path) -> Vec<u32> {
    let lists = directories(group).into_iter().map(|inner| group.join(inner).join("cgroup.procs"));
    let texts = lists.filter_map(|list| std::fs::read_to_string(list).ok());
    texts.flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Removes a control group once the processes that were killed in it are gone, if that is before
/// `end`.
fn remove_once_empty(group: &Path, end: Instant) {
    while std::fs::remove_dir(group).is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
        && Instant::now() < end
    {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn directories(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn search(directory: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in directories(directory) {
        let path = directory.join(&entry);
        if entry == name {
            found.push(path);
        } else if depth > 1 && !entry.starts_with("dormouse-") {
            search(&path, name, depth - 1, found);
        }
    }
}
