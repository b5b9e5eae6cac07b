//! How the errors of registries are shown to callers.

use std::io::ErrorKind;

use dorm_ports::RegistryError;
use dorm_store::Code;

use super::storage_code;

/// Returns the kind of the error.
pub(super) fn code(error: &RegistryError) -> Code {
    match error {
        RegistryError::Reference { .. } | RegistryError::NoRegistries(_) | RegistryError::Unauthorized { .. } => {
            Code::InvalidArgument
        }
        RegistryError::NotFound { .. } => Code::NotFound,
        RegistryError::Unreachable { .. } | RegistryError::RateLimited { .. } | RegistryError::Interrupted { .. } => {
            Code::Unavailable
        }
        RegistryError::Io { source, .. } if is_full(source) => Code::NoRoom,
        RegistryError::Refused { .. } | RegistryError::Lies { .. } | RegistryError::Io { .. } => Code::Failed,
        RegistryError::NoRoom { .. } => Code::NoRoom,
        RegistryError::Storage { source, .. } => source.downcast_ref().map_or(Code::Failed, storage_code),
    }
}

/// Returns what the caller can do next, as a sentence; empty if the message already says it.
pub(super) fn next_step(error: &RegistryError) -> &'static str {
    match error {
        RegistryError::Reference { .. } => "name it as HOST/NAME:TAG, such as docker.io/library/python:3.12",
        RegistryError::NoRegistries(_) => "import the image from a file or directory",
        RegistryError::Unreachable { .. } => {
            "check the registry's name and the network, and try again; images on this host can still be used"
        }
        RegistryError::Unauthorized { .. } => {
            "check the name, or log in with `docker login` as the user that the daemon runs as"
        }
        RegistryError::NotFound { .. } => "check the name and the tag",
        RegistryError::RateLimited { .. } => "pull again later, or log in: what was fetched is kept",
        RegistryError::Interrupted { .. } => "pull again: what was fetched is kept",
        RegistryError::Refused { .. } => "try again later, or ask the registry's operator",
        RegistryError::Lies { .. } => "ask the registry's operator; nothing that was fetched is kept",
        RegistryError::NoRoom { .. } => "remove images or snapshots that are not needed",
        RegistryError::Io { .. } => "check the disk of the daemon's data directory",
        RegistryError::Storage { .. } => "",
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
