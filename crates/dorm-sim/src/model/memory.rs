//! The data that the memory and the files of a sandbox must hold, as acknowledged to callers.

use std::fs;
use std::path::Path;

use dorm_engine_fake::IMAGE_MEMORY;
use serde_json::Value;

/// The known content of one memory: that of a run, or that in an image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Memory {
    /// A program that answers each line with its token and a number.
    pub(crate) counter: Option<Counter>,
    /// How many times the service was started again at least, once it is known to exist.
    pub(crate) service: Option<u64>,
    /// The number that was written to the file.
    pub(crate) file: Bounds,
}

/// A number with a known lower and upper bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounds {
    /// The highest acknowledged number.
    pub(crate) least: u64,
    /// The highest requested number.
    pub(crate) most: u64,
}

/// A program that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Counter {
    pub(crate) process: u64,
    pub(crate) token: String,
    pub(crate) count: Bounds,
}

impl Counter {
    /// Its answer number `count`.
    pub(crate) fn line(&self, count: u64) -> String {
        format!("{} {count}", self.token)
    }

    /// The offset in its output after its answer number `count`.
    pub(crate) fn offset_after(&self, count: u64) -> u64 {
        (1..=count).map(|count| self.line(count).len() as u64 + 1).sum()
    }
}

impl Memory {
    /// The content of files that were read not before `earliest` and not after `self`.
    pub(crate) fn files_since(&self, earliest: &Self) -> Self {
        let file = Bounds { least: earliest.file.least, most: self.file.most };
        Self { counter: None, service: None, file }
    }

    /// The memory in the image in `directory`, which was taken not before `earliest` and not after
    /// `self`.
    pub(crate) fn in_image(&self, earliest: &Self, directory: &Path) -> Result<Self, String> {
        let file = Bounds { least: earliest.file.least, most: self.file.most };
        let service = earliest.service;
        let known = match (&self.counter, &earliest.counter) {
            (Some(now), Some(_)) => now,
            (Some(_) | None, _) => return Ok(Self { counter: None, service, file }),
        };
        let least = earliest.counter.as_ref().map_or(0, |counter| counter.count.least);
        let Counted { count, has_more } = count_in(directory, known)?;
        if count < least || count > known.count.most {
            let most = known.count.most;
            return Err(format!("the image holds {} {count}, which should be {least} to {most}", known.token));
        }
        let count = Bounds { least: count, most: if has_more { known.count.most } else { count } };
        Ok(Self { counter: Some(Counter { count, ..known.clone() }), service, file })
    }
}

/// The state of a counter in an image.
struct Counted {
    count: u64,
    /// Whether there was unread input.
    has_more: bool,
}

/// Reads the state of `counter` from the image in `directory`.
fn count_in(directory: &Path, counter: &Counter) -> Result<Counted, String> {
    let path = directory.join(IMAGE_MEMORY);
    let text = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let memory: Value = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let process = &memory["processes"][counter.process.to_string()];
    let program = &process["program"]["counter"];
    if program["token"].as_str() != Some(counter.token.as_str()) {
        return Err(format!("the image has no process {} with the token {}", counter.process, counter.token));
    }
    let count = program["count"].as_u64().ok_or_else(|| format!("{}: the counter has no count", path.display()))?;
    Ok(Counted { count, has_more: process["input"]["bytes"] != "" })
}
