//! Events of sandboxes, as they happen.

use crate::client::{Client, ClientError, Reconnects, Sse};
use crate::types::Event;

/// The events of one sandbox, or of all. It continues after a lost connection, without gaps.
pub struct EventStream {
    client: Client,
    sandbox: Option<String>,
    after: u64,
    events: Sse,
    reconnects: Reconnects,
}

impl EventStream {
    pub(crate) async fn open(client: Client, sandbox: Option<String>, after: u64) -> Result<Self, ClientError> {
        let events = client.follow_events(sandbox.as_deref(), after).await?;
        let reconnects = Reconnects::new(client.retries());
        Ok(Self { client, sandbox, after, events, reconnects })
    }

    /// Returns the number of the last event, after which another stream continues.
    pub const fn position(&self) -> u64 {
        self.after
    }

    /// Returns the next event, when it happens.
    ///
    /// # Errors
    /// `gone` if events after the position are no longer kept.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            let error = match self.events.next().await {
                Ok(Some(event)) => {
                    let Ok(event) = self.events.parse::<Event>(&event) else { continue };
                    self.reconnects.delivered();
                    self.after = event.number;
                    return Ok(event);
                }
                Ok(None) => self.events.ended(),
                Err(error) => error,
            };
            self.reconnect(error).await?;
        }
    }

    async fn reconnect(&mut self, mut error: ClientError) -> Result<(), ClientError> {
        loop {
            self.reconnects.pause(error).await?;
            match self.client.follow_events(self.sandbox.as_deref(), self.after).await {
                Ok(events) => {
                    self.events = events;
                    return Ok(());
                }
                Err(again) => error = again,
            }
        }
    }
}
