//! The documents of an OCI image: index, manifest and configuration, as found in registries and
//! archives. They are untrusted: the format of every digest is checked before it is used as a name.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::settings::ImageConfig;

/// The maximum size of an index, manifest or configuration.
pub const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
const LAYERS_MAX: usize = 512;

/// The SHA-256 of a blob, as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlobDigest(String);

impl BlobDigest {
    /// Returns the 64 digits.
    pub fn hex(&self) -> &str {
        &self.0
    }

    /// Creates it from 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
            use fmt::Write as _;
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl FromStr for BlobDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            format!("the digest '{}' is not sha256", shown.escape_debug())
        })?;
        let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() == 64 && hex.bytes().all(legal) {
            Ok(Self(hex.to_owned()))
        } else {
            Err("a digest is not 'sha256:' and 64 lower-case hexadecimal digits".to_owned())
        }
    }
}

/// A reference from one document to another, or to a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// The media type.
    pub media_type: String,
    /// The digest.
    pub digest: BlobDigest,
    /// The length.
    pub bytes: u64,
    /// The platform, as `os` and `architecture`, if specified.
    pub platform: Option<(String, String)>,
    /// The name, if specified.
    pub name: Option<String>,
}

/// An index or a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Document {
    /// Several images to choose from.
    Index(Vec<Descriptor>),
    /// One image.
    Manifest(Manifest),
}

/// The components of one image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

/// The content of an image's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// How its programs are run.
    pub settings: ImageConfig,
    /// The digests of its unpacked layers, the lowest first.
    pub diff_ids: Vec<BlobDigest>,
}

/// The compression of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// Uncompressed.
    Plain,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl Packing {
    /// Returns the compression for the media type of a layer.
    ///
    /// # Errors
    /// A phrase that names the unsupported type.
    pub fn of_media_type(media_type: &str) -> Result<Self, String> {
        let known = [
            ("application/vnd.oci.image.layer.v1.tar", Self::Plain),
            ("application/vnd.oci.image.layer.v1.tar+gzip", Self::Gzip),
            ("application/vnd.oci.image.layer.v1.tar+zstd", Self::Zstd),
            ("application/vnd.oci.image.layer.nondistributable.v1.tar", Self::Plain),
            ("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", Self::Gzip),
            ("application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", Self::Zstd),
            ("application/vnd.docker.image.rootfs.diff.tar", Self::Plain),
            ("application/vnd.docker.image.rootfs.diff.tar.gzip", Self::Gzip),
            ("application/vnd.docker.image.rootfs.diff.tar.zstd", Self::Zstd),
        ];
        let found = known.iter().find(|(name, _)| *name == media_type);
        found.map(|(_, packing)| *packing).ok_or_else(|| {
            let shown: String = media_type.chars().take(120).collect();
            format!("a layer has the unsupported media type '{}'", shown.escape_debug())
        })
    }

    /// Returns the compression of content that begins with `start`.
    pub fn of_content(start: &[u8]) -> Self {
        if start.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Self::Zstd
        } else {
            Self::Plain
        }
    }
}

/// Returns the architecture of this host's programs, in the terms of OCI.
pub fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<RawPlatform>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct RawPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: Option<u32>,
    manifests: Option<Vec<RawDescriptor>>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
struct RawConfiguration {
    architecture: Option<String>,
    os: Option<String>,
    config: Option<RawSettings>,
    rootfs: RawRootfs,
}

#[derive(Deserialize)]
struct RawRootfs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawSettings {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
}

impl TryFrom<RawDescriptor> for Descriptor {
    type Error = String;

    fn try_from(raw: RawDescriptor) -> Result<Self, String> {
        let annotations = raw.annotations.unwrap_or_default();
        let names = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
        Ok(Self {
            media_type: raw.media_type,
            digest: raw.digest.parse()?,
            bytes: raw.size,
            platform: raw.platform.map(|platform| (platform.os, platform.architecture)),
            name: names.iter().find_map(|name| annotations.get(*name).cloned()),
        })
    }
}

impl Document {
    /// Parses an index or a manifest.
    ///
    /// # Errors
    /// A phrase that says what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let raw: RawDocument =
            serde_json::from_slice(text).map_err(|error| format!("the manifest is invalid: {error}"))?;
        if raw.schema_version.is_some_and(|version| version != 2) {
            return Err("the manifest has the old format schema 1: push the image again with a newer tool".to_owned());
        }
        match (raw.manifests, raw.config, raw.layers) {
            (Some(manifests), ..) => {
                Ok(Self::Index(manifests.into_iter().map(Descriptor::try_from).collect::<Result<_, _>>()?))
            }
            (None, Some(config), Some(layers)) if layers.len() <= LAYERS_MAX => Ok(Self::Manifest(Manifest {
                config: config.try_into()?,
                layers: layers.into_iter().map(Descriptor::try_from).collect::<Result<_, _>>()?,
            })),
            (None, Some(_), Some(_)) => Err(format!("the manifest has more than {LAYERS_MAX} layers")),
            _ => Err("the manifest is neither an image manifest nor an index".to_owned()),
        }
    }
}

/// Returns the image in an index that is for Linux and `architecture`.
///
/// # Errors
/// A phrase that lists the available platforms.
pub fn choose<'a>(index: &'a [Descriptor], architecture: &str) -> Result<&'a Descriptor, String> {
    let fits = |entry: &&Descriptor| match &entry.platform {
        Some((os, found)) => os == "linux" && found == architecture,
        None => index.len() == 1,
    };
    let found: Vec<_> = index.iter().filter(fits).collect();
    match (found.as_slice(), index) {
        // The platform of an entry without one only becomes known when it is read.
        ([], [only]) if only.platform.is_none() => Ok(only),
        ([], _) => {
            let mut known: Vec<_> = index.iter().filter_map(|entry| entry.platform.as_ref()).collect();
            known.retain(|(os, _)| os != "unknown");
            let known: Vec<_> =
                known.iter().take(20).map(|(os, found)| format!("{os}/{found}").escape_debug().to_string()).collect();
            let known = if known.is_empty() { "no named one".to_owned() } else { known.join(", ") };
            Err(format!("it has no image for linux/{architecture}, only {known}: choose one with --arch"))
        }
        ([first, ..], _) => Ok(first),
    }
}

impl Configuration {
    /// Parses the configuration of an image.
    ///
    /// # Errors
    /// A phrase that says what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let raw: RawConfiguration = serde_json::from_slice(text)
            .map_err(|error| format!("the configuration of the image is invalid: {error}"))?;
        if let Some(os) = raw.os.filter(|os| !os.is_empty() && os != "linux") {
            let shown: String = os.chars().take(40).collect();
            return Err(format!("the image is for {}, not for linux", shown.escape_debug()));
        }
        let settings = raw.config.unwrap_or_default();
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let settings = ImageConfig {
            entrypoint: settings.entrypoint.unwrap_or_default(),
            command: settings.cmd.unwrap_or_default(),
            env: settings.env.unwrap_or_default(),
            directory: filled(settings.working_dir),
            user: filled(settings.user),
            ready: None,
            ports: settings.exposed_ports.unwrap_or_default().into_keys().collect(),
            architecture: filled(raw.architecture),
        };
        if let Some(bad) = settings.env.iter().find(|line| line.contains('\0') || line.starts_with('=')) {
            return Err(format!("the image has an invalid environment variable: '{}'", bad.escape_debug()));
        }
        let diff_ids = raw.rootfs.diff_ids.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { settings, diff_ids })
    }
}

#[cfg(test)]
mod tests;
