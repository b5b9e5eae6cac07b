//! Paths as clients give them.

use dorm_agent_client::GuestPath;

use super::fault::Fault;

/// Makes a path absolute: `~` is the home directory, and a relative path begins at `directory`.
/// Removes `.` and `..` without looking at links.
pub(crate) fn absolute(given: &str, home: &str, directory: &str) -> Result<GuestPath, Fault> {
    let joined = match given.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        _ if given.starts_with('/') => given.to_owned(),
        _ => format!("{directory}/{given}"),
    };
    GuestPath::try_from(clean(&joined)).map_err(|error| Fault::invalid(error.to_string()))
}

fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The last part of a path; `/` of the root.
pub(crate) fn name(path: &str) -> &str {
    match path.rsplit('/').next() {
        Some("") | None => "/",
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_home_or_the_working_directory() {
        for (given, path) in [
            ("", "/srv"),
            ("a.txt", "/srv/a.txt"),
            ("./a//b/", "/srv/a/b"),
            ("../a", "/a"),
            ("../../../a", "/a"),
            ("~", "/home/ann"),
            ("~/a", "/home/ann/a"),
            ("~bob/a", "/srv/~bob/a"),
            ("/", "/"),
            ("/etc/../etc/./hosts", "/etc/hosts"),
            ("/ä ö", "/ä ö"),
        ] {
            assert_eq!(absolute(given, "/home/ann", "/srv").unwrap().to_text(), path, "{given}");
        }
        assert!(absolute("/a\0b", "/", "/").is_err());
        assert_eq!(absolute("~/x", "/", "/").unwrap().to_text(), "/x");
    }

    #[test]
    fn the_name_is_the_last_part() {
        assert_eq!((name("/a/b.txt"), name("/")), ("b.txt", "/"));
    }
}
