//! The resource limits of a sandbox.

use crate::spec_error::SpecError;

/// CPU, memory, disk and process limits of one sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Resources {
    /// CPU time per second of wall time, in thousandths of one CPU. Default 1000.
    pub cpu_millis: u32,
    /// Guest memory in bytes. Default 512 MiB.
    pub memory_bytes: u64,
    /// Bytes that the sandbox may write to its root file system. Default 4 GiB.
    pub disk_bytes: u64,
    /// Processes and threads inside. Default 512.
    pub processes: u32,
}

/// A change of limits; `None` leaves a limit as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Resize {
    /// [`Resources::cpu_millis`]
    pub cpu_millis: Option<u32>,
    /// [`Resources::memory_bytes`]
    pub memory_bytes: Option<u64>,
}

impl Resize {
    /// Returns the limits after the change.
    pub fn apply(self, before: Resources) -> Resources {
        Resources {
            cpu_millis: self.cpu_millis.unwrap_or(before.cpu_millis),
            memory_bytes: self.memory_bytes.unwrap_or(before.memory_bytes),
            ..before
        }
    }
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpu_millis: 1000, memory_bytes: 512 << 20, disk_bytes: 4 << 30, processes: 512 }
    }
}

impl Resources {
    /// Rejects values that no host can provide or no sandbox can run with. Valid are CPU 50 to
    /// 256,000 thousandths, memory 64 MiB to 4 TiB, disk 64 MiB to 64 TiB, processes 16 to 65,536.
    ///
    /// # Errors
    ///
    /// [`SpecError::Resource`] names the first value that is out of range.
    pub fn check(&self) -> Result<(), SpecError> {
        let rows = [
            ("cpu_millis", u64::from(self.cpu_millis), 50, 256_000),
            ("memory_bytes", self.memory_bytes, 64 << 20, 4 << 40),
            ("disk_bytes", self.disk_bytes, 64 << 20, 64 << 40),
            ("processes", u64::from(self.processes), 16, 65_536),
        ];
        for (what, asked, least, most) in rows {
            if !(least..=most).contains(&asked) {
                return Err(SpecError::Resource { what, asked, least, most });
            }
        }
        Ok(())
    }
}
