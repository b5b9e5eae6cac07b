//! The data directory: its lock, its permissions, its keys, and the address of its daemon.

mod closed;

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dorm_disk::lock::{self, Holder, LockError, Sharing};
use dorm_guest_ids::GuestIds;
use thiserror::Error;

/// The data directory of a daemon that is not given another.
pub(crate) const DEFAULT: &str = "/var/lib/dormouse";

/// The error of an operation on the data directory.
#[derive(Debug, Error)]
pub(crate) enum DataError {
    /// Another daemon uses the directory.
    #[error("{path} is in use by another daemon{holder}: stop that daemon, or choose another --data directory")]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The daemon's process id and command, as far as they are known.
        holder: String,
    },
    /// Sandboxes could not reach their files in the directory.
    #[error(
        "no sandbox can start with the data directory {path}: user ids of sandboxes cannot pass through {closed}; run \
         `chmod o+x {closed}`, or choose a --data directory that every user can reach, such as /var/lib/dormouse"
    )]
    Unreachable {
        /// The directory.
        path: PathBuf,
        /// The directory above it that does not let them pass.
        closed: PathBuf,
    },
    /// An input or output error.
    #[error("cannot {operation} {path}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Other users may read the API key.
    #[error("other users can read {path}: run `chmod 600` on it, or delete it to get a new key")]
    OpenKey {
        /// The key's file.
        path: PathBuf,
    },
    /// The file is not a key of secrets.
    #[error("{path} is not a secrets key, which is 64 hexadecimal digits: put back the file that the daemon created")]
    NoSecretsKey {
        /// The key's file.
        path: PathBuf,
    },
    /// Other users may read the key of secrets.
    #[error("other users can read {path}: run `chmod 600` on it")]
    OpenSecretsKey {
        /// The key's file.
        path: PathBuf,
    },
    /// The file of the API key is empty.
    #[error("{path} contains no key: delete it to get a new one")]
    NoKey {
        /// The key's file.
        path: PathBuf,
    },
}

fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> DataError {
    let path = path.to_owned();
    move |source| DataError::Io { operation, path, source }
}

/// A data directory, held by this process until it is dropped.
pub(crate) struct Data {
    path: PathBuf,
    lock: File,
    lock_path: PathBuf,
}

impl Data {
    /// Takes the directory, creating it if it is missing.
    pub(crate) fn take(path: &Path) -> Result<Self, DataError> {
        make(path)?;
        let path = path.canonicalize().map_err(io("find", path))?;
        let is_ours = closed::is_for_a_daemon(&path).map_err(io("list", &path))?;
        let lock_path = path.join("lock");
        let mut lock = lock::open(&lock_path).map_err(|error| io("lock", &lock_path)(error.into()))?;
        match lock::hold(&lock, &lock_path, Sharing::Exclusive, HOLDER_LIMIT) {
            Ok(()) => {}
            Err(LockError::Held { holders, .. }) => {
                let holder = shown(&holders, &mut lock);
                return Err(DataError::InUse { path, holder });
            }
            Err(error) => return Err(io("lock", &lock_path)(error.into())),
        }
        closed::close(&path, is_ours).map_err(io("restrict the access to", &path))?;
        Ok(Self { path, lock, lock_path })
    }

    /// Checks whether sandboxes can reach their files in it and in the directory of images.
    pub(crate) fn is_reachable(&self, images: &Path, ids: GuestIds) -> Result<(), DataError> {
        for path in [&self.path, images] {
            if let Some(closed) = dorm_storage::closed_to_guests(path, ids) {
                return Err(DataError::Unreachable { path: path.to_owned(), closed });
            }
        }
        Ok(())
    }

