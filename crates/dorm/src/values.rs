//! Parsers for the values of options.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use dorm_api_types::{AttachVolume, Egress, EgressDefault, EgressRule, EgressRules, HeaderRule};
use dorm_lifecycle::EgressTarget;

/// Parses CPUs, such as `1` or `0.5`, into thousandths.
pub(crate) fn cpus(text: &str) -> Result<u32, String> {
    thousandths(text).map_err(|_| format!("'{text}' is not a number of CPUs such as 2 or 0.5"))
}

/// Parses a ratio into thousandths.
pub(crate) fn thousandths(text: &str) -> Result<u32, String> {
    let wrong = || format!("'{text}' is not a number such as 2 or 0.5");
    let count: f64 = text.parse().map_err(|_| wrong())?;
    let millis = (count * 1000.0).round();
    if !(1.0..=f64::from(u32::MAX)).contains(&millis) {
        return Err(wrong());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "its range was checked")]
    Ok(millis as u32)
}

/// Parses a size, such as `512M` or `4GiB`, into bytes; units are powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size such as 512M or 4G");
    let digits = text.find(|symbol: char| !symbol.is_ascii_digit() && symbol != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * f64::from(1_u32 << 10).powi(shift / 10);
    if !(0.0..9e18).contains(&bytes) {
        return Err(wrong());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "its range was checked")]
    Ok(bytes.round() as u64)
}

/// Parses a time, such as `90`, `90s`, `1.5h` or `1h30m`, into seconds.
pub(crate) fn duration(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a time such as 90s, 5m or 1h30m");
    if let Ok(seconds) = text.parse::<f64>() {
        return if seconds.is_finite() && seconds > 0.0 { Ok(seconds) } else { Err(wrong()) };
    }
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let digits = rest.find(|symbol: char| !symbol.is_ascii_digit() && symbol != '.').ok_or_else(wrong)?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|symbol: char| !symbol.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(letters);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        total += number.parse::<f64>().map_err(|_| wrong())? * seconds;
        rest = next;
    }
    if total > 0.0 && total.is_finite() { Ok(total) } else { Err(wrong()) }
}

/// The address of a door; `None` if it is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DoorAddress(pub(crate) Option<std::net::SocketAddr>);

/// Parses the address of a door, or `off`.
pub(crate) fn door_address(text: &str) -> Result<DoorAddress, String> {
    match text {
        "off" => Ok(DoorAddress(None)),
        _ => text
            .parse()
            .map(|address| DoorAddress(Some(address)))
            .map_err(|_| format!("'{text}' is neither an address with a port, such as 127.0.0.1:7071, nor 'off'")),
    }
}

/// How long records are kept; `None` means forever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept(pub(crate) Option<std::time::Duration>);

/// Parses how long records are kept: a duration, or `forever`.
pub(crate) fn kept(text: &str) -> Result<Kept, String> {
    match text {
        "forever" => Ok(Kept(None)),
        _ => {
            let kept = std::time::Duration::try_from_secs_f64(duration(text)?);
            kept.map(|kept| Kept(Some(kept))).map_err(|_| format!("'{text}' is too long"))
        }
    }
}

/// Parses `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not KEY=VALUE")),
    }
}

/// The name of an annotation: the program it belongs to, and its key.
pub(crate) type AnnotationName = (String, String);

/// Parses `PROGRAM/KEY`. The program ends before the first slash.
pub(crate) fn annotation_name(text: &str) -> Result<AnnotationName, String> {
    match text.split_once('/') {
        Some((program, key)) if !program.is_empty() && !key.is_empty() => Ok((program.to_owned(), key.to_owned())),
        _ => Err(format!("'{text}' is not PROGRAM/KEY")),
    }
}

/// Parses `PROGRAM/KEY=VALUE`.
pub(crate) fn annotation(text: &str) -> Result<(AnnotationName, String), String> {
    let wrong = || format!("'{text}' is not PROGRAM/KEY=VALUE");
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok((annotation_name(name).map_err(|_| wrong())?, value.to_owned()))
}

