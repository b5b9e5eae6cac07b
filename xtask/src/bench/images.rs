//! The import of a layered image of 1 GiB, compared with `tar -x` of the same layers in the same
//! run, and the memory that the daemon needs for it.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use super::millis;
use super::rows::{Row, Unit};

const ROUNDS: usize = 3;
/// How much longer than `tar -x` an import may take.
const LIMIT: f64 = 1.5;
/// How much memory the daemon may need, in MiB.
const MEMORY_MIB: f64 = 150.0;
const TAG: &str = "bench-import";
/// The layers: how many, and of how many bytes.
const LAYERS: [(usize, usize); 4] = [(3, 160 << 20), (12_000, 12 << 10), (24_000, 4 << 10), (2, 160 << 20)];
const LINE: usize = 64;

/// Creates the image, imports it and unpacks it.
pub(super) async fn import(daemon: &Daemon, directory: &Path) -> Result<Vec<Row>> {
    let mut row = Row::new("import of a 1 GiB image", LIMIT).beside("tar -x of its layers");
    let mut synced = Row::new("import of a 1 GiB image", LIMIT).beside("tar -x with a sync of what it wrote");
    let mut memory = Row::at_most("memory that the daemon needs for it", MEMORY_MIB).unit(Unit::Mib);
    let directory = directory.join("images");
    let layout = directory.join("layout");
    eprintln!("bench: creating an image of 1 GiB");
    let layers = make(&directory, &layout)?;
    for round in 0..ROUNDS {
        eprintln!("bench: import, round {} of {ROUNDS}", round + 1);
        rustix::fs::sync();
        let to = directory.join("unpacked");
        fs::create_dir(&to).with_context(|| format!("make {}", to.display()))?;
        let began = Instant::now();
        for layer in &layers {
            run(Command::new("tar").arg("-xzf").arg(layer).arg("-C").arg(&to))?;
        }
        row.peer.push(millis(began));
        rustix::fs::syncfs(File::open(&to).context("open what was unpacked")?).context("sync what was unpacked")?;
        synced.peer.push(millis(began));
        fs::remove_dir_all(&to).with_context(|| format!("remove {}", to.display()))?;
        rustix::fs::sync();
        forget_peak(daemon.pid())?;
        let began = Instant::now();
        daemon.import_image(&layout, TAG).await?;
        let took = millis(began);
        row.ours.push(took);
        synced.ours.push(took);
        memory.ours.push(peak_mib(daemon.pid())?);
        daemon.ask(Method::DELETE, &format!("/images/{TAG}"), None).await?;
    }
    fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
    Ok(vec![row, synced, memory])
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Writes an OCI layout and returns the archives of its layers, the lowest first.
fn make(directory: &Path, layout: &Path) -> Result<Vec<PathBuf>> {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("make {}", blobs.display()))?;
    let (mut layers, mut described, mut diff_ids) = (Vec::new(), Vec::new(), Vec::new());
    let mut random = 1;
    for (number, (count, bytes)) in LAYERS.into_iter().enumerate() {
        let tree = directory.join("tree");
        for file in 0..count {
            let above = tree.join(format!("srv/layer-{number}/{}", file % 100));
            fs::create_dir_all(&above).with_context(|| format!("make {}", above.display()))?;
            fill(&above.join(format!("file-{file}")), bytes, &mut random)?;
        }
        let plain = directory.join("layer.tar");
        let files = ["--owner=0", "--group=0", "--numeric-owner", "srv"];
        run(Command::new("tar").arg("-cf").arg(&plain).arg("-C").arg(&tree).args(files))?;
        diff_ids.push(format!("sha256:{}", sum(&plain)?));
        run(Command::new("gzip").args(["-1", "-f"]).arg(&plain))?;
        let packed = directory.join("layer.tar.gz");
        described.push(keep(&packed, &blobs, "application/vnd.oci.image.layer.v1.tar+gzip")?);
        layers.push(blobs.join(digest_of(described.last())));
        fs::remove_dir_all(&tree).with_context(|| format!("remove {}", tree.display()))?;
    }
    let document = |value: &Value, kind: &str| {
        let path = directory.join("document.json");
        fs::write(&path, value.to_string()).with_context(|| format!("write {}", path.display()))?;
        keep(&path, &blobs, kind)
    };
    let config = json!({ "os": "linux", "config": {}, "rootfs": { "type": "layers", "diff_ids": diff_ids } });
    let config = document(&config, "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": described });
    let manifest = document(&manifest, "application/vnd.oci.image.manifest.v1+json")?;
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(layout.join("index.json"), index.to_string()).context("write the index")?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).context("write the layout")?;
    Ok(layers)
}

/// Writes lines of text that compress about as well as programs do.
fn fill(path: &Path, bytes: usize, random: &mut u64) -> Result<()> {
    let mut to = BufWriter::new(File::create(path).with_context(|| format!("make {}", path.display()))?);
    for _ in 0..bytes / LINE {
        let mut line = String::with_capacity(LINE);
        while line.len() < LINE - 16 {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            line.push_str(&format!("{:016x}", *random));
        }
        writeln!(to, "{line}a line of it ...")?;
    }
    to.flush().with_context(|| format!("write {}", path.display()))
}

/// Moves a file to the blobs and returns its descriptor.
fn keep(path: &Path, blobs: &Path, kind: &str) -> Result<Value> {
    let digest = sum(path)?;
    let bytes = fs::metadata(path).with_context(|| format!("look at {}", path.display()))?.len();
    fs::rename(path, blobs.join(&digest)).with_context(|| format!("rename {}", path.display()))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes }))
}

fn digest_of(described: Option<&Value>) -> &str {
    described.and_then(|layer| layer["digest"].as_str()).unwrap_or_default().trim_start_matches("sha256:")
}

fn sum(path: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(path).output().context("run sha256sum")?;
    ensure!(output.status.success(), "sha256sum {}: {}", path.display(), output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Resets the daemon's peak of memory.
fn forget_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("reset the daemon's peak of memory")
}

fn peak_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read the daemon's status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the daemon's peak of memory")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("the daemon's peak of memory")?;
    Ok(kib / 1024.0)
}
