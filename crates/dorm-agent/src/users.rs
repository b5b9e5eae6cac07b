//! The sandbox's own lists of users and groups, read again each time, since programs inside may
//! change them.

use std::collections::BTreeSet;
use std::fs;

use dorm_agent_proto::{Account, Failure, GuestPath, User};

/// The present lists. A missing file is an empty list.
pub(crate) struct Users {
    passwd: String,
    group: String,
}

struct Line<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
    shell: &'a str,
}

impl Users {
    pub(crate) fn read() -> Self {
        let read = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        Self { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    /// Returns a user, which may be a number without an entry.
    pub(crate) fn account(&self, user: &User) -> Result<Account, Failure> {
        let found = match user {
            User::Name(name) => self.lines().find(|line| line.name == name),
            User::Id { uid, .. } => self.lines().find(|line| line.uid == *uid),
        };
        let gid_asked = match user {
            User::Name(_) => None,
            User::Id { gid, .. } => *gid,
        };
        match (found, user) {
            (Some(line), _) => Ok(Account {
                uid: line.uid,
                gid: gid_asked.unwrap_or(line.gid),
                name: Some(line.name.to_owned()),
                home: GuestPath::try_from(line.home).or_else(|_| root())?,
                shell: GuestPath::try_from(line.shell).ok(),
            }),
            (None, User::Id { uid, gid }) => {
                Ok(Account { uid: *uid, gid: gid.unwrap_or(*uid), name: None, home: root()?, shell: None })
            }
            // An image may have no user list at all.
            (None, User::Name(name)) if name == "root" => {
                Ok(Account { uid: 0, gid: 0, name: Some(name.clone()), home: root()?, shell: None })
            }
            (None, User::Name(name)) => Err(Failure::NoUser { user: name.clone() }),
        }
    }

    /// Returns the groups of a user, including the primary one.
    pub(crate) fn groups(&self, account: &Account) -> Vec<u32> {
        let mut groups = vec![account.gid];
        if let Some(name) = &account.name {
            groups.extend(self.group.lines().filter_map(|line| {
                let mut fields = line.split(':');
                let (_, _, gid, members) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
                members.split(',').any(|member| member.trim() == name).then(|| gid.parse::<u32>().ok()).flatten()
            }));
        }
        let mut seen = BTreeSet::new();
        groups.retain(|group| seen.insert(*group));
        groups
    }

    pub(crate) fn user_name(&self, uid: u32) -> Option<String> {
        self.lines().find(|line| line.uid == uid).map(|line| line.name.to_owned())
    }

    pub(crate) fn group_name(&self, gid: u32) -> Option<String> {
        self.group.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
            (number.parse() == Ok(gid)).then(|| name.to_owned())
        })
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            Some(Line {
                name: fields.first()?,
                uid: fields.get(2)?.parse().ok()?,
                gid: fields.get(3)?.parse().ok()?,
                home: fields.get(5).copied().unwrap_or_default(),
                shell: fields.get(6).copied().unwrap_or_default(),
            })
        })
    }
}

fn root() -> Result<GuestPath, Failure> {
    GuestPath::try_from("/").map_err(|error| Failure::Invalid { reason: error.to_string() })
}

/// Finds one user.
pub(crate) fn account(user: &User) -> Result<Account, Failure> {
    Users::read().account(user)
}

#[cfg(test)]
mod tests {
    use dorm_agent_proto::{Failure, User};

    use super::Users;

    fn users() -> Users {
        Users {
            passwd: "root:x:0:0:root:/root:/bin/bash\nbroken\nann:x:1000:100::/home/ann:/bin/sh\n".to_owned(),
            group: "root:x:0:\nusers:x:100:ann\naudio:x:29:bob,ann\nother:x:100:ann\n".to_owned(),
        }
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let ann = users().account(&"ann".parse().unwrap()).unwrap();
        assert_eq!((ann.uid, ann.gid, ann.home.to_text().as_str()), (1000, 100, "/home/ann"));
        assert_eq!(users().account(&"1000".parse().unwrap()).unwrap(), ann);
        assert_eq!(users().groups(&ann), [100, 29]);
        assert_eq!(users().group_name(29).as_deref(), Some("audio"));
    }

    #[test]
    fn a_number_needs_no_entry_but_a_name_does() {
        let nobody = users().account(&"4711:12".parse().unwrap()).unwrap();
        assert_eq!((nobody.uid, nobody.gid, nobody.home.to_text().as_str()), (4711, 12, "/"));
        let unknown = users().account(&User::Name("eve".to_owned()));
        assert_eq!(unknown, Err(Failure::NoUser { user: "eve".to_owned() }));
        let none = Users { passwd: String::new(), group: String::new() };
        let root = none.account(&"root".parse().unwrap()).unwrap();
        assert_eq!((root.uid, root.gid, root.home.to_text().as_str()), (0, 0, "/"));
    }
}
