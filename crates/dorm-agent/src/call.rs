//! The open calls of a session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::channel::Channel;
use crate::lock::lock;

/// The open calls.
pub(crate) type Table = Arc<Mutex<HashMap<u32, Arc<Channel>>>>;

/// A call and its entry in the table, which is removed when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Call(Arc<Placed>);

struct Placed {
    id: u32,
    channel: Arc<Channel>,
    table: Table,
}

impl Call {
    /// Enters the call with this ID and channel into the table.
    pub(crate) fn place(table: &Table, id: u32, channel: &Arc<Channel>) -> Self {
        lock(table).insert(id, Arc::clone(channel));
        Self(Arc::new(Placed { id, channel: Arc::clone(channel), table: Arc::clone(table) }))
    }
}

impl std::ops::Deref for Call {
    type Target = Arc<Channel>;

    fn deref(&self) -> &Arc<Channel> {
        &self.0.channel
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        if table.get(&self.id).is_some_and(|channel| Arc::ptr_eq(channel, &self.channel)) {
            table.remove(&self.id);
        }
    }
}
