//! The packet rules, as scripts for `nft`. Pure text: the order of rules is the policy, so it is all in one place.
//!
//! Every packet of a connection is judged, not only its first, by the address that the sandbox first asked for. This is
//! why a changed policy also ends the connections that are there. What is refused is answered (a reset, or an ICMP
//! message), so that programs inside fail at once and do not hang; only what no honest guest sends is dropped.

use std::fmt::Write;

use ipnet::Ipv4Net;

use crate::layout::{INNER_INTERFACE, INTERFACES, Layout, SANDBOX, UPLINK_INTERFACE};

/// Where [`Policy::Public`] does not lead. The networks for documentation (such as 198.51.100.0/24) are not on it: no
/// one can be there.
const NOT_PUBLIC: [&str; 13] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    // The services of Azure for its virtual machines, which are as good as link-local.
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "192.88.99.0/24",
];

/// Connections that one lease may have at once, so that no sandbox fills the host's table of connections.
const CONNECTIONS_MAX: u32 = 4096;

/// The bytes of the IPv4 and TCP headers.
const HEADERS: u16 = 40;

/// The port that names are asked for on.
pub(crate) const NAME_PORT: u16 = 53;

/// Where a sandbox may connect to, parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// Nowhere.
    Nothing,
    /// Everywhere but [`NOT_PUBLIC`], and names.
    Public,
    /// These, and names.
    Only(Vec<Ipv4Net>),
}

/// The gateway's rules, in its namespace: nothing leaves yet.
pub(crate) fn gateway(uplink_mtu: u16) -> String {
    let segment = uplink_mtu - HEADERS;
    format!(
        r#"
table ip dorm {{
  chain refuse {{
    meta l4proto tcp reject with tcp reset
    meta l4proto udp reject with icmp type port-unreachable
    reject with icmp type admin-prohibited
  }}
  chain egress {{ }}
  chain names {{ }}
  chain forward {{
    type filter hook forward priority 0; policy drop;
    ct state invalid drop
    iifname "{INNER_INTERFACE}" ip saddr != {SANDBOX} drop
    iifname "{UPLINK_INTERFACE}" ct state new jump refuse
    ct state new ct count over {CONNECTIONS_MAX} jump refuse
    tcp flags & (syn | rst) == syn tcp option maxseg size set {segment}
    jump egress
    jump refuse
  }}
  chain input {{
    type filter hook input priority 0; policy drop;
    ct direction reply accept
    iifname "{INNER_INTERFACE}" meta l4proto {{ tcp, udp }} th dport {NAME_PORT} jump names
    jump refuse
  }}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
    iifname "{INNER_INTERFACE}" meta l4proto {{ tcp, udp }} th dport {NAME_PORT} redirect to :{NAME_PORT}
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    oifname "{UPLINK_INTERFACE}" masquerade
  }}
}}
"#
    )
}

/// Replaces the policy of a gateway at once.
pub(crate) fn egress(policy: &Policy) -> String {
    let mut script = String::from("flush chain ip dorm egress\nflush chain ip dorm names\n");
    let mut rule = |chain: &str, text: &str| {
        let _ = writeln!(script, "add rule ip dorm {chain} {text}");
    };
    match policy {
        Policy::Nothing => {}
        Policy::Public => {
            rule("egress", &format!("ct original ip daddr {{ {} }} return", NOT_PUBLIC.join(", ")));
            rule("egress", "accept");
            rule("names", "accept");
        }
        Policy::Only(networks) => {
            // Without overlaps, which a set of intervals refuses.
            let networks = Ipv4Net::aggregate(networks);
            if networks.iter().any(|network| network.prefix_len() == 0) {
                rule("egress", "accept");
            } else if !networks.is_empty() {
                let list = networks.iter().map(Ipv4Net::to_string).collect::<Vec<_>>().join(", ");
                rule("egress", &format!("ct original ip daddr {{ {list} }} accept"));
            }
            rule("names", "accept");
        }
    }
    script
}

/// The host's rules for all leases of one daemon, replacing those that are there.
///
/// They refuse for themselves and never allow what another firewall of the host refuses. They run before the usual
/// ones. An address of the host that leads to one of its containers has been translated when it gets here (`ct status
/// dnat`), and is refused as well.
pub(crate) fn host(layout: &Layout) -> String {
    let (table, uplinks, supernet) = (layout.table(), layout.uplinks_start(), layout.supernet());
    format!(
        r#"
table inet {table} {{ }}
delete table inet {table}
table inet {table} {{
  chain refuse {{
    meta l4proto tcp reject with tcp reset
    meta l4proto udp reject with icmpx type port-unreachable
    reject with icmpx type admin-prohibited
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname "{uplinks}*" jump refuse
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{uplinks}*" meta nfproto ipv6 drop
    iifname "{uplinks}*" ip saddr != {supernet} drop
    iifname "{uplinks}*" oifname "{INTERFACES}*" jump refuse
    iifname "{uplinks}*" ct status dnat jump refuse
    oifname "{uplinks}*" ct state != {{ established, related }} jump refuse
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {supernet} oifname != "{INTERFACES}*" masquerade
  }}
}}
"#
    )
}

/// Removes the host's rules, whether they are there or not.
pub(crate) fn no_host(layout: &Layout) -> String {
    let table = layout.table();
    format!("table inet {table} {{ }}\ndelete table inet {table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allow_list_becomes_one_rule_without_overlaps() {
        let networks = ["198.51.100.7/24", "198.51.100.9/32", "10.0.0.0/8"].map(|text| text.parse().unwrap());
        let script = egress(&Policy::Only(networks.to_vec()));
        assert!(script.contains("add rule ip dorm egress ct original ip daddr { 10.0.0.0/8, 198.51.100.0/24 } accept"));
        assert!(script.contains("add rule ip dorm names accept"));
    }

    #[test]
    fn an_empty_allow_list_leaves_only_names() {
        let script = egress(&Policy::Only(vec![]));
        assert!(!script.contains("rule ip dorm egress") && script.contains("names accept"));
    }

    #[test]
    fn the_whole_internet_can_be_allowed() {
        let script = egress(&Policy::Only(vec!["0.0.0.0/0".parse().unwrap(), "10.0.0.0/8".parse().unwrap()]));
        assert!(script.contains("add rule ip dorm egress accept"));
    }

    #[test]
    fn nothing_leaves_only_empty_chains() {
        assert!(!egress(&Policy::Nothing).contains("add rule"));
    }
}
