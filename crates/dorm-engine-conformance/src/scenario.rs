//! The means of the checks: runs, their guests, and programs in them. No wait has a limit of its
//! own; each check as a whole has one.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dorm_agent_client::{
    Agent, AgentError, FirstReader, GuestPath, Identity, Offsets, Output, ProcessSpec, Stdin, WriteOptions,
};
use dorm_engine::{Engine, RunSpec, Saved, SavedFile};
use dorm_lifecycle::{Egress, Resources, RunCondition, RunId, SandboxId};
use futures_util::StreamExt;
use tempfile::TempDir;

use crate::Subject;

/// A subject, and a directory for memory images.
pub struct Scenario {
    pub(crate) subject: Arc<dyn Subject>,
    images: TempDir,
}

/// A run and the connection to its agent.
pub(crate) struct Guest {
    pub(crate) spec: RunSpec,
    pub(crate) agent: Agent,
}

/// A memory image.
pub(crate) struct Image {
    pub(crate) directory: PathBuf,
    pub(crate) files: Vec<SavedFile>,
}

/// A process that answers lines, and the offset of its next answer.
#[derive(Clone, Copy)]
pub(crate) struct Answering {
    pub(crate) process: u64,
    pub(crate) pid: u32,
    at: u64,
}

/// Gives the files that a memory image shares with earlier ones their names in its directory, as
/// the storage does.
///
/// # Panics
/// When a file cannot be linked.
pub fn name_shared(files: &[SavedFile], directory: &Path) {
    for file in files {
        if let Some(shared) = &file.shared_with {
            std::fs::hard_link(shared, directory.join(&file.name)).expect("a shared file that can be linked");
        }
    }
}

impl Scenario {
    pub(crate) fn new(subject: Arc<dyn Subject>) -> Self {
        Self { subject, images: TempDir::with_prefix("dorm-conformance-").expect("a directory for images") }
    }

    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        self.subject.engine()
    }

    /// Returns the spec of a new sandbox, without network.
    pub(crate) fn spec(&self) -> RunSpec {
        let (image, rootfs) = self.subject.image();
        let mut random = [0; 20];
        for (at, chunk) in random.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&RandomState::new().hash_one(at).to_le_bytes()[..chunk.len()]);
        }
        RunSpec {
            run: RunId { sandbox: SandboxId::from_random(random), generation: 1 },
            image,
            rootfs,
            layers: Vec::new(),
            resources: Resources { memory_bytes: 256 << 20, ..Resources::default() },
            egress: Egress::None,
            mounts: Vec::new(),
            build: None,
        }
    }

    pub(crate) async fn start(&self) -> Guest {
        self.start_as(self.spec()).await
    }

    pub(crate) async fn start_as(&self, spec: RunSpec) -> Guest {
        self.engine().start(&spec).await.expect("start");
        self.attach(spec).await
    }

    /// Connects to the agent of a run and sends it its identity.
    pub(crate) async fn attach(&self, spec: RunSpec) -> Guest {
        let stream = self.engine().agent(&spec.run).await.expect("a stream to the agent");
        let agent = Agent::connect(stream, spec.run.generation).await.expect("an agent that answers");
        let identity = Identity {
            generation: spec.run.generation,
            hostname: spec.run.sandbox.to_string(),
            unix_time_us: now_us(),
            entropy: [7; 32],
            variables: Vec::new(),
        };
        agent.resumed(&identity).await.expect("an agent that takes its identity");
        Guest { spec, agent }
    }

    /// Creates an empty directory for a memory image.
    pub(crate) fn directory(&self) -> PathBuf {
        tempfile::Builder::new()
            .prefix("image-")
            .tempdir_in(self.images.path())
            .expect("a directory for an image")
            .keep()
    }

    /// Saves a guest as the service does: the agent quiesces first. The run is paused afterwards.
    pub(crate) async fn save(&self, guest: &Guest) -> Image {
        guest.agent.quiesce().await.expect("quiesce");
        self.write_image(guest).await
    }

    /// Like [`Scenario::save`], without memory.
    pub(crate) async fn save_files(&self, guest: &Guest) -> Image {
        guest.agent.quiesce().await.expect("quiesce");
        let directory = self.directory();
        let saved = self.engine().save_files(guest.run(), &directory).await.expect("save the files");
        image(saved, directory)
    }

    /// Saves a guest whose agent is quiesced, or that is paused.
    pub(crate) async fn write_image(&self, guest: &Guest) -> Image {
        let directory = self.directory();
        let saved = self.engine().save(guest.run(), &directory, &[]).await.expect("save");
        image(saved, directory)
    }

    pub(crate) async fn resume(&self, guest: &Guest) {
        self.engine().resume(guest.run()).await.expect("resume");
        guest.agent.unquiesce().await.expect("an agent that answers again");
    }

    /// Restores an image as the next run of the same sandbox.
    pub(crate) async fn restore(&self, image: &Image, before: &Guest) -> Guest {
        let mut spec = before.spec.clone();
        spec.run.generation += 1;
        self.restore_as(image, spec).await
    }

    pub(crate) async fn restore_as(&self, image: &Image, spec: RunSpec) -> Guest {
        self.engine().restore(&spec, &image.directory).await.expect("restore");
        self.attach(spec).await
    }

    pub(crate) async fn stop(&self, guest: Guest) {
        self.engine().stop(guest.run()).await.expect("stop");
    }

    /// Returns the condition of a run; `None` if the engine knows no such run.
    pub(crate) async fn condition(&self, run: &RunId) -> Option<RunCondition> {
        self.engine().condition(run).await.expect("the condition of a run")
    }

    pub(crate) async fn nothing_is_left(&self) {
        let found = self.engine().inventory().await.expect("the inventory");
        assert!(found.is_empty(), "runs are left: {found:?}");
        let left = self.subject.left_overs().await;
        assert!(left.is_empty(), "left over: {left:#?}");
    }

    pub(crate) async fn counting(&self, guest: &Guest, token: &str) -> Answering {
        guest.answering(&self.subject.programs().counting, &[token]).await
    }

    /// Starts the ticking program, and waits for its first tick.
    pub(crate) async fn ticking(&self, guest: &Guest) -> Answering {
        let mut ticking = guest.answering(&self.subject.programs().ticking, &[]).await;
        assert_eq!(guest.next_line(&mut ticking).await, "1");
        ticking
    }
}

