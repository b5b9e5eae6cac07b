//! One timer wheel for all sandboxes: it tells an actor that a deadline may have passed; the
//! lifecycle decides whether it has.

use std::collections::HashMap;
use std::time::Duration;

use dorm_lifecycle::SandboxId;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

/// The longest timer: the wall clock may be adjusted meanwhile, and the wheel covers at most two
/// years.
const LONGEST: Duration = Duration::from_secs(60);

enum Order {
    Set(SandboxId, Duration),
    Clear(SandboxId),
}

/// A handle to the wheel.
#[derive(Clone)]
pub(crate) struct Timers {
    orders: mpsc::UnboundedSender<Order>,
}

impl Timers {
    /// Starts the wheel; `fire` is called with each sandbox whose timer has expired.
    pub(crate) fn start(fire: impl Fn(SandboxId) + Send + 'static) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        tokio::spawn(turn(inbox, fire));
        Self { orders }
    }

    /// Sets the only timer of `sandbox`, or removes it. It may fire earlier than requested, never
    /// later.
    pub(crate) fn set(&self, sandbox: &SandboxId, after: Option<Duration>) {
        let order = match after {
            Some(after) => Order::Set(sandbox.clone(), after.min(LONGEST)),
            None => Order::Clear(sandbox.clone()),
        };
        // The wheel ends only with the daemon.
        let _ = self.orders.send(order);
    }
}

async fn turn(mut inbox: mpsc::UnboundedReceiver<Order>, fire: impl Fn(SandboxId)) {
    let mut queue = DelayQueue::new();
    let mut keys: HashMap<SandboxId, Key> = HashMap::new();
    loop {
        tokio::select! {
            biased;
            Some(due) = queue.next(), if !queue.is_empty() => {
                let sandbox = due.into_inner();
                keys.remove(&sandbox);
                fire(sandbox);
            }
            order = inbox.recv() => match order {
                Some(Order::Set(sandbox, after)) => {
                    if let Some(key) = keys.remove(&sandbox) {
                        queue.remove(&key);
                    }
                    keys.insert(sandbox.clone(), queue.insert(sandbox, after));
                }
                Some(Order::Clear(sandbox)) => {
                    if let Some(key) = keys.remove(&sandbox) {
                        queue.remove(&key);
                    }
                }
                None => return,
            },
        }
    }
}
