//! Images.

use dorm_api_types as wire;
use dorm_ports::Transport;
use dorm_service::PullPolicy;
use dorm_storage as storage;

use super::Of;

impl Of<storage::ImageConfig> for wire::ImageConfig {
    fn of(config: storage::ImageConfig) -> Self {
        let storage::ImageConfig { entrypoint, command, env, directory, user, ports, ready, architecture } = config;
        Self { entrypoint, command, env, directory, user, ports, ready, architecture }
    }
}

impl Of<wire::ImageConfig> for storage::ImageConfig {
    fn of(config: wire::ImageConfig) -> Self {
        let wire::ImageConfig { entrypoint, command, env, directory, user, ports, ready, architecture } = config;
        Self { entrypoint, command, env, directory, user, ports, ready, architecture }
    }
}

impl Of<storage::ImageSource> for wire::ImageSource {
    fn of(source: storage::ImageSource) -> Self {
        let storage::ImageSource { reference, manifest, build } = source;
        Self { reference, manifest, build }
    }
}

impl Of<wire::Pull> for PullPolicy {
    fn of(pull: wire::Pull) -> Self {
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
