//! Terminals for processes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

use dorm_agent_proto::TerminalSize;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The host's side of a terminal.
pub(super) struct Terminal {
    master: OwnedFd,
    size: TerminalSize,
}

/// Creates a terminal. The file is the process's side; it is not inherited unless it is passed as
/// standard input or output.
pub(super) fn open(size: TerminalSize) -> io::Result<(Terminal, File)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let no_controlling = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or_default();
    let slave = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(no_controlling)
        .open(OsStr::from_bytes(name.to_bytes()))?;
    let mut terminal = Terminal { master, size };
    terminal.resize(size)?;
    Ok((terminal, slave))
}

impl Terminal {
    pub(super) fn resize(&mut self, size: TerminalSize) -> io::Result<()> {
        let new = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.master.as_fd(), new)?;
        self.size = size;
        Ok(())
    }

    pub(super) fn size(&self) -> TerminalSize {
        self.size
    }

    /// Returns another descriptor of the same side.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.master.try_clone()
    }
}
