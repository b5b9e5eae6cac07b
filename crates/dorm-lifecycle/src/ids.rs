//! Identifiers and names.
//!
//! An identifier has 20 characters: lower-case letters and digits, the first a letter. It has no
//! hyphen, because host names such as `8080-ID.localhost` are split on `-`. Identifiers are made
//! from random bytes that the caller supplies.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Why a text is not a valid identifier, name or digest.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum IdError {
    /// Not 20 lower-case letters and digits, starting with a letter.
    #[error("'{0}' is not an id: ids are 20 lower-case letters and digits, the first a letter")]
    Id(String),
    /// Not a valid sandbox name.
    #[error(
        "'{0}' is not a valid name: names are 1 to 63 lower-case letters, digits and hyphens, begin with a letter \
         and do not end with a hyphen"
    )]
    Name(String),
    /// Not a valid name of a snapshot.
    #[error(
        "'{0}' is not the name of a snapshot: give NAME or NAME:TAG, of letters, digits, '.', '_', '-' and '/', that \
         is neither an id nor a part of a digest and does not begin with the host of a registry"
    )]
    Snapshot(String),
    /// Not a valid name of a template.
    #[error(
        "'{0}' is not the name of a template: names are 1 to 63 lower-case letters, digits, hyphens and underscores, do \
         not begin with a hyphen, and may have a namespace of the same form in front of a slash"
    )]
    Template(String),
    /// Not a valid project name.
    #[error("'{0}' is not a project: projects are 1 to 63 lower-case letters, digits and hyphens")]
    Project(String),
    /// Not a valid name of a secret.
    #[error(
        "a text that begins with '{0}' is not the name of a secret: names are 1 to 64 letters, digits and underscores, and do not begin with a digit"
    )]
    Secret(String),
    /// Not a valid id of a door.
    #[error(
        "'{0}' is not the id of a listener: ids of listeners are 1 to 16 lower-case letters, digits and hyphens, the first a letter"
    )]
    Door(String),
    /// Not 64 hexadecimal digits.
    #[error("'{0}' is not a digest: digests are 64 lower-case hexadecimal digits (BLAKE3)")]
    Digest(String),
    /// Not `ID-GENERATION`.
    #[error("'{0}' is not a run: runs have the form ID-GENERATION")]
    Run(String),
}

const LENGTH: usize = 20;

fn is_id(text: &str) -> bool {
    text.len() == LENGTH
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && text.as_bytes()[0].is_ascii_lowercase()
}

fn id_from(bytes: [u8; LENGTH]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| match at {
            0 => char::from(ALPHABET[usize::from(byte % 24)]),
            _ => char::from(ALPHABET[usize::from(byte % 32)]),
        })
        .collect()
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Makes an identifier from 20 random bytes.
            pub fn from_random(bytes: [u8; 20]) -> Self {
                Self(id_from(bytes))
            }

            /// Returns the identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                if is_id(text) { Ok(Self(text.to_owned())) } else { Err(IdError::Id(text.to_owned())) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// The id of a sandbox. Never reused.
    SandboxId
);
id!(
    /// The id of a snapshot.
    SnapshotId
);
id!(
    /// The id of an operation: one command in progress, or its record.
    OperationId
);
id!(
    /// The id of a hold on a sandbox.
    HoldId
);
id!(
    /// The id of a webhook.
    WebhookId
);
id!(
    /// The id of an API key. It is public and grants nothing.
    ApiKeyId
);
id!(
    /// The id of a request with an idempotency key, derived from the caller and the key.
    RequestId
);
id!(
    /// The id of a sandbox pool.
    PoolId
);
id!(
    /// The id of a build.
    BuildId
);
id!(
    /// The id of a template.
    TemplateId
);
id!(
    /// The id of an environment.
    EnvironmentId
);
id!(
    /// The id of a lease of an environment.
    LeaseId
);
id!(
    /// The id of a volume.
    VolumeId
);
id!(
    /// The id of a saved state on disk: a sleep image or the content of a memory snapshot.
    SavedStateId
);

macro_rules! text {
    ($name:ident) => {
        impl $name {
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

/// The name of a sandbox: a DNS label that starts with a letter. Unique per project among sandboxes
/// that are not terminated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(String);

text!(Name);

impl FromStr for Name {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_label(text) && text.as_bytes()[0].is_ascii_lowercase() {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::Name(text.to_owned()))
        }
    }
}

/// The name of a snapshot, under which it serves as an image: `NAME` or `NAME:TAG`. Unique per
/// project among snapshots that can be used. It is never an id, the beginning of a digest, or the
/// name of an image in a registry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotName(String);

text!(SnapshotName);

/// The longest [`SnapshotName`], in bytes: as long as the longest tag of an image.
const SNAPSHOT_NAME_MAX: usize = 250;
/// From this length on, hexadecimal digits are read as the beginning of a digest.
const DIGEST_PREFIX: usize = 8;

impl FromStr for SnapshotName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let is_part = |part: &str| {
            (1..=128).contains(&part.len())
                && part.as_bytes()[0].is_ascii_alphanumeric()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let (name, tag) = text.split_once(':').map_or((text, None), |(name, tag)| (name, Some(tag)));
        let names_registry = name.split_once('/').is_some_and(|(host, _)| host == "localhost" || host.contains('.'));
        let is_digest = text.len() >= DIGEST_PREFIX && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_legal = text.len() <= SNAPSHOT_NAME_MAX && name.split('/').all(is_part) && tag.is_none_or(is_part);
        match is_legal && !names_registry && !is_digest && !is_id(text) {
            true => Ok(Self(text.to_owned())),
            false => Err(IdError::Snapshot(text.to_owned())),
        }
    }
}