/// Sorts annotations by program. The last value of a key counts.
pub(crate) fn by_program<V>(
    annotations: impl IntoIterator<Item = (AnnotationName, V)>,
) -> BTreeMap<String, BTreeMap<String, V>> {
    let mut found = BTreeMap::<_, BTreeMap<_, _>>::new();
    for ((program, key), value) in annotations {
        found.entry(program).or_default().insert(key, value);
    }
    found
}

/// Parses `NAME:/path`, followed by `:ro` and `:subpath=DIR` in any order.
pub(crate) fn volume(text: &str) -> Result<AttachVolume, String> {
    let wrong = || format!("'{text}' is not NAME:/PATH[:ro][:subpath=DIR]");
    let mut parts = text.split(':');
    let (Some(volume), Some(path)) = (parts.next(), parts.next()) else { return Err(wrong()) };
    if volume.is_empty() || !path.starts_with('/') {
        return Err(wrong());
    }
    let mut asked = AttachVolume { volume: volume.to_owned(), path: path.to_owned(), read_only: false, subpath: None };
    for part in parts {
        match (part, part.strip_prefix("subpath=")) {
            ("ro", _) => asked.read_only = true,
            (_, Some(subpath)) if !subpath.is_empty() => asked.subpath = Some(subpath.to_owned()),
            _ => return Err(wrong()),
        }
    }
    Ok(asked)
}

/// Parses the address of a name server, with or without a port.
pub(crate) fn name_server(text: &str) -> Result<SocketAddr, String> {
    let bare = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
    bare.or_else(|_| text.parse())
        .map_err(|_| format!("'{text}' is not an address such as 192.0.2.53 or 192.0.2.53:5353"))
}

/// Parses `public`, `closed`, `none`, a comma-separated list of networks and host names, or a list
/// of rules such as `deny:10.0.0.0/8,allow:example.com,default:public`.
pub(crate) fn egress(text: &str) -> Result<Egress, String> {
    match text {
        "public" => Ok(Egress::Public),
        "closed" => Ok(Egress::Closed),
        "none" => Ok(Egress::None),
        list => {
            let entries: Vec<&str> = list.split(',').map(str::trim).collect();
            let is_rule = |entry: &&str| ["allow:", "deny:", "default:"].iter().any(|word| entry.starts_with(word));
            match entries.iter().any(is_rule) {
                true => egress_rules(entries).map(Egress::Ordered),
                false => entries.into_iter().map(destination).collect::<Result<_, _>>().map(Egress::Allow),
            }
        }
    }
}

fn egress_rules(mut entries: Vec<&str>) -> Result<EgressRules, String> {
    let default = match entries.last() {
        Some(&"default:public") => EgressDefault::Public,
        Some(&"default:deny") => EgressDefault::Deny,
        _ => return Err("end the rules with default:deny or default:public".to_owned()),
    };
    entries.pop();
    let rule = |entry: &str| match entry.split_once(':') {
        Some(("allow", to)) => destination(to).map(EgressRule::Allow),
        Some(("deny", to)) => destination(to).map(EgressRule::Deny),
        _ => Err(format!("'{entry}' is no rule: begin it with allow: or deny:, and put default: last")),
    };
    Ok(EgressRules { rules: entries.into_iter().map(rule).collect::<Result<_, _>>()?, default, headers: Vec::new() })
}

/// Parses a header rule such as `api.example.com: Authorization: Bearer {API_KEY}`. The host may
/// have a port.
fn header(text: &str) -> Result<HeaderRule, String> {
    const FORM: &str = "write HOST: HEADER: VALUE with the name of a secret in braces, as in \
                        'api.example.com: Authorization: Bearer {API_KEY}'";
    let wrong = || FORM.to_owned();
    let (host, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (port, rest) = match rest.split_once(':') {
        Some((port, rest)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (port.parse().map_err(|_| format!("{port} is no port; {FORM}"))?, rest)
        }
        _ => (443, rest),
    };
    let (name, value) = rest.split_once(':').ok_or_else(wrong)?;
    let trimmed = |text: &str| text.trim().to_owned();
    let rule = HeaderRule { host: trimmed(host), port, name: trimmed(name), value: trimmed(value) };
    // A value without a secret may be one, which must not be shown or sent.
    match rule.value.contains('{') {
        true => Ok(rule),
        false => Err(wrong()),
    }
}

/// A header rule as it was given. Its defects are reported later, since clap prints what it
/// refuses, and this may contain a secret in place of its name.
#[derive(Clone)]
pub(crate) struct GivenHeader(String);

impl std::fmt::Debug for GivenHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GivenHeader(..)")
    }
}

