//! Lists from inside a sandbox, a part at a time: how long they are is the guest's choice.

use std::future::poll_fn;

use dorm_agent_proto::Event;

use crate::channel::{Channel, Item};
use crate::error::AgentError;

/// The most items of a list that are collected at once.
pub const PAGE_MAX: usize = 10_000;

/// When what was collected took so many bytes on the stream, nothing is added to it.
const PAGE_BYTES: u64 = 4 << 20;

/// A part of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// What is in it.
    pub items: Vec<T>,
    /// Whether something follows it.
    pub more: bool,
}

/// What an event is to a list.
pub(crate) enum Listed<T> {
    Item(T),
    /// An item that is not wanted.
    PassedOver,
    /// It does not belong there.
    Stranger,
}

impl<T> Listed<T> {
    pub(crate) fn when(is_wanted: bool, item: T) -> Self {
        if is_wanted { Self::Item(item) } else { Self::PassedOver }
    }
}

/// Collects at most `most` and [`PAGE_MAX`] items of a stream, fewer where they are large but at least one.
pub(crate) async fn collect<T>(
    mut channel: Channel,
    most: usize,
    item: impl Fn(Event) -> Listed<T>,
) -> Result<Page<T>, AgentError> {
    let most = most.clamp(1, PAGE_MAX);
    let mut items = Vec::new();
    let mut passed_over = 0;
    loop {
        let next = poll_fn(|context| channel.poll_item(context)).await;
        let found = match next.transpose()? {
            None => return Ok(Page { items, more: false }),
            Some(Item::Event(event)) => item(event),
            Some(Item::Data(_)) => Listed::Stranger,
        };
        match found {
            Listed::Stranger => return Err(channel.unexpected("an unexpected event in a list")),
            Listed::PassedOver => passed_over = channel.taken(),
            Listed::Item(_)
                if items.len() >= most || (!items.is_empty() && channel.taken() - passed_over > PAGE_BYTES) =>
            {
                return Ok(Page { items, more: true });
            }
            Listed::Item(found) => items.push(found),
        }
    }
}