impl Guest {
    pub(crate) fn run(&self) -> &RunId {
        &self.spec.run
    }

    pub(crate) async fn answering(&self, program: &[String], arguments: &[&str]) -> Answering {
        let words = program.iter().map(String::as_str).chain(arguments.iter().copied());
        let mut spec = ProcessSpec::new(words.map(|word| word.try_into().expect("a word")).collect());
        spec.stdin = Stdin::Pipe;
        spec.first_reader = FirstReader::NotExpected;
        let started = self.agent.start(&spec).await.expect("a program that starts");
        Answering { process: started.process, pid: started.pid, at: 0 }
    }

    /// Sends one line, and returns the line that answers it.
    pub(crate) async fn ask(&self, program: &mut Answering) -> String {
        self.agent.write_stdin(program.process, Bytes::from_static(b"next\n")).await.expect("write a line");
        self.next_line(program).await
    }

    /// Returns the next line that the program prints.
    pub(crate) async fn next_line(&self, program: &mut Answering) -> String {
        let from = Offsets { stdout: program.at, stderr: 0 };
        let mut output = self.agent.output(program.process, from).await.expect("output");
        let (mut line, mut complaints) = (Vec::new(), Vec::new());
        loop {
            match output.next().await.expect("more output").expect("output") {
                Output::Stdout { offset, bytes, .. } => {
                    assert_eq!(offset, program.at + line.len() as u64, "output with a gap");
                    line.extend(bytes);
                }
                Output::Stderr { bytes, .. } => complaints.extend(bytes),
                other @ (Output::Lost { .. } | Output::Exited(_)) => {
                    panic!("{other:?} after {:?}", String::from_utf8_lossy(&complaints));
                }
            }
            if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                program.at += end as u64 + 1;
                line.truncate(end);
                return String::from_utf8(line).expect("text");
            }
        }
    }

    /// Waits for `times` ticks, usually of another guest: time passes in a check without a timer.
    pub(crate) async fn ticks(&self, ticking: &mut Answering, times: u64) {
        for _ in 0..times {
            self.next_line(ticking).await;
        }
    }

    pub(crate) async fn write(&self, path: &str, text: &str) {
        let text = Bytes::copy_from_slice(text.as_bytes());
        let body = futures_util::stream::iter([Ok::<_, AgentError>(text)]);
        self.agent.write_file(&guest_path(path), WriteOptions::default(), body).await.expect("write a file");
    }

    pub(crate) async fn read(&self, path: &str) -> Result<String, AgentError> {
        let (_, mut body) = self.agent.read_file(&guest_path(path), 0, None).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            bytes.extend(piece?);
        }
        Ok(String::from_utf8(bytes).expect("text"))
    }
}

impl Image {
    /// Returns every file and its content.
    pub(crate) fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(&self.directory, &mut files);
        files.sort();
        files
    }

    /// Copies the image into `into`.
    pub(crate) fn copy(&self, into: PathBuf) -> Self {
        for file in &self.files {
            let to = into.join(&file.name);
            std::fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
            std::fs::copy(self.directory.join(&file.name), to).expect("copy a file");
        }
        Self { directory: into, files: self.files.clone() }
    }
}

fn collect(directory: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            files.push((path, bytes));
        }
    }
}

pub(crate) fn guest_path(path: &str) -> GuestPath {
    path.try_into().expect("a path")
}

/// Repeats `ask` until it returns an answer.
pub(crate) async fn wait_for<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> T {
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn now_us() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(now.as_micros()).expect("a clock before the year 500,000")
}

/// Checks that the files of an image are there, with the hashes that the engine says.
fn image(saved: Saved, directory: PathBuf) -> Image {
    assert!(!saved.files.is_empty(), "an image without files");
    name_shared(&saved.files, &directory);
    for file in &saved.files {
        let path = directory.join(&file.name);
        assert!(path.is_file(), "{} was saved but is not there", file.name.display());
        if let Some(said) = &file.blake3 {
            let content = std::fs::read(&path).expect("a file that can be read");
            assert_eq!(*said, blake3::hash(&content).to_hex().to_string(), "{}", file.name.display());
        }
    }
    Image { directory, files: saved.files }
}
