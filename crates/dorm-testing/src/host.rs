//! Resources of the host that a daemon's directory holds: none, once all its sandboxes are over.

use std::path::Path;

/// Mounts, processes and loop devices that name `directory`.
pub fn left_overs(directory: &Path) -> Vec<String> {
    let mut found = held_by_kernel(directory);
    let processes = processes_of(directory).into_iter().filter(|(_, line)| !line.contains("/dorm serve "));
    found.extend(processes.map(|(pid, line)| format!("process {pid}: {line}")));
    found
}

/// The name of the loop device whose backing file is `file`, such as `loop3`.
pub fn loop_device(file: &Path) -> Option<String> {
    loop_devices().find_map(|(name, backing)| (Path::new(&backing) == file).then_some(name))
}

/// Every loop device in use, with the path of its backing file.
fn loop_devices() -> impl Iterator<Item = (String, String)> {
    std::fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(|entry| {
        let backing = std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), backing.trim_end_matches('\n').to_owned()))
    })
}

/// Mounts and loop devices that name `directory`.
pub fn held_by_kernel(directory: &Path) -> Vec<String> {
    let wanted = directory.display().to_string();
    let mut found = Vec::new();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    found.extend(mounts.lines().filter(|line| line.contains(&wanted)).map(|line| format!("mount: {line}")));
    let devices = loop_devices().filter(|(_, backing)| backing.contains(&wanted));
    found.extend(devices.map(|(name, backing)| format!("loop device {name}: {backing}")));
    found
}

/// The process of a sandbox's run, according to the notes of the engine in this data directory.
pub fn sandbox_process(data: &Path, sandbox: &str) -> Option<u32> {
    let homes = std::fs::read_dir(data.join("gvisor/containers")).ok()?;
    homes.flatten().find_map(|home| {
        let note: serde_json::Value =
            serde_json::from_slice(&std::fs::read(home.path().join("note.json")).ok()?).ok()?;
        let run = note["duty"]["run"]["run"].as_str()?;
        let pid = note["processes"]["sandbox"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())?;
        (run.rsplit_once('-')?.0 == sandbox).then_some(pid)
    })
}

/// Processes whose command line names `directory`, with their command lines.
pub fn processes_of(directory: &Path) -> Vec<(u32, String)> {
    let wanted = directory.display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&wanted) {
            found.push((pid, line));
        }
    }
    found
}