    /// Records which process holds the directory. Overwrites the file in place, which needs no
    /// space on the disk.
    pub(crate) fn note_holder(&mut self) -> Result<(), DataError> {
        let text = std::process::id().to_string();
        let written = self.lock.rewind().and_then(|()| self.lock.write_all(text.as_bytes()));
        let written = written.and_then(|()| self.lock.set_len(text.len() as u64));
        written.map_err(io("write", &self.lock_path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the key of its API, creating it if there is none.
    pub(crate) fn key(&self) -> Result<String, DataError> {
        let path = self.path.join("key");
        if path.exists() {
            return read_key(&self.path);
        }
        let key = format!("dorm_{}", base64_url(&random(&path)?));
        self.write_secret(&path, key.as_bytes())?;
        Ok(key)
    }

    /// Returns the secret from which the tokens of private ports are derived, creating it if there
    /// is none. Without the file, old tokens become invalid.
    pub(crate) fn port_secret(&self) -> Result<[u8; 32], DataError> {
        let path = self.path.join("port-secret");
        match std::fs::read(&path) {
            Ok(bytes) => match bytes.try_into() {
                Ok(secret) => return Ok(secret),
                Err(_) => {
                    tracing::warn!(path = %path.display(), "the secret of port tokens is damaged; creating a new one")
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("read", &path)(error)),
        }
        let secret = random(&path)?;
        self.write_secret(&path, &secret)?;
        Ok(secret)
    }

    /// Returns the default path of the key of secrets.
    pub(crate) fn secrets_key_path(&self) -> PathBuf {
        self.path.join("secrets-key")
    }

    /// Creates the key of secrets at `path`.
    pub(crate) fn make_secrets_key(&self, path: &Path) -> Result<[u8; 32], DataError> {
        let key = random(path)?;
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.write_secret(path, format!("{digits}\n").as_bytes())?;
        let parent = path.parent().unwrap_or(path);
        File::open(parent).and_then(|open| open.sync_all()).map_err(io("sync", parent))?;
        Ok(key)
    }

    fn write_secret(&self, path: &Path, secret: &[u8]) -> Result<(), DataError> {
        let draft = path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)
            .map_err(io("write", &draft))?;
        file.write_all(secret).and_then(|()| file.sync_all()).map_err(io("write", &draft))?;
        std::fs::rename(&draft, path).map_err(io("write", path))?;
        // The secret is used from now on, so it must be durable.
        self.sync()
    }

    /// Makes the entries of the directory and its own name durable.
    pub(crate) fn sync(&self) -> Result<(), DataError> {
        for directory in [Some(self.path.as_path()), self.path.parent()].into_iter().flatten() {
            File::open(directory).and_then(|open| open.sync_all()).map_err(io("sync", directory))?;
        }
        Ok(())
    }

    /// Records where the daemon listens, for the command line.
    pub(crate) fn note_address(&self, address: &str) -> Result<(), DataError> {
        let (draft, path) = (self.path.join("address.new"), self.path.join("address"));
        std::fs::write(&draft, format!("{address}\n")).map_err(io("write", &draft))?;
        std::fs::rename(&draft, &path).map_err(io("write", &path))
    }
}

fn random(path: &Path) -> Result<[u8; 32], DataError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| io("create a secret for", path)(std::io::Error::other(error.to_string())))?;
    Ok(bytes)
}

/// How long to wait for the lock: a daemon that was killed may leave a child that holds it until
/// the child executes another program.
const HOLDER_LIMIT: Duration = Duration::from_secs(2);

/// Creates the directory and missing parents, all of which sandboxes must be able to pass through.
fn make(path: &Path) -> Result<(), DataError> {
    use std::os::unix::fs::PermissionsExt as _;
    let missing: Vec<_> = path.ancestors().take_while(|above| !above.exists()).collect();
    std::fs::create_dir_all(path).map_err(io("create", path))?;
    let made = missing.into_iter().filter(|made| !made.as_os_str().is_empty());
    for made in made {
        std::fs::set_permissions(made, std::fs::Permissions::from_mode(0o755)).map_err(io("set the mode of", made))?;
    }
    Ok(())
}

/// Returns the holder of the lock, as the kernel lists it or as the daemon recorded it in the file.
fn shown(holders: &[Holder], lock: &mut File) -> String {
    if let Some(Holder { pid, command }) = holders.first() {
        return format!(" (process {pid}: {command})");
    }
    let mut noted = String::new();
    let known = lock.read_to_string(&mut noted).is_ok() && !noted.trim().is_empty();
    if known { format!(" (process {})", noted.trim()) } else { String::new() }
}

/// Returns the API key in a data directory.
pub(crate) fn read_key(directory: &Path) -> Result<String, DataError> {
    use std::os::unix::fs::MetadataExt as _;
    let path = directory.join("key");
    let metadata = std::fs::metadata(&path).map_err(io("read", &path))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(DataError::OpenKey { path });
    }
    let key = std::fs::read_to_string(&path).map_err(io("read", &path))?;
    let key = key.trim();
    if key.is_empty() { Err(DataError::NoKey { path }) } else { Ok(key.to_owned()) }
}

/// Returns the key of secrets at `path`, or none if the file does not exist.
pub(crate) fn read_secrets_key(path: &Path) -> Result<Option<[u8; 32]>, DataError> {
    use std::os::unix::fs::MetadataExt as _;
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("read", path)(error)),
    };
    if std::fs::metadata(path).map_err(io("read", path))?.mode() & 0o077 != 0 {
        return Err(DataError::OpenSecretsKey { path: path.to_owned() });
    }
    let digits = text.trim().as_bytes();
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let is_hexadecimal = digits.iter().all(u8::is_ascii_hexdigit);
    let key: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    let key = key.filter(|_| is_hexadecimal && digits.len() == 64).and_then(|key| key.try_into().ok());
    key.map(Some).ok_or_else(|| DataError::NoSecretsKey { path: path.to_owned() })
}

/// Returns where the daemon of a data directory listens, or none if that is not recorded.
pub(crate) fn read_address(directory: &Path) -> Result<Option<String>, DataError> {
    let path = directory.join("address");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(io("read", &path)(error)),
        Err(_) => Ok(None),
    }
}

fn base64_url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_refused_and_the_holder_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut held = Data::take(directory.path()).unwrap();
        held.note_holder().unwrap();
        let refused = Data::take(directory.path()).err().unwrap().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(held);
        Data::take(directory.path()).unwrap();
    }

    #[test]
    fn the_key_is_made_once_and_only_its_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let held = Data::take(directory.path()).unwrap();
        let key = held.key().unwrap();
        assert_eq!(held.key().unwrap(), key);
        assert_eq!(read_key(directory.path()).unwrap(), key);
        let path = directory.path().join("key");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read_key(directory.path()), Err(DataError::OpenKey { .. })));
    }
}
