//! Writes an image into one file for other tools: an OCI layout in a tar archive, with all files in
//! one layer. The same image always gives the same bytes.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::Digest;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::documents::{BlobDigest, host_architecture};
use super::import::AGENT;
use super::settings::ImageConfig;
use super::{Image, Images, listing};
use crate::disk;
use crate::error::{PoolError, failed};

const BLOCK: u64 = 512;
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The result of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportedImage {
    /// The length of the file.
    pub bytes: u64,
    /// The digest of its manifest.
    pub manifest: BlobDigest,
}

impl Images {
    /// Writes the image into the new file `to`.
    pub(crate) fn export(&self, digest: &Digest, to: &Path) -> Result<ExportedImage, PoolError> {
        let image = self.verify(digest)?;
        let (Some(directory), Some(name)) = (to.parent(), to.file_name()) else {
            return Err(failed("write", to)(io::Error::from(io::ErrorKind::InvalidInput)));
        };
        if to.symlink_metadata().is_ok() {
            return Err(failed("write", to)(io::Error::from(io::ErrorKind::AlreadyExists)));
        }
        let mut part = name.to_owned();
        part.push(".part");
        let part = directory.join(part);
        let written = self.write_into(&part, &image, self.made_with(digest)?);
        let done = written.and_then(|exported| {
            disk::rename_new(&part, to).map_err(failed("write", to))?;
            disk::sync_directory(directory, &self.steps)?;
            Ok(exported)
        });
        if done.is_err() {
            // The partial file is useless.
            let _ = fs::remove_file(&part);
        }
        done
    }

    fn write_into(&self, part: &Path, image: &Image, ids: GuestIds) -> Result<ExportedImage, PoolError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(part);
        let mut file = file.map_err(failed("write", part))?;
        let manifest = layout(&mut file, image, ids).map_err(failed("write", part))?;
        file.sync_all().map_err(failed("sync", part))?;
        self.steps.durable(part);
        Ok(ExportedImage { bytes: file.metadata().map_err(failed("read the metadata of", part))?.len(), manifest })
    }
}

fn layout(file: &mut File, image: &Image, ids: GuestIds) -> io::Result<BlobDigest> {
    let config = &image.config;
    let (layer, layer_bytes) = layer(file, &image.rootfs, ids)?;
    let settings = json!({
        "architecture": config.architecture.as_deref().unwrap_or_else(|| host_architecture()),
        "os": "linux",
        "config": settings(config),
        "rootfs": {"type": "layers", "diff_ids": [layer.to_string()]},
    });
    let (config, config_bytes) = blob(file, &settings)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": config.to_string(), "size": config_bytes},
        "layers": [{"mediaType": LAYER, "digest": layer.to_string(), "size": layer_bytes}],
    });
    let (manifest, manifest_bytes) = blob(file, &manifest)?;
    let entry = json!({"mediaType": MANIFEST, "digest": manifest.to_string(), "size": manifest_bytes});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    append(file, "index.json", &serde_json::to_vec(&index)?)?;
    append(file, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    file.write_all(&[0; 2 * BLOCK as usize])?;
    Ok(manifest)
}

fn settings(config: &ImageConfig) -> serde_json::Value {
    let mut settings = serde_json::Map::new();
    let lists = [("Env", &config.env), ("Entrypoint", &config.entrypoint), ("Cmd", &config.command)];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        settings.insert(name.to_owned(), json!(list));
    }
    for (name, text) in [("WorkingDir", &config.directory), ("User", &config.user)] {
        if let Some(text) = text {
            settings.insert(name.to_owned(), json!(text));
        }
    }
    if !config.ports.is_empty() {
        let ports: serde_json::Map<_, _> = config.ports.iter().map(|port| (port.clone(), json!({}))).collect();
        settings.insert("ExposedPorts".to_owned(), ports.into());
    }
    settings.into()
}

fn blob(file: &mut File, document: &serde_json::Value) -> io::Result<(BlobDigest, u64)> {
    let text = serde_json::to_vec(document)?;
    let digest = BlobDigest::from_bytes(&Sha256::digest(&text));
    append(file, &format!("blobs/sha256/{}", digest.hex()), &text)?;
    Ok((digest, text.len() as u64))
}

