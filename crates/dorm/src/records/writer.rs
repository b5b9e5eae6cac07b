//! The thread that writes record files. It writes only the newest text of each record, so that it
//! never falls behind for long.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Fate, Key, Keyed, name};

/// How long shutdown waits for the files.
const CLOSING: Duration = Duration::from_secs(5);

type Waiting = BTreeMap<Key, Fate>;

#[derive(Default)]
struct Queue {
    waiting: Waiting,
    is_writing: bool,
    is_closing: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
}

impl Shared {
    /// The queue is consistent between any two statements that hold its lock.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Writer(Arc<Shared>);

impl Writer {
    pub(super) fn start(directory: PathBuf) -> Self {
        let shared = Arc::new(Shared::default());
        let working = shared.clone();
        let started = std::thread::Builder::new().name("records".to_owned()).spawn(move || work(&working, &directory));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the writer of record files; records are kept only in the database");
            shared.queue().is_closing = true;
        }
        Self(shared)
    }

    pub(super) fn write(&self, fates: Vec<Keyed>) {
        if fates.is_empty() {
            return;
        }
        let mut queue = self.0.queue();
        if !queue.is_closing {
            queue.waiting.extend(fates);
            self.0.news.notify_all();
        }
    }

    pub(super) async fn close(&self) {
        let shared = self.0.clone();
        let closed = tokio::task::spawn_blocking(move || {
            shared.queue().is_closing = true;
            shared.news.notify_all();
            let is_busy = |queue: &mut Queue| queue.is_writing || !queue.waiting.is_empty();
            drop(shared.news.wait_timeout_while(shared.queue(), CLOSING, is_busy));
        });
        let _ = closed.await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.queue().is_closing = true;
        self.0.news.notify_all();
    }
}

fn work(shared: &Shared, directory: &Path) {
    loop {
        let batch = {
            let is_idle = |queue: &mut Queue| queue.waiting.is_empty() && !queue.is_closing;
            let mut queue = shared.news.wait_while(shared.queue(), is_idle).unwrap_or_else(PoisonError::into_inner);
            if queue.waiting.is_empty() {
                return;
            }
            queue.is_writing = true;
            std::mem::take(&mut queue.waiting)
        };
        if let Err(error) = write(directory, &batch) {
            tracing::warn!(%error, path = %directory.display(), "cannot write record files; `dorm repair` may find outdated ones");
        }
        shared.queue().is_writing = false;
        shared.news.notify_all();
    }
}

fn write(directory: &Path, batch: &Waiting) -> io::Result<()> {
    // The files contain what the database contains, including variables and secrets.
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for ((kind, id), fate) in batch {
        let path = directory.join(name(*kind, id));
        match fate {
            Some(file) => {
                let text = file.text();
                // At a start most files are up to date.
                if fs::read(&path).is_ok_and(|there| there == text) {
                    continue;
                }
                replace(directory, &path, &text)?;
            }
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
    }
    File::open(directory)?.sync_all()
}

fn replace(directory: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = directory.join("draft");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}