/// Takes a header rule.
#[allow(clippy::unnecessary_wraps, reason = "it is the form of such a function")]
pub(crate) fn given_header(text: &str) -> Result<GivenHeader, std::convert::Infallible> {
    Ok(GivenHeader(text.to_owned()))
}

/// Returns the policy with header rules.
pub(crate) fn with_headers(egress: Option<Egress>, given: Vec<GivenHeader>) -> Result<Option<Egress>, String> {
    if given.is_empty() {
        return Ok(egress);
    }
    let headers = given.iter().map(|GivenHeader(text)| header(text)).collect::<Result<_, _>>()?;
    let rules = match egress {
        None | Some(Egress::Public) => EgressRules { rules: Vec::new(), default: EgressDefault::Public, headers },
        Some(Egress::Closed) => EgressRules { rules: Vec::new(), default: EgressDefault::Deny, headers },
        Some(Egress::None) => return Err("--header needs a network, and the egress is none".to_owned()),
        // In a list, this network stands for no name; as a rule, it would.
        Some(Egress::Allow(entries)) if entries.iter().any(|entry| entry == "0.0.0.0/0") => {
            return Err("with --header, write public or rules such as allow:0.0.0.0/0,default:deny".to_owned());
        }
        Some(Egress::Allow(entries)) => {
            let rules = entries.into_iter().map(EgressRule::Allow).collect();
            EgressRules { rules, default: EgressDefault::Deny, headers }
        }
        Some(Egress::Ordered(rules)) => EgressRules { headers, ..rules },
    };
    Ok(Some(Egress::Ordered(rules)))
}

fn destination(text: &str) -> Result<String, String> {
    match text.parse::<EgressTarget>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!(
            "'{text}' is neither public, closed, none, a network such as 198.51.100.0/24, nor a host name such as \
             example.com or *.example.com"
        )),
    }
}

/// Who may reach the ports of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum PortAccess {
    /// Everyone who knows its id.
    Public,
    /// Callers with an API key, its port token, or the cookie of a link.
    Private,
}

impl From<PortAccess> for dorm_api_types::PortAccess {
    fn from(access: PortAccess) -> Self {
        match access {
            PortAccess::Public => Self::Public,
            PortAccess::Private => Self::Private,
        }
    }
}

/// The calls that resume a suspended sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Wake {
    /// None: only `resume` does.
    Never,
    /// Traffic for its ports.
    Traffic,
    /// Traffic for its ports, commands, terminals and file calls.
    Any,
}

impl From<Wake> for dorm_api_types::Wake {
    fn from(wake: Wake) -> Self {
        match wake {
            Wake::Never => Self::Never,
            Wake::Traffic => Self::Traffic,
            Wake::Any => Self::Any,
        }
    }
}

/// The moment that a list of sandboxes is ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum SortBy {
    /// When it was created.
    #[default]
    Created,
    /// When it last began to run, by a start or a resume.
    Started,
}

impl From<SortBy> for dorm_client::SortBy {
    fn from(sort: SortBy) -> Self {
        match sort {
            SortBy::Created => Self::Created,
            SortBy::Started => Self::Started,
        }
    }
}

/// The direction of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Order {
    /// The earliest first.
    #[default]
    Asc,
    /// The latest first.
    Desc,
}

