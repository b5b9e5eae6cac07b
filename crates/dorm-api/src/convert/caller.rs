//! Callers.

use dorm_api_types as wire;
use dorm_lifecycle::{Caller, Credential};

use super::Of;

impl Of<Caller> for wire::Caller {
    fn of(caller: Caller) -> Self {
        let Caller { door, credential } = caller;
        let (credential, key) = match credential {
            Credential::OwnerSocket => (wire::Credential::OwnerSocket, None),
            Credential::OwnerKey => (wire::Credential::OwnerKey, None),
            Credential::ApiKey { id, name } => (wire::Credential::ApiKey, Some((id.to_string(), name))),
            Credential::PortToken => (wire::Credential::PortToken, None),
            Credential::PortLink => (wire::Credential::PortLink, None),
        };
        let (key, key_name) = key.unzip();
        Self { door: door.to_string(), credential, key, key_name }
    }
}
