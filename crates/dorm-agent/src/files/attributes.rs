//! The extended attributes of files that begin with `user.`, which have no meaning for the kernel.

use std::collections::BTreeSet;

use dorm_agent_proto::{ATTRIBUTES_BYTES_MAX, Attribute, Failure, GuestBytes, GuestPath, GuestString};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::fault;

/// The most bytes of names, and likewise of one value, that Linux knows.
const LINUX_MAX: usize = 64 * 1024;

/// Returns the attributes of a file, ordered by name. A file system without attributes has none.
pub(crate) fn attributes(path: &GuestPath) -> Result<Vec<Attribute>, Failure> {
    let failed = |error: Errno| fault::on_path("read the attributes of", path, &error.into());
    let mut buffer = vec![0; LINUX_MAX];
    let length = match listxattr(path.as_path(), buffer.as_mut_slice()) {
        Ok(length) => length,
        // A path that does not exist must not look like a file without attributes.
        Err(Errno::OPNOTSUPP) => std::fs::metadata(path.as_path())
            .map(|_| 0)
            .map_err(|error| fault::on_path("read the attributes of", path, &error))?,
        Err(error) => return Err(failed(error)),
    };
    let names: BTreeSet<_> = buffer[..length]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(Attribute::PREFIX.as_bytes()))
        .filter_map(|name| GuestString::new(name).ok())
        .collect();
    let mut attributes = Vec::new();
    let mut bytes = 0;
    let mut value = vec![0; LINUX_MAX];
    for name in names {
        let length = match getxattr(path.as_path(), name.as_bytes(), value.as_mut_slice()) {
            Ok(length) => length,
            // It was removed meanwhile.
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(failed(error)),
        };
        bytes += name.as_bytes().len() + length;
        if bytes > ATTRIBUTES_BYTES_MAX {
            let reason = format!("they take more than {ATTRIBUTES_BYTES_MAX} bytes");
            return Err(fault::other("read the attributes of", path.as_bytes(), reason));
        }
        attributes.push(Attribute { name, value: GuestBytes(value[..length].to_vec()) });
    }
    Ok(attributes)
}

/// Sets attributes, then removes others, and returns all that the file has then.
pub(crate) fn set_attributes(
    path: &GuestPath,
    set: &[Attribute],
    remove: &[GuestString],
) -> Result<Vec<Attribute>, Failure> {
    let failed = |error: Errno| match error {
        // The file exists: it is the attribute that the kernel refuses.
        Errno::OPNOTSUPP => fault::other("set attributes of", path.as_bytes(), "its file system has no attributes"),
        error => fault::on_path("set attributes of", path, &error.into()),
    };
    for name in set.iter().map(|one| &one.name).chain(remove) {
        let known = name.as_bytes().strip_prefix(Attribute::PREFIX.as_bytes());
        if !known.is_some_and(|rest| !rest.is_empty() && name.as_bytes().len() <= 255) {
            let reason = format!("the attribute '{name}' does not begin with user. or is longer than 255 bytes");
            return Err(Failure::Invalid { reason });
        }
    }
    let bytes: usize = set.iter().map(|one| one.name.as_bytes().len() + one.value.0.len()).sum();
    if bytes > ATTRIBUTES_BYTES_MAX {
        return Err(Failure::Invalid { reason: format!("the attributes take more than {ATTRIBUTES_BYTES_MAX} bytes") });
    }
    for one in set {
        setxattr(path.as_path(), one.name.as_bytes(), &one.value.0, XattrFlags::empty()).map_err(failed)?;
    }
    for name in remove {
        match removexattr(path.as_path(), name.as_bytes()) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    attributes(path)
}
