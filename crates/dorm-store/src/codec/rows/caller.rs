//! The rows of callers, which are part of other rows.

use dorm_lifecycle::{ApiKeyId, Caller, Credential, DoorId};
use serde::{Deserialize, Serialize};

use crate::codec::word::Text;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallerRow {
    door: Text<DoorId>,
    credential: CredentialRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CredentialRow {
    OwnerSocket,
    OwnerKey,
    ApiKey(KeyRow),
    PortToken,
    PortLink,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRow {
    id: Text<ApiKeyId>,
    name: String,
}

impl From<&Caller> for CallerRow {
    fn from(caller: &Caller) -> Self {
        let Caller { door, credential } = caller;
        let credential = match credential {
            Credential::OwnerSocket => CredentialRow::OwnerSocket,
            Credential::OwnerKey => CredentialRow::OwnerKey,
            Credential::ApiKey { id, name } => {
                CredentialRow::ApiKey(KeyRow { id: Text(id.clone()), name: name.clone() })
            }
            Credential::PortToken => CredentialRow::PortToken,
            Credential::PortLink => CredentialRow::PortLink,
        };
        Self { door: Text(door.clone()), credential }
    }
}

impl From<CallerRow> for Caller {
    fn from(row: CallerRow) -> Self {
        let credential = match row.credential {
            CredentialRow::OwnerSocket => Credential::OwnerSocket,
            CredentialRow::OwnerKey => Credential::OwnerKey,
            CredentialRow::ApiKey(KeyRow { id, name }) => Credential::ApiKey { id: id.0, name },
            CredentialRow::PortToken => Credential::PortToken,
            CredentialRow::PortLink => Credential::PortLink,
        };
        Self { door: row.door.0, credential }
    }
}
