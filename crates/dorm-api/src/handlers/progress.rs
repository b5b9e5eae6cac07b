//! Long operations that can report progress.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_http::sse;
use dorm_service::ServiceError;
use dorm_storage::Progress;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::convert::Of;
use crate::error::{self, ApiError};

/// Carries out an operation, and reports its progress if the client asks for it.
pub(super) async fn follow<T, W>(
    events: bool,
    work: impl FnOnce(Box<dyn Fn(Progress) + Send + Sync>) -> W,
) -> Result<Response, ApiError>
where
    T: Serialize + Send + 'static,
    W: Future<Output = Result<T, ServiceError>> + Send + 'static,
{
    // With a watch channel, a client that reads slowly misses steps and delays nothing.
    let (reports, progress) = watch::channel(None);
    let work = work(Box::new(move |progress| {
        let _ = reports.send(Some(wire::ImportProgress::of(progress)));
    }));
    if !events {
        return Ok((StatusCode::CREATED, axum::Json(work.await?)).into_response());
    }
    let work = tokio::spawn(work);
    let progress = WatchStream::new(progress)
        .filter_map(|progress| std::future::ready(progress.map(|progress| sse::event("progress", &progress))));
    let end = stream::once(async move {
        match work.await {
            Ok(Ok(done)) => sse::event("done", &done),
            Ok(Err(error)) => error::last_event(error.into()),
            Err(_) => error::last_event(ServiceError::Stopping.into()),
        }
    });
    Ok(sse::answer(progress.chain(end)))
}
