//! Rows of the access to ports.

use dorm_lifecycle::{PortAccess, PortHost, PortRule};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Text, present};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortRuleRow {
    #[serde(deserialize_with = "present")]
    pub(super) access: Option<PortAccessRow>,
    #[serde(deserialize_with = "present")]
    pub(super) host: Option<Text<PortHost>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PortAccessRow {
    Public,
    Private,
}

impl From<PortAccess> for PortAccessRow {
    fn from(access: PortAccess) -> Self {
        match access {
            PortAccess::Public => Self::Public,
            PortAccess::Private => Self::Private,
        }
    }
}

impl From<PortAccessRow> for PortAccess {
    fn from(row: PortAccessRow) -> Self {
        match row {
            PortAccessRow::Public => Self::Public,
            PortAccessRow::Private => Self::Private,
        }
    }
}

impl From<&PortRule> for PortRuleRow {
    fn from(rule: &PortRule) -> Self {
        let PortRule { access, host } = rule;
        Self { access: access.map(PortAccessRow::from), host: host.clone().map(Text) }
    }
}

impl From<PortRuleRow> for PortRule {
    fn from(row: PortRuleRow) -> Self {
        Self { access: row.access.map(PortAccess::from), host: row.host.map(|host| host.0) }
    }
}
