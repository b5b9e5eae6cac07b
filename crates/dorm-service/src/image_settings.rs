//! How programs are run in a sandbox, as its image specifies: user, directory, the program to
//! start, and the command that is polled until that program is ready.

use std::time::Duration;

use dorm_agent_client::{
    Agent, AgentError, ExitStatus, FirstReader, GuestPath, GuestString, Offsets, Output, ProcessSpec, Signal, Target,
    User,
};
use dorm_lifecycle::Digest;
use dorm_storage::{Image, ImageConfig, StorageError, host_architecture};
use futures_util::StreamExt as _;

use crate::error::{ServiceError, chain};
use crate::shared::Shared;

/// The label of the process that an image starts with.
pub const START_LABEL: &str = "start";
/// How long one ready command may take.
const READY_ANSWER: Duration = Duration::from_secs(60);
/// The delay between two ready commands.
const READY_AGAIN: Duration = Duration::from_millis(200);
/// How much of the last output an error contains, in bytes.
const SAID: usize = 1000;

/// Rejects an image whose programs cannot run on this host.
pub(crate) fn fits_host(image: &Image) -> Result<(), ServiceError> {
    match &image.config.architecture {
        Some(other) if other != host_architecture() => {
            Err(ServiceError::ImageSetting { what: "architecture", value: other.clone() })
        }
        _ => Ok(()),
    }
}

/// Returns a command of an image as arguments for its processes; `what` is its purpose, for errors.
fn guest_words<'a>(
    words: impl IntoIterator<Item = &'a str>,
    what: &'static str,
) -> Result<Vec<GuestString>, ServiceError> {
    let bad = |word: &str| ServiceError::ImageSetting { what, value: word.to_owned() };
    words.into_iter().map(|word| GuestString::new(word.as_bytes().to_vec()).map_err(|_| bad(word))).collect()
}

impl Shared {
    /// Returns how programs of an image are run; the defaults if that cannot be read.
    pub(crate) async fn image_config(&self, image: &Digest) -> ImageConfig {
        match self.storage.image_config(image).await {
            Ok(config) => config,
            // A sandbox that is restored from memory needs nothing else of its image.
            Err(StorageError::NoImage { .. }) => ImageConfig::default(),
            Err(error) => {
                tracing::warn!(%image, error = %chain(&error), "cannot read the configuration of an image; using the defaults");
                ImageConfig::default()
            }
        }
    }
}

/// Returns the program of an image; `None` if the image has none.
pub(crate) fn start_spec(config: &ImageConfig) -> Result<Option<ProcessSpec>, ServiceError> {
    let command = config.start();
    if command.is_empty() {
        return Ok(None);
    }
    let mut spec = ProcessSpec::new(guest_words(command.iter().map(String::as_str), "command")?);
    spec.label = Some(START_LABEL.to_owned());
    with_settings(config, spec).map(Some)
}

/// Returns the command that checks whether the image's program is ready.
fn ready_spec(config: &ImageConfig, line: &str) -> Result<ProcessSpec, ServiceError> {
    let mut spec = ProcessSpec::new(guest_words(["/bin/sh", "-c", line], "ready command")?);
    spec.first_reader = FirstReader::Expected;
    with_settings(config, spec)
}

pub(crate) fn with_settings(config: &ImageConfig, mut spec: ProcessSpec) -> Result<ProcessSpec, ServiceError> {
    if let (None, Some(user)) = (&spec.user, &config.user) {
        let user =
            user.parse::<User>().map_err(|_| ServiceError::ImageSetting { what: "user", value: user.clone() })?;
        spec.user = Some(user);
    }
    if let (None, Some(directory)) = (&spec.directory, &config.directory) {
        let path = GuestPath::try_from(directory.as_str());
        spec.directory =
            Some(path.map_err(|_| ServiceError::ImageSetting { what: "directory", value: directory.clone() })?);
    }
    Ok(spec)
}

/// Waits until the image's program is ready, if the image has a ready command.
pub(crate) async fn until_ready(agent: &Agent, config: &ImageConfig, within: Duration) -> Result<(), ServiceError> {
    let Some(line) = &config.ready else { return Ok(()) };
    let question = ready_spec(config, line)?;
    let mut said = Vec::new();
    let asked = async {
        loop {
            if answers(agent, &question, &mut said).await? {
                return Ok(());
            }
            tokio::time::sleep(READY_AGAIN).await;
        }
    };
    match tokio::time::timeout(within, asked).await {
        Ok(asked) => asked,
        Err(_) => {
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            Err(ServiceError::NotReady { line: line.clone(), within, said })
        }
    }
}

/// Runs the ready command once; returns whether it succeeded.
async fn answers(agent: &Agent, question: &ProcessSpec, said: &mut Vec<u8>) -> Result<bool, ServiceError> {
    let process = agent.start(question).await?.process;
    let mut new = Vec::new();
    let answer = async {
        let mut output = agent.output(process, Offsets::BEGINNING).await?;
        while let Some(output) = output.next().await {
            match output? {
                Output::Exited(status) => return Ok::<_, AgentError>(Some(status)),
                Output::Stdout { bytes, .. } | Output::Stderr { bytes, .. } => {
                    new.extend_from_slice(&bytes[..bytes.len().min(SAID.saturating_sub(new.len()))]);
                }
                _ => {}
            }
        }
        Ok(None)
    };
    let answered = tokio::time::timeout(READY_ANSWER, answer).await;
    *said = new;
    match answered {
        Ok(answered) => Ok(answered? == Some(ExitStatus::Code(0))),
        Err(_) => match agent.signal(process, Signal::KILL, Target::Group).await {
            Ok(()) | Err(AgentError::NoProcess(_)) => Ok(false),
            Err(error) => Err(error.into()),
        },
    }
}
