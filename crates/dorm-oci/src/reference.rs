//! Image references: `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`.

use std::fmt;
use std::net::IpAddr;

use dorm_ports::RegistryError;
use dorm_storage::BlobDigest;

const DOCKER: &str = "docker.io";
/// The actual host of Docker's registry.
const DOCKER_HOST: &str = "registry-1.docker.io";
/// The key under which Docker stores the credentials for its registry.
const DOCKER_KEY: &str = "https://index.docker.io/v1/";

const LENGTH_MAX: usize = 400;

/// A complete reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    pub(crate) registry: String,
    pub(crate) repository: String,
    pub(crate) version: Version,
}

/// The version of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    Tag(String),
    Digest(BlobDigest),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(f, "{}/{}:{tag}", self.registry, self.repository),
            Version::Digest(digest) => write!(f, "{}/{}@{digest}", self.registry, self.repository),
        }
    }
}

impl Reference {
    pub(crate) fn parse(text: &str) -> Result<Self, RegistryError> {
        let refused = |what| RegistryError::Reference { reference: text.escape_debug().to_string(), what };
        if text.is_empty() || text.len() > LENGTH_MAX {
            return Err(refused("it is empty or longer than 400 characters"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = digest.parse::<BlobDigest>();
                (
                    rest,
                    Some(digest.map_err(|_| refused("the part after '@' is not sha256: and 64 hexadecimal digits"))?),
                )
            }
            None => (text, None),
        };
        let (registry, path) = match rest.split_once('/') {
            Some((host, path)) if is_host(host) => (host, path),
            _ => (DOCKER, rest),
        };
        if !legal_host(registry) {
            return Err(refused("its registry is not a host name with an optional port"));
        }
        let (path, tag) = match path.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (path, None),
        };
        if !path.split('/').all(legal_part) {
            return Err(refused(
                "a name consists of lower-case letters and digits, with '.', '_' or '-' between them, in parts separated by '/'",
            ));
        }
        if tag.is_some_and(|tag| !legal_tag(tag)) {
            return Err(refused(
                "a tag has 1 to 128 letters, digits, '.', '_' and '-', and begins with a letter, a digit or '_'",
            ));
        }
        let repository = match registry {
            DOCKER if !path.contains('/') => format!("library/{path}"),
            _ => path.to_owned(),
        };
        let version = match (digest, tag) {
            (Some(digest), _) => Version::Digest(digest),
            (None, tag) => Version::Tag(tag.unwrap_or("latest").to_owned()),
        };
        let whole = Self { registry: registry.to_owned(), repository, version };
        // A short reference may become long with its defaults.
        if whole.to_string().len() > LENGTH_MAX {
            return Err(refused("it is longer than 400 characters with its registry and tag"));
        }
        Ok(whole)
    }

    /// Returns whether `text` names its registry explicitly.
    pub(crate) fn names_registry(text: &str) -> bool {
        text.split_once('/').is_some_and(|(host, _)| is_host(host)) && Self::parse(text).is_ok()
    }

    /// Returns the host of its registry.
    pub(crate) fn host(&self) -> &str {
        if self.registry == DOCKER { DOCKER_HOST } else { &self.registry }
    }

    /// Returns the key under which its credentials are stored.
    pub(crate) fn key(&self) -> &str {
        if self.registry == DOCKER { DOCKER_KEY } else { &self.registry }
    }

    /// Returns whether its registry is on this host.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = match self.registry.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.registry.split(':').next().unwrap_or_default(),
        };
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

fn is_host(text: &str) -> bool {
    text == "localhost" || text.contains(['.', ':'])
}

fn legal_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let port = if rest.is_empty() { Some("1") } else { rest.strip_prefix(':') };
            return address.parse::<std::net::Ipv6Addr>().is_ok()
                && port.is_some_and(|port| port.parse::<u16>().is_ok());
        }
        None => text.split_once(':').unwrap_or((text, "1")),
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let legal_part = |part: &str| !part.is_empty() && part.bytes().all(legal);
    host.split('.').all(legal_part) && port.parse::<u16>().is_ok()
}

fn legal_part(part: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (Some(first), Some(last)) = (part.bytes().next(), part.bytes().last()) else { return false };
    inner(first)
        && inner(last)
        && part.bytes().all(|byte| inner(byte) || b"._-".contains(&byte))
        && !part.contains("..")
}

fn legal_tag(tag: &str) -> bool {
    let first = tag.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    first && tag.len() <= 128 && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_those_of_docker_and_whole_ones_are_kept() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (text, expected) in [
            ("python", "docker.io/library/python:latest"),
            ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
            ("team/app:1", "docker.io/team/app:1"),
            ("docker.io/python", "docker.io/library/python:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000/a/b/c:X_1", "localhost:5000/a/b/c:X_1"),
            ("ghcr.io/a/b", "ghcr.io/a/b:latest"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            (&format!("ghcr.io/a/b:1@{digest}"), &format!("ghcr.io/a/b@{digest}")),
        ] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_could_lead_elsewhere_is_no_name() {
        for text in [
            "",
            "A",
            "a//b",
            "../x",
            "a/../b",
            "a/b:",
            "a:b:c",
            "a@sha256:x",
            "a b",
            "host.x:port/a",
            "a.b/",
            "x.y/a?b=c",
            "user@host.x/a",
            "x.y/%2e%2e/a",
            "-a",
            "a.",
            "x.y:99999/a",
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_with_its_registry_is_refused() {
        let text = "a/".repeat(195) + "bcdef";
        assert!(Reference::parse(&text).is_err(), "{} characters", text.len());
        assert!(Reference::parse(&text[10..]).is_err());
        let whole = Reference::parse(&text[40..]).unwrap().to_string();
        assert_eq!(Reference::parse(&whole).unwrap().to_string(), whole);
    }

    #[test]
    fn only_names_with_a_host_name_their_registry() {
        for (text, expected) in [
            ("base", false),
            ("a/b", false),
            ("localhost:5000/a", true),
            ("localhost/a", true),
            ("ghcr.io/a", true),
            ("x.y/A", false),
        ] {
            assert_eq!(Reference::names_registry(text), expected, "{text}");
        }
    }

    #[test]
    fn only_this_host_is_asked_without_tls_unasked() {
        for (text, expected) in [
            ("localhost:5000/a", true),
            ("127.0.0.1:5000/a", true),
            ("[::1]/a", true),
            ("localhost.evil.com/a", false),
            ("127.0.0.1.nip.io/a", false),
            ("10.0.0.1:5000/a", false),
        ] {
            assert_eq!(Reference::parse(text).unwrap().is_loopback(), expected, "{text}");
        }
    }
}
