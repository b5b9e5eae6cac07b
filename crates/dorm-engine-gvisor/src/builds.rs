//! The builds of `runsc` that sandboxes run under: the one for everything new, and older ones for the memory images that
//! they have written.
//!
//! Each program stays open, and is executed through its descriptor. One that is replaced while the daemon runs is the
//! same as before until the next start, and no image is said to be of a build that has not written it.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use dorm_engine::EngineError;

use crate::engine::NAME;
use crate::probe::{Probe, probe};

/// One build.
#[derive(Debug)]
struct Build {
    name: String,
    program: PathBuf,
    /// Open as long as the build may be executed.
    _file: fs::File,
}

/// All of them, the one for new sandboxes first.
#[derive(Debug)]
pub(crate) struct Builds(Vec<Build>);

impl Builds {
    /// Opens `runsc`, and the older programs `also`. Blocks.
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

    /// What to execute for a build; for none, the newest.
    pub(crate) fn program(&self, name: Option<&str>) -> Option<PathBuf> {
        let build = match name {
            None => self.0.first(),
            Some(name) => self.0.iter().find(|build| build.name == name),
        };
        Some(build?.program.clone())
    }

    /// The build for new sandboxes.
    pub(crate) fn newest(&self) -> &str {
        self.0.first().map_or("", |build| &build.name)
    }

    /// The others.
    pub(crate) fn older(&self) -> Vec<String> {
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
            // It says what is missing.
            probe(program).usable()?;
            return Err(unreadable(io::ErrorKind::PermissionDenied.into()));
        };
        let mut start = [0; 2];
        let read = file.read_at(&mut start, 0).map_err(unreadable)?;
        // The kernel gives the interpreter of a script its path, and a descriptor is closed by then.
        let is_script = start.get(..read) == Some(b"#!");
        let path = if is_script { program.to_owned() } else { path_of(&file) };
        let found = Probe { runsc: program.to_owned(), ..probe(&path) };
        found.usable()?;
        Ok((Self { name: found.build.clone(), program: path, _file: file }, found))
    }
}

/// A path that leads to the open file from this process and from one that it has just forked.
fn path_of(file: &fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
