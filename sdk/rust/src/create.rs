//! Creates sandboxes.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::client::{Client, ClientError};
use crate::sandbox::Sandbox;
use crate::types::{self, CreateSandbox};

/// A sandbox to create. Await it to send the request.
///
/// ```no_run
/// # async fn example(dormouse: dorm_client::Dormouse) -> Result<(), dorm_client::ClientError> {
/// use std::time::Duration;
///
/// let sandbox = dormouse.create("base").name("web").idle_timeout(Duration::from_secs(600)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is created until this is awaited"]
pub struct Create {
    client: Client,
    asked: CreateSandbox,
}

impl Create {
    pub(crate) const fn new(client: Client, asked: CreateSandbox) -> Self {
        Self { client, asked }
    }

    /// Its name, unique among living sandboxes. Default: none; a sandbox without a name cannot be
    /// suspended, and is terminated at a deadline.
    pub fn name(mut self, name: &str) -> Self {
        self.asked.name = Some(name.to_owned());
        self
    }

    /// A label. Sandboxes can be selected by their labels.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.asked.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// An environment variable of every process.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.asked.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A secret that every process gets as an environment variable. It is recorded encrypted and
    /// never returned.
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.asked.secrets.insert(name.to_owned(), types::Secret(value.to_owned()));
        self
    }

    /// CPU limit in thousandths of a CPU. Default: that of the daemon.
    pub fn cpu_millis(mut self, millis: u32) -> Self {
        self.asked.resources.get_or_insert_default().cpu_millis = Some(millis);
        self
    }

    /// Memory in bytes. Default: that of the daemon.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.asked.resources.get_or_insert_default().memory_bytes = Some(bytes);
        self
    }

    /// Disk in bytes. Default: that of the daemon.
    pub fn disk_bytes(mut self, bytes: u64) -> Self {
        self.asked.resources.get_or_insert_default().disk_bytes = Some(bytes);
        self
    }

    /// Time from the start of a run to its deadline. Default: none.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.asked.timeout_secs = Some(time.as_secs_f64());
        self
    }

    /// Time without activity after which it is suspended, or terminated if it has no name. Default:
    /// none.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.asked.idle_timeout_secs = Some(time.as_secs_f64());
        self
    }

    /// The calls that resume it when it is suspended. Default: connections to its ports.
    pub fn wake(mut self, wake: types::Wake) -> Self {
        self.asked.wake = Some(wake);
        self
    }

    /// Where it may connect to. Default: to public addresses.
    pub fn egress(mut self, egress: types::Egress) -> Self {
        self.asked.egress = Some(egress);
        self
    }

    /// Attaches a volume at a path.
    pub fn volume(mut self, volume: &str, path: &str) -> Self {
        let (volume, path) = (volume.to_owned(), path.to_owned());
        self.asked.volumes.push(types::AttachVolume { volume, path, read_only: false, subpath: None });
        self
    }

    /// Waits so long for room, in turn with others, if running sandboxes use up a budget. Default:
    /// the request fails at once.
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.asked.max_wait_secs = Some(time.as_secs_f64());
        self
    }

    /// A key by which another attempt, also of another program, gets the sandbox of this one.
    /// Default: a random key.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.client = self.client.with_idempotency_key(key);
        self
    }

    /// Any other setting.
    pub fn with(mut self, change: impl FnOnce(&mut CreateSandbox)) -> Self {
        change(&mut self.asked);
        self
    }
}

impl IntoFuture for Create {
    type Output = Result<Sandbox, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let created = self.client.create(&self.asked).await?;
            // The key belongs to the request that created it.
            Ok(Sandbox::new(self.client.without_idempotency_key(), created.id))
        }
        .boxed()
    }
}
