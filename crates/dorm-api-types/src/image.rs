//! Image configuration, pulls and exports.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How programs of an image run by default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ImageConfig {
    /// The program to start, before `command`. It is started only if the request asks for it.
    pub entrypoint: Vec<String>,
    /// Arguments of the entrypoint, or the whole command if there is no entrypoint.
    pub command: Vec<String>,
    /// Environment variables of every process, as `NAME=VALUE`. Variables of the sandbox override
    /// them.
    pub env: Vec<String>,
    /// Working directory.
    pub directory: Option<String>,
    /// User that processes run as.
    pub user: Option<String>,
    /// Ports that programs of the image listen on, such as `8080/tcp`.
    pub ports: Vec<String>,
    /// Command line for `/bin/sh` that exits with 0 once the started program is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// CPU architecture of the image, such as `amd64`.
    pub architecture: Option<String>,
}

/// Where an image came from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ImageSource {
    /// Name of the image in its registry.
    pub reference: Option<String>,
    /// Digest of the manifest in its registry.
    pub manifest: Option<String>,
    /// Source that the image was built from, as given by its builder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Creates an image from the files of a filesystem snapshot or another image. Exactly one of
/// `image` and `snapshot` is required.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComposeImage {
    /// Image whose files to use: a tag, a digest, a digest prefix, or the name of a filesystem
    /// snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// ID of the filesystem snapshot whose files to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Configuration of the new image. Nothing is inherited from the source.
    pub config: ImageConfig,
    /// Tag for the image. An image that has this tag loses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Identifies what the image is built from. If a tagged image with the same value exists, that
    /// image also gets this tag and is returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Pulls an image from a registry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullImage {
    /// Name of the image: `HOST/NAME` with `:TAG` or `@sha256:DIGEST`. Without a host, Docker Hub.
    pub reference: String,
    /// CPU architecture, such as `arm64`. Default: that of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Additional tag for the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Allow a registry on another host to be contacted without TLS. Default: false.
    #[serde(default)]
    pub insecure: bool,
    /// When to contact the registry. Default `always`.
    #[serde(default)]
    pub pull: Pull,
}

/// When a registry is contacted for an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pull {
    /// Always: the tag may refer to another image by now.
    #[default]
    Always,
    /// Only if the image is not stored on this host.
    Missing,
    /// Never.
    Never,
}

/// Exports an image to a path on the daemon's host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportImage {
    /// Absolute path of the new file. It must not exist.
    pub path: String,
}

/// The exported archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExportedImage {
    /// Digest of the image.
    pub image: String,
    /// Path of the archive.
    pub path: String,
    /// Size of the archive in bytes.
    pub bytes: u64,
    /// Digest of the manifest in the archive.
    pub manifest: String,
}
