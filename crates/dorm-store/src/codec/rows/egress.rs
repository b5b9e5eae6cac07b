//! Conversions of egress policies.

use dorm_lifecycle::{Egress, EgressDefault, EgressRule, EgressRules, HeaderRule, Verdict};

use super::sandbox::{EgressDefaultRow, EgressRow, EgressRuleRow, EgressRulesRow, HeaderRuleRow};
use crate::codec::word::Text;

impl From<&Egress> for EgressRow {
    fn from(egress: &Egress) -> Self {
        match egress {
            Egress::Public => Self::Public,
            Egress::None => Self::None,
            Egress::Allow(entries) => Self::Allow(entries.clone()),
            Egress::Rules(EgressRules { rules, default, headers }) => Self::Rules(EgressRulesRow {
                rules: rules.iter().map(EgressRuleRow::from).collect(),
                default: match default {
                    EgressDefault::Deny => EgressDefaultRow::Deny,
                    EgressDefault::Public => EgressDefaultRow::Public,
                },
                headers: headers.iter().map(HeaderRuleRow::from).collect(),
            }),
        }
    }
}

impl From<EgressRow> for Egress {
    fn from(row: EgressRow) -> Self {
        match row {
            EgressRow::Public => Self::Public,
            EgressRow::None => Self::None,
            EgressRow::Allow(entries) => Self::Allow(entries),
            EgressRow::Rules(EgressRulesRow { rules, default, headers }) => Self::Rules(EgressRules {
                rules: rules.into_iter().map(EgressRule::from).collect(),
                default: match default {
                    EgressDefaultRow::Deny => EgressDefault::Deny,
                    EgressDefaultRow::Public => EgressDefault::Public,
                },
                headers: headers.into_iter().map(HeaderRule::from).collect(),
            }),
        }
    }
}

impl From<&EgressRule> for EgressRuleRow {
    fn from(rule: &EgressRule) -> Self {
        let EgressRule { verdict, to } = rule;
        match verdict {
            Verdict::Allow => Self::Allow(to.clone()),
            Verdict::Deny => Self::Deny(to.clone()),
        }
    }
}

impl From<EgressRuleRow> for EgressRule {
    fn from(row: EgressRuleRow) -> Self {
        match row {
            EgressRuleRow::Allow(to) => Self { verdict: Verdict::Allow, to },
            EgressRuleRow::Deny(to) => Self { verdict: Verdict::Deny, to },
        }
    }
}

impl From<&HeaderRule> for HeaderRuleRow {
    fn from(rule: &HeaderRule) -> Self {
        let HeaderRule { host, port, name, value, project } = rule.clone();
        Self { host, port, name, value, project: Text(project) }
    }
}

impl From<HeaderRuleRow> for HeaderRule {
    fn from(row: HeaderRuleRow) -> Self {
        let HeaderRuleRow { host, port, name, value, project } = row;
        Self { host, port, name, value, project: project.0 }
    }
}
