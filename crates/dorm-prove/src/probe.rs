//! The program in each sandbox of the proof, and the checks that the sandbox still holds what was
//! acknowledged.
//!
//! It is a shell that holds a secret, a block of random bytes and a counter in memory only. Beside
//! it is a service, which must never be started again.

use anyhow::{Context as _, Result, bail};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::json;

use crate::dialogue::Dialogue;
pub(crate) use crate::dialogue::PATIENCE;

/// Needs only `sh`, `od`, `tr` and `cksum` in the image.
const PROGRAM: &str = r#"
secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
block=$(od -An -v -N131072 -tx1 /dev/urandom | tr -d ' \n')
count=0
while read -r word; do
    count=$((count + 1))
    sum=-
    [ "$word" = note ] || sum=$(printf %s "$block" | cksum | tr ' ' -)
    echo "$word $$ $secret $sum $count"
done
"#;

/// A supervised process that would be started again if it ended.
const SERVICE: &str = "kept";

const FILE: &str = "/root/kept";

/// The expected memory and files of a sandbox, as acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) id: String,
    dialogue: Dialogue,
    /// Process id, secret, checksum.
    held: [String; 3],
    count: u64,
    file: String,
    /// The process of the service.
    service: u64,
    /// Whether its memory is lost, so that only its files are checked.
    files_only: bool,
    /// The content of its last acknowledged sleep image.
    slept: Option<Version>,
    /// Whether its run may be lost, so that it may be back at its image.
    lost_power: bool,
}

/// One state of its memory and file.
#[derive(Clone, Debug)]
struct Version {
    /// How much output was read by then: the program's memory includes its output.
    dialogue: Dialogue,
    count: u64,
    file: String,
}

/// Why a sandbox is not what it was.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// The sandbox does not answer.
    Sandbox(String),
    /// The sandbox answers with wrong data.
    Data(String),
}

impl Probe {
    /// Starts the program in the running sandbox `id`.
    pub(crate) async fn begin(daemon: &Daemon, id: &str) -> Result<Self> {
        let mut probe = Self {
            id: id.to_owned(),
            dialogue: Dialogue::begin(daemon, id, PROGRAM).await?,
            held: Default::default(),
            count: 0,
            file: String::new(),
            service: serve(daemon, id).await?,
            files_only: false,
            slept: None,
            lost_power: false,
        };
        let (held, count) = probe.say(daemon, "begin").await?;
        if held.iter().any(String::is_empty) {
            bail!("the image lacks one of sh, od, tr and cksum, which the proof needs in its sandboxes: {held:?}");
        }
        probe.held = held;
        probe.count = count;
        probe.note(daemon).await?;
        Ok(probe)
    }

    /// The same memory in another sandbox that began with it.
    pub(crate) fn of(&self, id: &str) -> Self {
        Self { id: id.to_owned(), slept: None, lost_power: false, ..self.clone() }
    }

    /// The memory in its last image, if it has one.
    pub(crate) fn at_image(&self) -> Option<Self> {
        let Version { dialogue, count, file } = self.slept.clone()?;
        Some(Self { dialogue, count, file, ..self.of(&self.id) })
    }

    /// Notes that it has slept in its present state, and that this was acknowledged.
    pub(crate) fn has_slept(&mut self) {
        self.slept = Some(self.version());
    }

    /// Whether it must survive the loss of its run.
    pub(crate) fn has_image(&self) -> bool {
        self.slept.is_some()
    }

    /// Notes that the power was cut: it may be back at its image.
    pub(crate) fn lost_power(&mut self) {
        self.lost_power = true;
    }

    /// Whether it may be back at its image, and has not been checked since.
    pub(crate) fn has_lost_power(&self) -> bool {
        self.lost_power
    }

    fn version(&self) -> Version {
        Version { dialogue: self.dialogue.clone(), count: self.count, file: self.file.clone() }
    }

    /// The expected content where only files are kept.
    pub(crate) fn files(&self) -> Self {
        Self { files_only: true, ..self.clone() }
    }

