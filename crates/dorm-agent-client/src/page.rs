//! Pages of lists from a sandbox, since the guest controls their length.

use std::future::poll_fn;

use dorm_agent_proto::Event;

use crate::channel::{Channel, Item};
use crate::error::AgentError;

/// The maximum number of items on a page.
pub const PAGE_MAX: usize = 10_000;

/// A page whose items took this many bytes on the stream is complete.
const PAGE_BYTES: u64 = 4 << 20;

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Whether more items follow.
    pub more: bool,
    /// The number of bytes that the items took on the stream. A caller that collects several pages
    /// needs it for a limit.
    pub bytes: u64,
}

/// The meaning of an event for a list.
pub(crate) enum Listed<T> {
    Item(T),
    /// An item that is skipped.
    PassedOver,
    /// An event that does not belong to the list.
    Stranger,
}

impl<T> Listed<T> {
    pub(crate) fn when(is_wanted: bool, item: T) -> Self {
        if is_wanted { Self::Item(item) } else { Self::PassedOver }
    }
}

/// Collects at most `most` and [`PAGE_MAX`] items of a stream; fewer if they are large, but at
/// least one.
pub(crate) async fn collect<T>(
    mut channel: Channel,
    most: usize,
    item: impl Fn(Event) -> Listed<T>,
) -> Result<Page<T>, AgentError> {
    let most = most.clamp(1, PAGE_MAX);
    let (mut items, mut bytes) = (Vec::new(), 0);
    loop {
        let before = channel.taken();
        let next = poll_fn(|context| channel.poll_item(context)).await;
        let found = match next.transpose()? {
            None => return Ok(Page { items, more: false, bytes }),
            Some(Item::Event(event)) => item(event),
            Some(Item::Data(_)) => Listed::Stranger,
        };
        let length = channel.taken() - before;
        match found {
            Listed::Stranger => return Err(channel.unexpected("an unexpected event in a list")),
            Listed::PassedOver => {}
            Listed::Item(_) if items.len() >= most || (!items.is_empty() && bytes + length > PAGE_BYTES) => {
                return Ok(Page { items, more: true, bytes });
            }
            Listed::Item(found) => {
                bytes += length;
                items.push(found);
            }
        }
    }
}
