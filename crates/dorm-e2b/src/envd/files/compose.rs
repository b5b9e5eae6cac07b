//! Files that are put together from others.

use axum::extract::Request;
use dorm_agent_client::{AgentError, GuestPath, Parents, WriteAt, WriteOptions};
use dorm_http::bodies;
use dorm_service::Use;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;

use super::super::access::Call;
use super::super::connect::{MESSAGE_BYTES_MAX, json};
use super::super::fault::{Failed, Fault};
use super::Written;

const SOURCES_MAX: usize = 10_000;

#[derive(Deserialize)]
struct Asked {
    source_paths: Option<Vec<String>>,
    destination: Option<String>,
    username: Option<String>,
}

/// Writes the contents of some files, one after another, into another one.
pub(super) async fn compose(call: &Call, request: Request) -> Result<Written, Failed> {
    let body = bodies::collect(request.into_body(), MESSAGE_BYTES_MAX).await?;
    let Asked { source_paths, destination, username } = json::parse(&body)?;
    let _held = body.into_share();
    let sources = source_paths.unwrap_or_default();
    if sources.is_empty() || sources.len() > SOURCES_MAX {
        return Err(Fault::invalid(format!("source_paths has {} paths: give 1 to {SOURCES_MAX}", sources.len())).into());
    }
    let destination =
        destination.filter(|path| !path.is_empty()).ok_or_else(|| Fault::invalid("destination is missing"))?;
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let person = match username {
        Some(name) => call.person_named(&agent, Some(&name)).await?,
        None => call.person(&agent).await?,
    };
    let destination = person.path(&destination)?;
    let sources: Vec<GuestPath> = sources.iter().map(|source| person.path(source)).collect::<Result<_, _>>()?;
    if sources.contains(&destination) {
        return Err(Fault::invalid(format!("'{destination}' is a source and the destination")).into());
    }
    for source in &sources {
        // A missing source is found before anything is written.
        agent.read_file(source, 0, Some(0)).await?;
    }
    let reader = agent.clone();
    let contents = stream::iter(sources).then(move |source| {
        let reader = reader.clone();
        async move { Ok::<_, AgentError>(reader.read_file(&source, 0, None).await?.1) }
    });
    let options = WriteOptions { mode: None, owner: Some(person.user), parents: Parents::Create };
    agent.write_in_place(&destination, WriteAt::Emptied, options, contents.try_flatten()).await?;
    Ok(Written::new(&destination.to_text(), Default::default()))
}
