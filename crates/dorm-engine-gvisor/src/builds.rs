//! The builds of `runsc` that run sandboxes: the newest for everything new, and older ones for the
//! memory images that only they can restore.
//!
//! A memory image of a known format can be restored by every build with that format, also if the
//! build that wrote it is gone. Otherwise only the build that wrote it can.
//!
//! Each program file stays open and is executed through its descriptor. If the file is replaced
//! while the daemon runs, the daemon keeps using the old program until its next start, so no memory
//! image is recorded with a build that did not write it.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_engine::{Capabilities, EngineError, RestoredMemory};
use dorm_memory_image::MemoryFormat;

use crate::error::NAME;
use crate::probe::{Probe, probe};
use crate::release::format_of;

/// One build of `runsc`.
#[derive(Clone, Debug)]
struct Build {
    name: String,
    /// The format of its memory images, if it is known.
    format: Option<MemoryFormat>,
    program: PathBuf,
    /// Kept open as long as the build may be executed.
    _file: Arc<fs::File>,
}

/// All builds; the first is the one for new sandboxes.
#[derive(Clone, Debug)]
pub(crate) struct Builds(Vec<Build>);

impl Builds {
    /// Opens `runsc` and the older programs `also`. Blocks.
    pub(crate) fn open(runsc: &Path, also: &[PathBuf]) -> Result<(Self, Probe), EngineError> {
        let (newest, found) = Build::open(runsc)?;
        let mut builds = vec![newest];
        for path in also {
            let (build, _) = Build::open(path)?;
            if builds.iter().all(|known| known.name != build.name) {
                builds.push(build);
            }
        }
        Ok((Self(builds), found))
    }

    /// Returns the program to execute for the build `name`, or for the newest build if `name` is
    /// `None`.
    pub(crate) fn program(&self, name: Option<&str>) -> Option<PathBuf> {
        let build = match name {
            None => self.0.first(),
            Some(name) => self.0.iter().find(|build| build.name == name),
        };
        Some(build?.program.clone())
    }

    /// Returns the name of the build that restores memory images of `writer`: the newest that can.
    pub(crate) fn for_images_of(&self, writer: &str) -> Option<&str> {
        let format = format_of(writer);
        let can = |build: &&Build| build.name == writer || (format.is_some() && build.format == format);
        self.0.iter().find(can).map(|build| build.name.as_str())
    }

    /// Returns the capabilities of an engine with these builds. `found` are the facts about the
    /// newest.
    pub(crate) fn capabilities(&self, found: &Probe, memory: RestoredMemory) -> Capabilities {
        Capabilities {
            name: NAME,
            build: found.build.clone(),
            format: found.format,
            also: self.older(),
            released: found.released.clone(),
            cpu: found.cpu.clone(),
            memory,
            // Only the file system of the engine's directory shows it.
            shares_blocks: false,
            holds_after_restore: false,
        }
    }

    /// Returns the name of the build for new sandboxes.
    pub(crate) fn newest(&self) -> &str {
        self.0.first().map_or("", |build| &build.name)
    }

    /// Returns the names of the older builds.
    fn older(&self) -> Vec<String> {
        self.0.iter().skip(1).map(|build| build.name.clone()).collect()
    }
}

impl Build {
    fn open(program: &Path) -> Result<(Self, Probe), EngineError> {
        let unreadable = |source: io::Error| {
            let hint = format!("let the daemon read {}", program.display());
            EngineError::Unusable { engine: NAME, hint, source: Some(source.into()) }
        };
        let Ok(file) = fs::File::open(program) else {
            // The probe reports what is missing.
            probe(program).usable()?;
            return Err(unreadable(io::ErrorKind::PermissionDenied.into()));
        };
        let mut start = [0; 2];
        let read = file.read_at(&mut start, 0).map_err(unreadable)?;
        // The kernel passes a script's path to its interpreter, and a descriptor is closed by then.
        let is_script = start.get(..read) == Some(b"#!");
        let path = if is_script { program.to_owned() } else { path_of(&file) };
        let found = Probe { runsc: program.to_owned(), ..probe(&path) };
        found.usable()?;
        let format = format_of(&found.build);
        Ok((Self { name: found.build.clone(), format, program: path, _file: Arc::new(file) }, found))
    }
}

/// Returns a path to the open file that is valid in this process and in one it has just forked.
fn path_of(file: &fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
