//! Work of the service in tasks of its own.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::JoinHandle;

use super::Shared;
use crate::error::{STOPPED, ServiceError};

/// Work of the service in a task of its own.
pub(crate) struct Working<T>(JoinHandle<Option<T>>);

/// Work that did not finish: the service stopped before, or the work panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{STOPPED}")]
pub(crate) struct Unfinished;

impl<T> Future for Working<T> {
    type Output = Result<T, Unfinished>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).ok().flatten().ok_or(Unfinished))
    }
}

impl Shared {
    /// Runs work in a task of its own, which continues if the result is not awaited. A stop of the
    /// service waits for its end, and abandons it after the limit.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Working<T> {
        let left = self.left.clone();
        Working(self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = left.cancelled() => None,
                done = work => Some(done),
            }
        }))
    }

    /// Runs an operation of a caller to its end. The caller may go away at any time; what is
    /// recorded is finished even so.
    pub(crate) async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
    ) -> Result<T, ServiceError> {
        self.spawn(work).await.unwrap_or(Err(ServiceError::Stopping))
    }

    /// Like [`Shared::finish`], for an operation that a stop of the service may cut short at any
    /// point.
    pub(crate) async fn finish_unless_stopped<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let stopping = self.stopping.clone();
        let work = async move {
            tokio::select! {
                biased;
                () = stopping.cancelled() => Err(ServiceError::Stopping),
                done = work => done,
            }
        };
        self.finish(work).await
    }
}
