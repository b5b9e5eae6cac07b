//! Fetching an image, and how far that is.

use dorm_api::wire;

use super::problem::Problem;
use super::progress::Progress;
use super::shown;
use crate::client::{Client, Sse};

/// When a registry is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum When {
    /// Also when the image is here
    Always,
    /// When it is not here
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

/// Fetches an image, and shows how far that is.
pub(crate) async fn pull(client: &Client, asked: &wire::PullImage) -> Result<wire::Image, Problem> {
    let progress = Progress::new(&format!("looking for {}", asked.reference));
    let stream = client.pull_image(asked).await?;
    follow(stream, &progress).await
}

/// Fetches the image of a sandbox that is to be created, where its name says from which registry, so that it can be seen
/// how far that is.
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

/// The image at the end of a stream, with what was said on the way.
pub(crate) async fn follow(mut stream: Sse, progress: &Progress) -> Result<wire::Image, Problem> {
    while let Some(event) = stream.next().await? {
        match event.kind.as_str() {
            "progress" => progress.say(stage(&stream.parse(&event)?)),
            "done" => return Ok(stream.parse(&event)?),
            _ => {}
        }
    }
    Err(stream.ended().into())
}

fn stage(progress: &wire::ImportProgress) -> String {
    let read = match progress.bytes_total {
        Some(total) => format!("{} of {}", shown::size(progress.bytes), shown::size(total)),
        None => shown::size(progress.bytes),
    };
    match progress.stage {
        wire::ImportStage::Waiting => "asking the registry, or waiting for another pull of the same".to_owned(),
        wire::ImportStage::Fetching => format!("fetching: {read}"),
        _ => format!("{}: {} entries, {read}", shown::word(&progress.stage), progress.entries),
    }
}
