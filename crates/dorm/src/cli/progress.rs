//! That something takes long, said on standard error while it does; nothing where that is no terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work in progress. Gone from the screen when it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of unknown length.
    pub(crate) fn new(what: &str) -> Self {
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style("{spinner} {msg} ({elapsed})"));
        bar.set_message(what.to_owned());
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { bar }
    }

    /// Bytes that pass.
    pub(crate) fn bytes(what: &str) -> Self {
        let progress = Self::new(what);
        progress.bar.set_style(style("{spinner} {msg} {bytes} ({bytes_per_sec})"));
        progress
    }

    /// What is done now.
    pub(crate) fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    /// So many bytes more have passed.
    pub(crate) fn add(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// A handle to the same work.
    pub(crate) fn share(&self) -> impl Fn(usize) + Send + Sync + use<> {
        let bar = self.bar.clone();
        move |bytes| bar.inc(bytes as u64)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