    /// Makes a change that could be lost: counts one further and rewrites the file. Both are
    /// acknowledged.
    pub(crate) async fn note(&mut self, daemon: &Daemon) -> Result<()> {
        let (held, count) = self.say(daemon, "note").await?;
        // Reading the block takes time, so its checksum is compared only after something has
        // happened.
        if held[..2] != self.held[..2] || count != self.count + 1 {
            bail!("sandbox {} changed while nothing happened to it: {held:?} {count}", self.id);
        }
        self.count = count;
        self.file = format!("file of {} at {count}", self.id);
        daemon.write(&self.id, FILE, self.file.clone().into_bytes()).await
    }

    /// Checks that the sandbox, which must run, still has everything that was acknowledged.
    pub(crate) async fn is_whole(&mut self, daemon: &Daemon) -> Result<(), Loss> {
        let lost = |error: anyhow::Error| Loss::Sandbox(format!("sandbox {} does not answer: {error:#}", self.id));
        let file = self.read(daemon).await.map_err(lost)?;
        if self.files_only {
            return match file == self.file {
                true => Ok(()),
                false => Err(Loss::Data(format!("file of sandbox {}: '{file}' instead of '{}'", self.id, self.file))),
            };
        }
        if self.lost_power
            && let Some(slept) = self.slept.clone().filter(|slept| slept.file == file)
        {
            (self.dialogue, self.count, self.file) = (slept.dialogue, slept.count, slept.file);
        }
        let version = self.version();
        let wanted = (self.held.clone(), self.count + 1);
        let id = self.id.clone();
        let said = self.say(daemon, "check").await;
        let said = said.map_err(|error| Loss::Sandbox(format!("sandbox {id} does not answer: {error:#}")))?;
        self.count = said.1;
        if said != wanted {
            self.held = said.0.clone();
            return Err(Loss::Data(format!("memory of sandbox {id}: {said:?} instead of {wanted:?}")));
        }
        if file != self.file {
            return Err(Loss::Data(format!("file of sandbox {id}: '{file}' instead of '{}'", self.file)));
        }
        let service = daemon.get(&format!("/sandboxes/{id}/services/{SERVICE}")).await;
        let service = service.map_err(|error| Loss::Data(format!("service of sandbox {id}: {error:#}")))?;
        if (&service["state"], &service["process"], &service["restarts"])
            != (&json!("running"), &json!(self.service), &json!(0))
        {
            return Err(Loss::Data(format!("service of sandbox {id}: {service}, not process {}", self.service)));
        }
        if std::mem::take(&mut self.lost_power) {
            // It was restored from its image, whichever that is.
            self.slept = Some(version);
        }
        Ok(())
    }

    async fn read(&self, daemon: &Daemon) -> Result<String> {
        let asked = daemon.request(Method::GET, &format!("/sandboxes/{}/files?path={FILE}", self.id));
        let answer = asked.timeout(PATIENCE).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("read {FILE}: {status}: {text}");
        }
        Ok(text)
    }

    /// Sends a word to the program and reads its answer.
    async fn say(&mut self, daemon: &Daemon, word: &str) -> Result<([String; 3], u64)> {
        let line = self.dialogue.say(daemon, &self.id, word).await?;
        let words: Vec<&str> = line.split(' ').collect();
        let [echo, pid, secret, sum, count] = words.as_slice() else { bail!("it said '{line}'") };
        if *echo != word {
            bail!("it answered '{line}' to '{word}'");
        }
        Ok(([pid, secret, sum].map(|word| (*word).to_owned()), count.parse().context("a count")?))
    }
}

/// Starts the service in a sandbox, and returns its process.
async fn serve(daemon: &Daemon, id: &str) -> Result<u64> {
    let asked = json!({"name": SERVICE, "argv": ["sleep", "1000000000"], "restart": "always"});
    let service = daemon.post(&format!("/sandboxes/{id}/services"), asked).await?;
    service["process"].as_u64().with_context(|| format!("a service without a process: {service}"))
}
