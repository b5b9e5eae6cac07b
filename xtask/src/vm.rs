//! `cargo xtask vm`: installs the Debian package in a virtual machine with a stock Debian 12, and
//! uses it there as a new user would.
//!
//! The machine has systemd and control groups of version 2, which the hosts of the tests often
//! lack. QEMU emulates its processors in software, so it runs wherever the tests run, and takes
//! some minutes. Nothing of the host is visible inside: what it needs comes on a second disk.
//!
//! ```text
//! target/dormouse/vm/ROOT-HASH.img    the file system of the machine; a run never writes to it
//! target/dormouse/vm/RUN/             the second disk of a run, its console and its report
//! ```

mod image;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dorm_testing::docs;

use crate::dist;
use crate::setup::{self, Environment};

/// The commands inside.
const SMOKE: &str = include_str!("vm/smoke.sh");
/// The last line of a report.
const DONE: &str = "vm: done";
/// Far longer than everything takes in emulation on a slow host.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Builds the package and the machine, and runs the commands in it. Packs `program` instead of
/// building, if it is given.
pub(crate) fn run(environment: &Environment, program: Option<&Path>) -> Result<()> {
    let work = environment.work.join("vm");
    fs::create_dir_all(&work).with_context(|| format!("create {}", work.display()))?;
    let packages = dist::build(program)?;
    setup::ensure_emulator(&environment.work)?;
    let machine = image::ensure(&work)?;
    let run = tempfile::Builder::new().prefix("run-").tempdir_in(&work).context("create the directory of the run")?;
    let payload = payload(environment, &packages.package, run.path())?;
    let (console, report) = (run.path().join("console"), run.path().join("report"));
    File::create(&report).context("create the report")?;
    eprintln!("vm: starting Debian 12 in software emulation; each line is a step inside");
    let began = Instant::now();
    let mut emulator = Emulator(start(&machine, &payload, &console, &report)?);
    let done = watch(&mut emulator, &report);
    if done.is_err() {
        eprintln!("vm: the last lines of the console:\n{}", tail(&console));
    }
    done?;
    println!("vm: the package, its unit, the quick start and a data directory in /root work ({:.0?})", began.elapsed());
    Ok(())
}

/// A machine that ends with this value.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes the second disk: the package, an image for sandboxes, and the commands.
fn payload(environment: &Environment, package: &Path, run: &Path) -> Result<PathBuf> {
    let directory = run.join("payload");
    fs::create_dir(&directory)?;
    let copy = |from: &Path, name: &str| {
        fs::copy(from, directory.join(name)).with_context(|| format!("copy {}", from.display()))
    };
    copy(package, "dormouse.deb")?;
    copy(&environment.base_tar, "base.tar")?;
    fs::write(directory.join("smoke.sh"), SMOKE)?;
    fs::write(directory.join("functions.sh"), docs::FUNCTIONS)?;
    let lines = docs::QUICK_START.lines(&environment.root)?;
    let lines: String = lines.iter().map(|docs::Line { place, text }| format!("{place}\t{text}\n")).collect();
    fs::write(directory.join("quick-start"), lines)?;
    let disk = run.join("payload.img");
    image::file_system(&directory, &disk, 1 << 30)?;
    Ok(disk)
}

fn start(machine: &image::Machine, payload: &Path, console: &Path, report: &Path) -> Result<Child> {
    let drive = |path: &Path, more: &str| format!("file={},format=raw,if=virtio{more}", path.display());
    let mut command = Command::new(image::EMULATOR);
    command.args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "4096"]);
    command.args(["-nodefaults", "-no-reboot", "-display", "none", "-nic", "none"]);
    command.arg("-kernel").arg(&machine.kernel).arg("-initrd").arg(&machine.initrd);
    // The clock of the emulator is exact, and the kernel need not measure it.
    command
        .args(["-append", "root=/dev/vda rw console=ttyS0 tsc_early_khz=1000000 no_timer_check tsc=reliable panic=-1"]);
    // The writes of the machine to its root go to a temporary file that the emulator removes.
    command.arg("-drive").arg(drive(&machine.root, ",snapshot=on,cache=unsafe"));
    command.arg("-drive").arg(drive(payload, ",readonly=on"));
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.arg("-serial").arg(format!("file:{}", report.display()));
    command.stdin(Stdio::null());
    command.spawn().with_context(|| format!("start {}", image::EMULATOR))
}

/// Prints the report until the machine has ended.
fn watch(emulator: &mut Emulator, report: &Path) -> Result<()> {
    let began = Instant::now();
    let mut lines = BufReader::new(File::open(report).context("open the report")?);
    let (mut line, mut is_done) = (String::new(), false);
    loop {
        let ended = emulator.0.try_wait().context("wait for the machine")?;
        while lines.read_line(&mut line).context("read the report")? > 0 && line.ends_with('\n') {
            let text = line.trim_end();
            is_done |= text == DONE;
            eprintln!("{:5.0} s  {text}", began.elapsed().as_secs_f64());
            line.clear();
        }
        match ended {
            Some(status) if is_done && status.success() => return Ok(()),
            Some(status) => bail!("the machine ended before its report did ({status}): a step failed"),
            None if began.elapsed() > PATIENCE => bail!("the machine has not ended within {PATIENCE:?}"),
            None => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn tail(path: &Path) -> String {
    const LENGTH: u64 = 4096;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LENGTH)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("(unreadable: {error})"))
}
