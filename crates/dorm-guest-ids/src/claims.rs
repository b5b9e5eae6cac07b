//! Other owners of ids in the range, according to the host's databases.

use crate::GuestIds;

/// The contents of the host's databases; a missing one is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Databases {
    /// `/etc/subuid`.
    pub subuid: String,
    /// `/etc/subgid`.
    pub subgid: String,
    /// `/etc/passwd`.
    pub passwd: String,
    /// `/etc/group`.
    pub group: String,
}

/// Ids of the range that belong to another user or group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The database with the entry.
    pub file: &'static str,
    /// The user or group of the entry.
    pub name: String,
    /// The first id of the entry.
    pub first: u64,
    /// The number of ids in the entry.
    pub count: u64,
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, name, first, count } = self;
        match count {
            1 => write!(f, "{file} gives {first} to {name}"),
            _ => write!(f, "{file} gives {first}-{} to {name}", first.saturating_add(count - 1)),
        }
    }
}

/// All claims on ids of `ids`. Entries of the host's root do not count, since root has all ids.
pub fn claims(ids: GuestIds, databases: &Databases) -> Vec<Claim> {
    let range = |file, line: &str| {
        let mut fields = line.split(':');
        let (name, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Claim { file, name: name.to_owned(), first: first.parse().ok()?, count: count.trim().parse().ok()? })
    };
    let single = |file, line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        Some(Claim { file, name: name.to_owned(), first: id.parse().ok()?, count: 1 })
    };
    let Databases { subuid, subgid, passwd, group } = databases;
    let ranges = [("/etc/subuid", subuid), ("/etc/subgid", subgid)];
    let ranges = ranges.into_iter().flat_map(|(file, text)| text.lines().filter_map(move |line| range(file, line)));
    let singles = [("/etc/passwd", passwd), ("/etc/group", group)];
    let singles = singles.into_iter().flat_map(|(file, text)| text.lines().filter_map(move |line| single(file, line)));
    let (base, end) = (u64::from(ids.base()), u64::from(ids.base()) + u64::from(GuestIds::COUNT));
    let is_shared = |claim: &Claim| {
        claim.count > 0 && claim.first < end && claim.first.saturating_add(claim.count) > base && !claim.is_of_root()
    };
    ranges.chain(singles).filter(is_shared).collect()
}

/// A range without claims: the default, or the first one above it.
pub fn free(databases: &Databases) -> Option<GuestIds> {
    let bases = (GuestIds::DEFAULT.base()..=GuestIds::BASE_MOST).step_by(GuestIds::COUNT as usize);
    let ranges = bases.filter_map(|base| GuestIds::new(base).ok());
    ranges.into_iter().find(|ids| claims(*ids, databases).is_empty())
}

impl Claim {
    fn is_of_root(&self) -> bool {
        matches!(self.name.as_str(), "root" | "0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_of_a_debian_host_has_the_legacy_range() {
        let databases = Databases {
            subuid: "alice:100000:65536\nbob:165536:65536\n".to_owned(),
            subgid: "alice:100000:65536\n".to_owned(),
            passwd: "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n".to_owned(),
            group: String::new(),
        };
        let found: Vec<_> = claims(GuestIds::LEGACY, &databases).iter().map(ToString::to_string).collect();
        let of = |file| format!("{file} gives 100000-165535 to alice");
        assert_eq!(found, [of("/etc/subuid"), of("/etc/subgid")]);
        assert_eq!(claims(GuestIds::DEFAULT, &databases), []);
        assert_eq!(free(&databases), Some(GuestIds::DEFAULT));
    }

    #[test]
    fn one_id_in_common_is_enough_and_lines_that_say_nothing_are_passed_over() {
        let ids = GuestIds::new(200_000).unwrap();
        let of = |subuid: &str, passwd: &str| {
            let databases = Databases { subuid: subuid.to_owned(), passwd: passwd.to_owned(), ..Databases::default() };
            claims(ids, &databases).len()
        };
        assert_eq!(of("a:199999:1\na:265536:10\n# a comment\na:x:y\na:200000\n", ""), 0);
        assert_eq!(of("a:199999:2\n", ""), 1);
        assert_eq!(of("1000:265535:1\n", ""), 1, "a user by number");
        assert_eq!(of("a:200000:0\nroot:200000:65536\n0:200000:65536\n", ""), 0);
        assert_eq!(of("a:0:4294967296\n", "b:x:200001:7::/:/bin/sh\n"), 2);
    }

    #[test]
    fn a_free_range_is_the_next_one_that_nobody_has() {
        let subuid = "a:1879048192:65536\n".to_owned();
        let passwd = "b:x:1879113728:1::/:\n".to_owned();
        let databases = Databases { subuid, passwd, ..Databases::default() };
        assert_eq!(free(&databases).map(GuestIds::base), Some(1_879_048_192 + 2 * 65_536));
        let all = Databases { subuid: "a:0:4294967296\n".to_owned(), ..Databases::default() };
        assert_eq!(free(&all), None);
    }
}
