//! Writing a file of a volume.

use std::io;

use axum::body::Body;
use dorm_lifecycle::VolumeId;
use dorm_service::{EntryPath, EntryStat, NewEntry, NewFile, Service, ServiceError};
use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;

use super::content::{full, is_full, refused};
use crate::error::Refusal;

/// The most bytes that are read from a request after the write has failed.
const DISCARDED_BYTES_MAX: usize = 64 << 20;

/// Writes the body of a request to a file. It appears complete or not at all.
pub(super) async fn write(
    service: &Service,
    id: &VolumeId,
    path: &EntryPath,
    new: NewEntry,
    mut body: Body,
) -> Result<EntryStat, Refusal> {
    let (mut file, using) = match service.write_volume_entry(id, path, new).await {
        Ok(begun) => begun,
        Err(error) => {
            discard(body).await;
            return Err(refused(error));
        }
    };
    if let Err(refusal) = receive(&mut file, path, &mut body).await {
        // The file is discarded before the volume is released.
        drop(file);
        drop(using);
        discard(body).await;
        return Err(refusal);
    }
    // It ends even if the client leaves now.
    let finished = tokio::task::spawn_blocking(move || {
        let finished = file.finish();
        drop(using);
        finished
    });
    match finished.await {
        Ok(Ok(entry)) => Ok(entry),
        Ok(Err(error)) => {
            let kind = error.path_kind().unwrap_or(io::ErrorKind::Other);
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Err(failed(kind, format!("{error}{cause}")))
        }
        Err(_) => Err(ServiceError::Stopping.into()),
    }
}

/// Receives the content of a file.
async fn receive(new: &mut NewFile, path: &EntryPath, body: &mut Body) -> Result<(), Refusal> {
    let unwritten = |error: io::Error| failed(error.kind(), format!("cannot write '{path}': {error}"));
    let taken = new.take().map_err(|error| Refusal::invalid(error.to_string()))?;
    let mut file = tokio::fs::File::from_std(taken);
    let mut pieces = std::mem::take(body).into_data_stream();
    let received = async {
        while let Some(piece) = pieces.next().await {
            let cut = |error| Refusal::invalid(format!("the request body ended early: {error}"));
            file.write_all(&piece.map_err(cut)?).await.map_err(unwritten)?;
        }
        file.flush().await.map_err(unwritten)
    };
    let received = received.await;
    *body = Body::from_stream(pieces);
    received
}

fn failed(kind: io::ErrorKind, message: String) -> Refusal {
    match kind {
        kind if is_full(kind) => full(message),
        io::ErrorKind::AlreadyExists => Refusal::conflict(message),
        io::ErrorKind::NotFound => Refusal::not_found(message),
        io::ErrorKind::IsADirectory => Refusal::invalid(message),
        _ => Refusal::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, message).not_again(),
    }
}

/// Reads the rest of a request: a client that still sends may not read its answer.
async fn discard(body: Body) {
    let mut pieces = body.into_data_stream();
    let mut count = 0;
    while let Some(Ok(piece)) = pieces.next().await {
        count += piece.len();
        if count > DISCARDED_BYTES_MAX {
            return;
        }
    }
}
