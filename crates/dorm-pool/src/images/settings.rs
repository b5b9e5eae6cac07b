//! What an image says about how programs in it are run, and where it came from.
//!
//! Both are written beside the root filesystem. How programs are run is part of what the image is, and of its digest:
//! two images with the same files and other variables are two. Where it came from is not.

use blake3::Hasher;
use dorm_lifecycle::Digest;
use serde::{Deserialize, Serialize};

const CONTEXT: &str = "Dormouse image with settings, version 1";

/// How programs of an image are run, unless somebody says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// What is run when the image is started, before [`ImageConfig::command`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// The arguments of the entrypoint, or the whole command where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Variables of every process, as `NAME=VALUE`, in the order of the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Where processes start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// As whom they run: a name, a number, or `UID:GID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Ports that something in it listens at, such as `8080/tcp`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// A line for `/bin/sh` that ends with 0 as soon as what the image is started with can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The architecture its programs are for, such as `amd64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

impl ImageConfig {
    /// The command that starts the image; empty where there is none.
    pub fn start(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.command).cloned().collect()
    }

    /// Its variables, the last of a name counting.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().filter_map(|line| line.split_once('='))
    }

    /// The digest of an image with this root filesystem and these settings.
    pub(super) fn digest(&self, rootfs: &Digest) -> Result<Digest, std::io::Error> {
        let mut hasher = Hasher::new_derive_key(CONTEXT);
        hasher.update(rootfs.as_str().as_bytes());
        hasher.update(&serde_json::to_vec(self)?);
        hasher.finalize().to_hex().to_string().parse().map_err(std::io::Error::other)
    }
}

/// Where an image came from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageSource {
    /// What it is called there, such as `docker.io/library/python:3.12`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The digest of its manifest there, such as `sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// What it was built from, as its builder says; the same again is the same image.
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