/// The name of a template: `NAME` or `NAMESPACE/NAME`. Unique per project.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TemplateName(String);

text!(TemplateName);

impl FromStr for TemplateName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let is_part = |part: &str| {
            let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
            (1..=63).contains(&part.len()) && part.bytes().all(legal) && !part.starts_with('-')
        };
        let (namespace, name) = text.split_once('/').map_or((None, text), |(space, name)| (Some(space), name));
        match is_part(name) && namespace.is_none_or(is_part) {
            true => Ok(Self(text.to_owned())),
            false => Err(IdError::Template(text.to_owned())),
        }
    }
}

/// The project that a record belongs to. Without configuration there is one project, `local`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProjectId(String);

text!(ProjectId);

impl ProjectId {
    /// Returns the project that exists without configuration.
    pub fn local() -> Self {
        Self("local".to_owned())
    }
}

impl FromStr for ProjectId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_label(text) { Ok(Self(text.to_owned())) } else { Err(IdError::Project(text.to_owned())) }
    }
}

/// The name of a secret of a project: 1 to 64 letters, digits and underscores.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SecretName(String);

text!(SecretName);

impl FromStr for SecretName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        match (1..=64).contains(&text.len()) && plain && !text.as_bytes()[0].is_ascii_digit() {
            true => Ok(Self(text.to_owned())),
            // The text that was typed in place of a name may be a secret itself.
            false => Err(IdError::Secret(text.chars().take(4).filter(char::is_ascii_graphic).collect())),
        }
    }
}

fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A BLAKE3 hash as 64 hexadecimal digits: the name of an immutable artifact.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Digest(String);

text!(Digest);

impl FromStr for Digest {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(hex) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::Digest(text.to_owned()))
        }
    }
}

/// The id of a run, one period of a sandbox on an engine. Written as `ID-GENERATION`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The number of the run, counted from 1.
    pub generation: u64,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.sandbox, self.generation)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RunId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::Run(text.to_owned());
        let (sandbox, generation) = text.split_once('-').ok_or_else(wrong)?;
        Ok(Self {
            sandbox: sandbox.parse().map_err(|_| wrong())?,
            generation: generation.parse().map_err(|_| wrong())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_made_from_any_bytes_is_legal() {
        for seed in 0..=255u8 {
            let id = SandboxId::from_random([seed; LENGTH]);
            assert_eq!(id.as_str().parse::<SandboxId>(), Ok(id));
        }
    }

    #[test]
    fn what_cannot_be_part_of_a_host_name_is_no_id() {
        for text in
            ["", "a", "2aaaaaaaaaaaaaaaaaaa", "aaaaaaaaaa-aaaaaaaaa", "Aaaaaaaaaaaaaaaaaaaa", "../../../etc/passwd.."]
        {
            assert_eq!(text.parse::<SandboxId>(), Err(IdError::Id(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn names_are_dns_labels() {
        for text in ["a", "web", "web-1", "a0123456789"] {
            assert!(text.parse::<Name>().is_ok(), "{text}");
        }
        let long = "a".repeat(64);
        for text in ["", "-a", "a-", "1a", "A", "a_b", "ä", "a b", long.as_str()] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_snapshot_is_that_of_an_image_and_nothing_else() {
        let long = "a".repeat(129);
        for text in ["my-snap", "my-snap:v2", "team/My_Snap:2026.11", "deadbee", "a"] {
            assert!(text.parse::<SnapshotName>().is_ok(), "{text}");
        }
        for text in [
            "",
            ":v2",
            "a:",
            "a:b:c",
            "/a",
            "a/",
            "a b",
            "-a",
            "a@sha256:0",
            "@tenant/a",
            "deadbeef",
            "abcdefghijkmnpqrstuv",
            "docker.io/library/python:3.12",
            "localhost/python",
            "localhost:5000/python",
            long.as_str(),
        ] {
            assert_eq!(text.parse::<SnapshotName>(), Err(IdError::Snapshot(text.to_owned())));
        }
    }

    #[test]
    fn a_run_reads_back_what_it_prints() {
        let run = RunId { sandbox: SandboxId::from_random([7; LENGTH]), generation: 12 };
        assert_eq!(run.to_string().parse::<RunId>(), Ok(run));
        assert!("abc".parse::<RunId>().is_err());
    }

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        assert!("0".repeat(64).parse::<Digest>().is_ok());
        assert!("0".repeat(63).parse::<Digest>().is_err());
        assert!("G".repeat(64).parse::<Digest>().is_err());
    }
}
