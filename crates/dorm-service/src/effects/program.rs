//! The image's program: started as part of a first run, and polled until it is ready.

use std::time::Duration;

use dorm_agent_client::{Agent, AgentError, ExitStatus, Offsets, Output, ProcessSpec, Signal, Target};
use dorm_storage::ImageConfig;
use futures_util::StreamExt as _;

use super::{Task, reach};
use crate::error::{Failure, ServiceError};
use crate::image_settings;

/// How long one ready command may take.
const READY_ANSWER: Duration = Duration::from_secs(60);
/// The delay between two ready commands.
const READY_AGAIN: Duration = Duration::from_millis(200);
/// How much of the last output an error contains, in bytes.
const SAID: usize = 1000;

/// Starts the program of a sandbox's image and waits until it is ready. If this fails, the run is
/// not needed any more.
pub(super) async fn start(task: &Task, agent: &Agent) -> Result<(), Failure> {
    let work = async {
        let config = task.shared.image_config(&task.sandbox.spec.image).await;
        let spec = image_settings::start_spec(&config)?;
        let spec = spec.ok_or_else(|| ServiceError::NothingToStart(task.sandbox.id.clone()))?;
        let started = tokio::time::timeout(task.patience(), agent.start(&spec)).await;
        started.map_err(|_| reach::silent(task.patience()))??;
        until_ready(agent, &config, task.shared.settings.limits.ready).await
    };
    let started: Result<(), ServiceError> = work.await;
    started.map_err(|error| Failure::from(error).told_as(|why| format!("starting its image's program: {why}")))
}

/// Waits until the image's program is ready, if the image has a ready command.
pub(crate) async fn until_ready(agent: &Agent, config: &ImageConfig, within: Duration) -> Result<(), ServiceError> {
    let Some(line) = &config.ready else { return Ok(()) };
    let question = image_settings::ready_spec(config, line)?;
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
