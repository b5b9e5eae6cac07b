//! The progress of long work, shown on standard error if that is a terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work in progress. It disappears from the screen when dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts work of unknown length.
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

    /// Starts a transfer of bytes.
    pub(crate) fn bytes(what: &str) -> Self {
        let progress = Self::new(what);
        progress.bar.set_style(style("{spinner} {msg} {bytes} ({bytes_per_sec})"));
        progress
    }

    /// Sets the message.
    pub(crate) fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Adds transferred bytes.
    pub(crate) fn add(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// Returns a function that adds transferred bytes.
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
