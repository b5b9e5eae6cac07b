//! Conversions of egress policies.

use dorm_api_types as wire;
use dorm_lifecycle as life;

use super::Of;

impl Of<wire::Egress> for life::Egress {
    fn of(egress: wire::Egress) -> Self {
        match egress {
            wire::Egress::Public => Self::Public,
            wire::Egress::Closed => Self::closed(),
            wire::Egress::None => Self::None,
            wire::Egress::Allow(entries) => Self::Allow(entries),
            wire::Egress::Ordered(wire::EgressRules { rules, default, headers }) => Self::Rules(life::EgressRules {
                rules: rules.into_iter().map(rule).collect(),
                default: match default {
                    wire::EgressDefault::Deny => life::EgressDefault::Deny,
                    wire::EgressDefault::Public => life::EgressDefault::Public,
                },
                headers: headers.into_iter().map(header).collect(),
            }),
        }
    }
}

fn rule(rule: wire::EgressRule) -> life::EgressRule {
    match rule {
        wire::EgressRule::Allow(to) => life::EgressRule { verdict: life::Verdict::Allow, to },
        wire::EgressRule::Deny(to) => life::EgressRule { verdict: life::Verdict::Deny, to },
    }
}

impl Of<life::Egress> for wire::Egress {
    fn of(egress: life::Egress) -> Self {
        if egress == life::Egress::closed() {
            return Self::Closed;
        }
        match egress {
            life::Egress::Public => Self::Public,
            life::Egress::None => Self::None,
            life::Egress::Allow(entries) => Self::Allow(entries),
            life::Egress::Rules(life::EgressRules { rules, default, headers }) => Self::Ordered(wire::EgressRules {
                rules: rules.into_iter().map(wire_rule).collect(),
                default: match default {
                    life::EgressDefault::Deny => wire::EgressDefault::Deny,
                    life::EgressDefault::Public => wire::EgressDefault::Public,
                },
                headers: headers.into_iter().map(wire_header).collect(),
            }),
        }
    }
}

/// The service replaces the project by that of the sandbox.
fn header(rule: wire::HeaderRule) -> life::HeaderRule {
    let wire::HeaderRule { host, port, name, value } = rule;
    life::HeaderRule { host, port, name, value, project: life::ProjectId::local() }
}

fn wire_header(rule: life::HeaderRule) -> wire::HeaderRule {
    let life::HeaderRule { host, port, name, value, project: _ } = rule;
    wire::HeaderRule { host, port, name, value }
}

fn wire_rule(rule: life::EgressRule) -> wire::EgressRule {
    let life::EgressRule { verdict, to } = rule;
    match verdict {
        life::Verdict::Allow => wire::EgressRule::Allow(to),
        life::Verdict::Deny => wire::EgressRule::Deny(to),
    }
}
