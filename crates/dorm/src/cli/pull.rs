//! Pulls an image and shows the progress.

use dorm_api_types as wire;
use dorm_client::{Client, Sse};

use super::problem::Problem;
use super::progress::Progress;
use super::shown;

/// When to contact a registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum When {
    /// Even if the image is present
    Always,
    /// If the image is not present
    Missing,
    /// Never
    Never,
}

impl From<When> for wire::Pull {
    fn from(when: When) -> Self {
        match when {
            When::Always => Self::Always,
            When::Missing => Self::Missing,
            When::Never => Self::Never,
        }
    }
}

/// Pulls an image and shows the progress.
pub(crate) async fn pull(client: &Client, asked: &wire::PullImage) -> Result<wire::Image, Problem> {
    let progress = Progress::new(&format!("looking for {}", asked.reference));
    let stream = client.pull_image(asked).await?;
    follow(stream, &progress).await
}

/// Pulls the image of a sandbox that is about to be created, if its name contains a registry, so
/// that the progress is shown.
pub(crate) async fn before(client: &Client, asked: &mut wire::CreateSandbox) -> Result<(), Problem> {
    let when = asked.pull.unwrap_or(wire::Pull::Missing);
    let Some(image) = asked.image.clone().filter(|image| names_registry(image)) else { return Ok(()) };
    if when == wire::Pull::Never {
        return Ok(());
    }
    let wanted = wire::PullImage { reference: image, architecture: None, tag: None, insecure: false, pull: when };
    pull(client, &wanted).await?;
    asked.pull = Some(wire::Pull::Never);
    Ok(())
}

fn names_registry(image: &str) -> bool {
    image.split_once('/').is_some_and(|(host, _)| host == "localhost" || host.contains(['.', ':']))
}

/// Shows the progress of a stream and returns its image.
pub(crate) async fn follow(stream: Sse, progress: &Progress) -> Result<wire::Image, Problem> {
    let mut work = dorm_client::Progress::new(stream);
    while let Some(told) = work.next().await? {
        progress.say(stage(&told));
    }
    Ok(work.finish().await?)
}

fn stage(progress: &wire::ImportProgress) -> String {
    let read = match progress.bytes_total {
        Some(total) => format!("{} of {}", shown::size(progress.bytes), shown::size(total)),
        None => shown::size(progress.bytes),
    };
    match progress.stage {
        wire::ImportStage::Waiting => {
            "contacting the registry, or waiting for another pull of the same image".to_owned()
        }
        wire::ImportStage::Fetching => format!("fetching: {read}"),
        _ => format!("{}: {} entries, {read}", shown::word(&progress.stage), progress.entries),
    }
}
