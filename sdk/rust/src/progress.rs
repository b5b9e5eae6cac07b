//! The progress of pulls, imports and pushes.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::client::{ClientError, Sse};
use crate::types::ImportProgress;

/// A long operation, with its progress. It continues if this is dropped.
pub struct Progress<T> {
    events: Sse,
    done: Option<T>,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Progress<T> {
    /// Returns the progress in a stream of `progress`, then `done`, such as
    /// [`Client`](crate::Client) returns for operations on images and snapshots.
    pub const fn new(events: Sse) -> Self {
        Self { events, done: None, of: PhantomData }
    }

    /// Returns the next step, or none when the operation has ended.
    pub async fn next(&mut self) -> Result<Option<ImportProgress>, ClientError> {
        while self.done.is_none() {
            let Some(event) = self.events.next().await? else { return Err(self.events.ended()) };
            match event.kind.as_str() {
                "progress" => return self.events.parse(&event).map(Some),
                "done" => self.done = Some(self.events.parse(&event)?),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Waits for the end, and returns the result.
    pub async fn finish(mut self) -> Result<T, ClientError> {
        while self.next().await?.is_some() {}
        self.done.ok_or_else(|| self.events.ended())
    }
}
