//! Images of registries, and what images say about themselves.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How programs of an image are run, unless somebody says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ImageConfig {
    /// What starts it, before `command`. It is only started when that is asked for.
    pub entrypoint: Vec<String>,
    /// The arguments of the entrypoint, or the whole command where there is none.
    pub command: Vec<String>,
    /// Variables of every process, as `NAME=VALUE`; those of the sandbox come before them.
    pub env: Vec<String>,
    /// Where processes start.
    pub directory: Option<String>,
    /// As whom they run.
    pub user: Option<String>,
    /// Ports that something in it listens at, such as `8080/tcp`.
    pub ports: Vec<String>,
    /// A line for `/bin/sh` that ends with 0 as soon as what starts it can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The architecture its programs are for, such as `amd64`.
    pub architecture: Option<String>,
}

/// Where an image came from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ImageSource {
    /// What it is called there.
    pub reference: Option<String>,
    /// The digest of its manifest there.
    pub manifest: Option<String>,
    /// What it was built from, as its builder says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Makes an image of a filesystem snapshot, or of another image, with settings of its own. Exactly one of `image` and
/// `snapshot` is given.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComposeImage {
    /// The image whose files it gets: a tag, a digest, or the beginning of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The filesystem snapshot whose files it gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// How its programs are run; nothing of it comes from what it is made of.
    pub config: ImageConfig,
    /// The tag it gets. Another image may have had it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// What it is built from, in the words of its builder. When an image with the same and a tag is here, that one gets
    /// this tag, too, and is the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Fetches an image from a registry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullImage {
    /// What it is called: `HOST/NAME`, with `:TAG` or `@sha256:DIGEST`. Without a host that of Docker.
    pub reference: String,
    /// For which architecture, such as `arm64`. Default: this host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// A tag it gets beside its whole name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Whether a registry of another host may be asked without TLS. Default: no.
    #[serde(default)]
    pub insecure: bool,
    /// When the registry is asked. Default `always`.
    #[serde(default)]
    pub pull: Pull,
}

/// When a registry is asked for an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pull {
    /// Also when it is here: its tag may mean another one by now.
    #[default]
    Always,
    /// When it is not here.
    Missing,
    /// Never.
    Never,
}

/// Writes an image into a file of the daemon's own host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportImage {
    /// The file, which must not be there yet: an absolute path.
    pub path: String,
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExportedImage {
    /// Which image.
    pub image: String,
    /// The file.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// The digest of the manifest in it.
    pub manifest: String,
}