impl From<Order> for dorm_client::Order {
    fn from(order: Order) -> Self {
        match order {
            Order::Asc => Self::Asc,
            Order::Desc => Self::Desc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in
            [("0", 0), ("7", 7), ("512M", 512 << 20), ("4GiB", 4 << 30), ("1.5k", 1536), ("2t", 2 << 40)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1M", "1X", "1 2", "1.2.3G", "99999999999999999999", "20000000T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_may_have_parts() {
        for (text, seconds) in
            [("300", 300.0), ("0.5", 0.5), ("90s", 90.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("250ms", 0.25)]
        {
            assert_eq!(duration(text), Ok(seconds), "{text}");
        }
        for text in ["", "0", "-5", "inf", "nan", "5x", "m", "5m3", "1hh"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cpus_are_counted_in_thousandths() {
        assert_eq!((cpus("1"), cpus("0.25"), cpus("2.5")), (Ok(1000), Ok(250), Ok(2500)));
        for text in ["", "0", "-1", "nan", "inf", "two", "1e30"] {
            assert!(cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_volume_has_a_name_and_a_place_and_maybe_more() {
        let asked = |path: &str, read_only, subpath: Option<&str>| {
            let subpath = subpath.map(str::to_owned);
            Ok(AttachVolume { volume: "data".to_owned(), path: path.to_owned(), read_only, subpath })
        };
        assert_eq!(volume("data:/a"), asked("/a", false, None));
        assert_eq!(volume("data:/a:ro"), asked("/a", true, None));
        assert_eq!(volume("data:/a:subpath=x/y:ro"), asked("/a", true, Some("x/y")));
        for wrong in ["data", "data:", ":/a", "data:a", "data:/a:rw", "data:/a:subpath="] {
            assert!(volume(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pairs_have_a_key() {
        assert_eq!(pair("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("A="), Ok(("A".to_owned(), String::new())));
        assert!(pair("A").is_err() && pair("=b").is_err());
    }

    #[test]
    fn egress_is_a_word_or_a_list_of_networks_and_names() {
        assert_eq!(egress("public"), Ok(Egress::Public));
        assert_eq!(
            egress("1.1.1.1, 10.0.0.0/8,*.example.com"),
            Ok(Egress::Allow(["1.1.1.1", "10.0.0.0/8", "*.example.com"].map(str::to_owned).to_vec()))
        );
        assert!(egress("everything").is_err() && egress("").is_err() && egress("1.1.1.1,").is_err());
        assert_eq!(egress("closed"), Ok(Egress::Closed));
    }

    #[test]
    fn a_header_rule_has_a_host_a_header_and_a_secret() {
        let rule = header("api.a.test: Authorization: Bearer {KEY}").unwrap();
        assert_eq!(
            (rule.port, crate::cli::shown::header(&rule).as_str()),
            (443, "api.a.test: Authorization: Bearer {KEY}")
        );
        let rule = header("*.a.test:8443:X-Url:https://{KEY}").unwrap();
        assert_eq!(
            (rule.port, crate::cli::shown::header(&rule).as_str()),
            (8443, "*.a.test:8443: X-Url: https://{KEY}")
        );
        for wrong in ["", "a.test", "a.test: {KEY}", "a.test:99999: A: {KEY}"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
        let refused = header("a.test: Authorization: Bearer hunter2").unwrap_err();
        assert!(!refused.contains("hunter2"));
    }

    #[test]
    fn headers_are_added_to_every_policy_that_can_have_them() {
        let rule = || vec![GivenHeader("a.test: A: {KEY}".to_owned())];
        let shown =
            |where_: &str| crate::cli::shown::egress(&with_headers(egress(where_).ok(), rule()).unwrap().unwrap());
        assert_eq!(shown("public"), "public");
        assert_eq!(shown("a.test,1.1.1.1"), "allow:a.test,allow:1.1.1.1,default:deny");
        assert_eq!(shown("deny:1.1.1.1,default:public"), "deny:1.1.1.1,default:public");
        assert!(with_headers(Some(Egress::None), rule()).is_err());
        assert!(with_headers(egress("0.0.0.0/0").ok(), rule()).is_err());
        assert_eq!(with_headers(Some(Egress::Closed), Vec::new()), Ok(Some(Egress::Closed)));
        assert_eq!(with_headers(None, Vec::new()), Ok(None));
    }

    #[test]
    fn egress_rules_are_shown_as_they_are_written() {
        let text = "deny:10.0.0.0/8,allow:*.example.com,default:public";
        let parsed = egress(text).unwrap();
        assert!(matches!(&parsed, Egress::Ordered(EgressRules { rules, .. }) if rules.len() == 2), "{parsed:?}");
        assert_eq!(crate::cli::shown::egress(&parsed), text);
        for wrong in ["deny:10.0.0.0/8", "default:public,deny:1.1.1.1", "1.1.1.1,default:deny", "deny:x,default:deny"] {
            assert!(egress(wrong).is_err(), "{wrong}");
        }
    }
}