fn append(file: &mut File, name: &str, content: &[u8]) -> io::Result<()> {
    file.write_all(file_header(name, content.len() as u64)?.as_bytes())?;
    file.write_all(content)?;
    pad(file, content.len() as u64)
}

fn pad(file: &mut File, bytes: u64) -> io::Result<()> {
    let over = usize::try_from(bytes % BLOCK).unwrap_or(0);
    if over > 0 { file.write_all(&[0; BLOCK as usize][over..]) } else { Ok(()) }
}

fn file_header(name: &str, bytes: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    header.set_cksum();
    Ok(header)
}

/// Writes the layer, and then its header, since its name and length are only known afterwards.
fn layer(file: &mut File, rootfs: &Path, ids: GuestIds) -> io::Result<(BlobDigest, u64)> {
    let at = file.stream_position()?;
    file.write_all(&[0; BLOCK as usize])?;
    let out = io::BufWriter::with_capacity(256 << 10, Hashing { inner: &mut *file, sum: Sha256::new(), bytes: 0 });
    let mut builder = Builder::new(out);
    builder.follow_symlinks(false);
    tree(&mut builder, rootfs, ids)?;
    let hashing = builder.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    let (digest, bytes) = (BlobDigest::from_bytes(&hashing.sum.finalize()), hashing.bytes);
    pad(file, bytes)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(file_header(&format!("blobs/sha256/{}", digest.hex()), bytes)?.as_bytes())?;
    file.seek(SeekFrom::End(0))?;
    Ok((digest, bytes))
}

struct Hashing<'a> {
    inner: &'a mut File,
    sum: Sha256,
    bytes: u64,
}

impl Write for Hashing<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.sum.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn tree(builder: &mut Builder<impl Write>, rootfs: &Path, ids: GuestIds) -> io::Result<()> {
    let mut links = HashMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let path = rootfs.join(&relative);
        let facts = path.symlink_metadata()?;
        // Every import adds it.
        if relative == Path::new(AGENT) && facts.len() == 0 {
            continue;
        }
        add(builder, (&path, &relative), &facts, ids, &mut links)?;
        if facts.is_dir() {
            let mut children = Vec::new();
            for entry in fs::read_dir(&path)? {
                children.push(relative.join(entry?.file_name()));
            }
            children.sort_unstable_by(|a, b| b.as_os_str().as_bytes().cmp(a.as_os_str().as_bytes()));
            open.append(&mut children);
        }
    }
    Ok(())
}

fn add(
    builder: &mut Builder<impl Write>,
    (path, relative): (&Path, &Path),
    facts: &Metadata,
    ids: GuestIds,
    links: &mut HashMap<u64, PathBuf>,
) -> io::Result<()> {
    let name = if relative.as_os_str().is_empty() { Path::new("./") } else { relative };
    let mut header = Header::new_gnu();
    header.set_mode(facts.mode() & 0o7777);
    header.set_uid(u64::from(ids.guest(facts.uid()).unwrap_or(0)));
    header.set_gid(u64::from(ids.guest(facts.gid()).unwrap_or(0)));
    header.set_mtime(u64::try_from(facts.mtime()).unwrap_or(0));
    header.set_size(0);
    let kind = facts.file_type();
    if kind.is_dir() {
        header.set_entry_type(EntryType::Directory);
        builder.append_data(&mut header, name, io::empty())
    } else if kind.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        builder.append_link(&mut header, name, fs::read_link(path)?)
    } else if kind.is_file() {
        if facts.nlink() > 1 {
            if let Some(first) = links.get(&facts.ino()) {
                header.set_entry_type(EntryType::Link);
                return builder.append_link(&mut header, name, first);
            }
            links.insert(facts.ino(), relative.to_owned());
        }
        let file = File::open(path)?;
        let capability = listing::capability(&file, ids);
        if !capability.is_empty() {
            builder.append_pax_extensions([("SCHILY.xattr.security.capability", &capability[..])])?;
        }
        header.set_entry_type(EntryType::Regular);
        header.set_size(facts.len());
        builder.append_data(&mut header, name, file.take(facts.len()))
    } else {
        header.set_entry_type(EntryType::Fifo);
        builder.append_data(&mut header, name, io::empty())
    }
}
