//! How programs in an image are run, and where the image came from.
//!
//! Both are stored beside the root file system. How programs are run is part of the image and of
//! its digest: two images with the same files and different variables are different. The source is
//! not part of the digest.

use blake3::Hasher;
use dorm_lifecycle::Digest;
use serde::{Deserialize, Serialize};

const CONTEXT: &str = "Dormouse image with settings, version 1";

/// How programs of an image are run by default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// The program that is run when the image is started, followed by [`ImageConfig::command`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// The arguments of the entrypoint, or the whole command if there is no entrypoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Variables of every process, as `NAME=VALUE`, in the order of the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The working directory of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The user of processes: a name, a number, or `UID:GID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Ports on which its programs listen, such as `8080/tcp`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// A line for `/bin/sh` that exits with 0 as soon as the program started from the image is
    /// ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The architecture of its programs, such as `amd64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

impl ImageConfig {
    /// Returns the command that starts the image; empty if there is none.
    pub fn start(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.command).cloned().collect()
    }

    /// Returns its variables. If a name occurs several times, the last value counts.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().filter_map(|line| line.split_once('='))
    }

    /// Returns the digest of an image with this root file system and these settings.
    pub(super) fn digest(&self, rootfs: &Digest) -> Result<Digest, std::io::Error> {
        let mut hasher = Hasher::new_derive_key(CONTEXT);
        hasher.update(rootfs.as_str().as_bytes());
        hasher.update(&serde_json::to_vec(self)?);
        hasher.finalize().to_hex().to_string().parse().map_err(std::io::Error::other)
    }
}

/// The source of an image.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageSource {
    /// Its reference, such as `docker.io/library/python:3.12`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The digest of its manifest at the source, such as `sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// A key of what it was built from, set by its builder; the same key means the same image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_part_of_what_an_image_is() {
        let rootfs: Digest = "0".repeat(64).parse().unwrap();
        let one = ImageConfig { env: vec!["A=1".into()], ..ImageConfig::default() };
        let two = ImageConfig { env: vec!["A=2".into()], ..ImageConfig::default() };
        assert_ne!(one.digest(&rootfs).unwrap(), two.digest(&rootfs).unwrap());
        assert_eq!(one.digest(&rootfs).unwrap(), one.clone().digest(&rootfs).unwrap());
        assert_ne!(one.digest(&rootfs).unwrap(), rootfs);
    }

    #[test]
    fn the_digest_of_settings_is_what_it_was() {
        let rootfs: Digest = "0".repeat(64).parse().unwrap();
        let all = ImageConfig {
            entrypoint: vec!["/init".into()],
            command: vec!["serve".into()],
            env: vec!["A=1".into()],
            directory: Some("/srv".into()),
            user: Some("ann".into()),
            ports: vec!["80/tcp".into()],
            architecture: Some("amd64".into()),
            ready: None,
        };
        assert_eq!(
            all.digest(&rootfs).unwrap().as_str(),
            "44be0bd1d85d539820bee1736dc6fa9789d8d084684486fd0832ad0bdb22e33a"
        );
        assert_eq!(all.start(), ["/init", "serve"]);
    }
}
