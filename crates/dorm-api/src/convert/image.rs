//! Images.

use dorm_ports::Transport;
use dorm_service::PullPolicy;
use dorm_storage as storage;

use crate::wire;

impl From<storage::ImageConfig> for wire::ImageConfig {
    fn from(config: storage::ImageConfig) -> Self {
        let storage::ImageConfig { entrypoint, command, env, directory, user, ports, ready, architecture } = config;
        Self { entrypoint, command, env, directory, user, ports, ready, architecture }
    }
}

impl From<wire::ImageConfig> for storage::ImageConfig {
    fn from(config: wire::ImageConfig) -> Self {
        let wire::ImageConfig { entrypoint, command, env, directory, user, ports, ready, architecture } = config;
        Self { entrypoint, command, env, directory, user, ports, ready, architecture }
    }
}

impl From<storage::ImageSource> for wire::ImageSource {
    fn from(source: storage::ImageSource) -> Self {
        let storage::ImageSource { reference, manifest, build } = source;
        Self { reference, manifest, build }
    }
}

impl From<wire::Pull> for PullPolicy {
    fn from(pull: wire::Pull) -> Self {
        match pull {
            wire::Pull::Always => Self::Always,
            wire::Pull::Missing => Self::Missing,
            wire::Pull::Never => Self::Never,
        }
    }
}

/// Whether registries may be reached without TLS.
pub(crate) fn transport(insecure: bool) -> Transport {
    if insecure { Transport::Insecure } else { Transport::Secure }
}
