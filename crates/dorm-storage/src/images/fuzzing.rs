//! The entry points of the fuzzers for images: layers, archives and documents.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use dorm_build::context::{Context, Entry};
use dorm_guest_ids::GuestIds;
use dorm_worker::Frames;
use sha2::{Digest as _, Sha256};

use super::archive::Wrong;
use super::bundle::Bundle;
use super::documents::{BlobDigest, Configuration, Document, Packing, choose};
use super::import::Job;
use super::layers::{Blob, LayerBlob};
use super::node::{GuestPath, Kind};
use super::reader::{Message, message};
use super::{Image, ImageConfig, ImageSource, Images, ImportLimits};
use crate::error::StorageError;
use crate::fuzz_input::{first, mended, part};

/// No input may create more than this.
pub(crate) const LIMITS: ImportLimits =
    ImportLimits { entries: 3000, bytes: 8 << 20, file_bytes: 8 << 20, ratio: 1000 };

/// The flags in the first byte.
const RAW: u8 = 1;
const GZIP: u8 = 2;
const ZSTD: u8 = 4;
const MORE: u8 = 8;
const LAYERS_MAX: usize = 4;

/// Unpacks up to four layers and applies them to each other.
pub(crate) fn layers(images: &Images, mut data: &[u8]) {
    let mut layers = Vec::new();
    while layers.len() < LAYERS_MAX {
        let how = first(&mut data);
        let content = if how & MORE == 0 { std::mem::take(&mut data) } else { part(&mut data) };
        layers.push(layer(how, content));
        if how & MORE == 0 {
            break;
        }
    }
    let bundle = Bundle { config: ImageConfig::default(), source: ImageSource::default(), layers };
    let mut job = Job::start(Path::new("fuzzed"), images, &|_| {});
    after(images, images.import_bundle(bundle, None, &mut job));
}

/// Writes a file of any content to `path`, and imports it.
pub(crate) fn archive(images: &Images, path: &Path, mut data: &[u8]) {
    let how = first(&mut data);
    let archive = if how & RAW == 0 { mended(data) } else { data.to_vec() };
    fs::write(path, packed(how, &archive)).expect("a file");
    after(images, images.import(path, None, Some("amd64"), &|_| {}));
}

/// Writes a file of any content to `path`, and reads it as the archive of a build context.
pub(crate) fn context(images: &Images, path: &Path, mut data: &[u8]) {
    let how = first(&mut data);
    let archive = if how & RAW == 0 { mended(data) } else { data.to_vec() };
    fs::write(path, packed(how, &archive)).expect("a file");
    let contents = path.with_extension("contents");
    let read = images.unpack_context(path, &contents);
    let bytes = fs::read(&contents).unwrap_or_default();
    // As after a failed upload, or when the context is deleted.
    let _ = fs::remove_file(&contents);
    match read {
        Ok(context) => context.entries().for_each(|(path, entry)| is_sound(&context, path, entry, &bytes)),
        Err(error) => assert!(error.to_string().len() < 8192, "an error is as long as what it is about"),
    }
}

/// Checks that an entry is below directories of its context, and that its content is `bytes` where
/// it says.
fn is_sound(context: &Context, path: &str, entry: &Entry, bytes: &[u8]) {
    assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?} leads elsewhere");
    if let Some((above, _)) = path.rsplit_once('/') {
        assert_eq!(context.get(above), Some(&Entry::Directory), "{path:?} is below no directory");
    }
    if let Entry::File(file) = entry {
        let end = file.offset.checked_add(file.bytes).expect("an end");
        let range = usize::try_from(file.offset).expect("an offset")..usize::try_from(end).expect("an end");
        let content = bytes.get(range).expect("its content");
        assert_eq!(*blake3::hash(content).as_bytes(), file.hash, "{path:?} has another content");
        assert_eq!(file.mode & !0o7777, 0, "{path:?} has the mode {:o}", file.mode);
    }
}

fn after(images: &Images, imported: Result<Image, StorageError>) {
    match imported {
        Ok(image) => {
            is_of_a_guest(&image.rootfs);
            images.verify(&image.digest).expect("an image that was imported is sound");
            images.remove(&image.digest).expect("it can be removed");
        }
        Err(error) => {
            assert!(error.to_string().len() < 8192, "an error is as long as what it is about");
        }
    }
}

/// Checks that every entry belongs to a guest, and is nothing that a guest must not have.
fn is_of_a_guest(tree: &Path) {
    let mut open = vec![tree.to_owned()];
    let mut count = 0;
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            let facts = entry.path().symlink_metadata().expect("an entry");
            let kind = facts.mode() & 0o170_000;
            let is_plain = matches!(kind, 0o040_000 | 0o100_000 | 0o120_000 | 0o010_000);
            assert!(is_plain, "{} is of the kind {kind:o}", entry.path().display());
            for id in [facts.uid(), facts.gid()] {
                let inside = GuestIds::DEFAULT.base()..GuestIds::DEFAULT.base() + GuestIds::COUNT;
                assert!(inside.contains(&id), "{} belongs to {id}", entry.path().display());
            }
            if kind == 0o040_000 {
                open.push(entry.path());
            }
            count += 1;
            assert!(count <= LIMITS.entries + 16, "more entries than there may be");
        }
    }
}

fn packed(how: u8, content: &[u8]) -> Vec<u8> {
    if how & GZIP != 0 {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(content).and_then(|()| packer.finish()).expect("to pack")
    } else if how & ZSTD != 0 {
        zstd::stream::encode_all(content, 1).expect("to pack")
    } else {
        content.to_vec()
    }
}

/// Returns a layer whose digests are correct.
fn layer(how: u8, content: &[u8]) -> LayerBlob {
    let plain = if how & RAW == 0 { mended(content) } else { content.to_vec() };
    let packed = packed(how, &plain);
    let mut packing = Packing::of_content(&packed);
    let mut sum = Sha256::digest(&plain);
    if how & (RAW | GZIP | ZSTD) == RAW && packing != Packing::Plain {
        // The content may be broken on purpose, so the result is not checked.
        let mut unpacked = Vec::new();
        let reader: Box<dyn std::io::Read> = match packing {
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(&packed[..])),
            _ => match zstd::stream::read::Decoder::new(&packed[..]) {
                Ok(mut decoder) => {
                    let _ = decoder.window_log_max(23);
                    Box::new(decoder)
                }
                Err(_) => Box::new(std::io::empty()),
            },
        };
        if reader.take(16 << 20).read_to_end(&mut unpacked).is_ok() {
            sum = Sha256::digest(&unpacked);
        }
    } else if how & (GZIP | ZSTD) == 0 {
        packing = Packing::Plain;
    }
    let mut file = File::from(rustix::fs::memfd_create("layer", rustix::fs::MemfdFlags::CLOEXEC).expect("a file"));
    file.write_all(&packed).expect("to write");
    let blob = Blob { file: Arc::new(file), offset: 0, bytes: packed.len() as u64 };
    LayerBlob { diff_id: BlobDigest::from_bytes(&sum), digest: None, packing: Some(packing), blob: Some(blob) }
}

/// Reads the messages of a worker about an archive.
///
/// # Panics
/// When a path leads out of the image, or a text is long.
pub fn told(data: &[u8]) {
    let short = |text: &str| assert!(text.len() < 8192, "a text of {} bytes", text.len());
    let is_inside = |path: &GuestPath| {
        let mut parts = path.as_bytes().split(|byte| *byte == b'/');
        let is_inside = path.as_bytes().is_empty() || parts.all(|part| !matches!(part, b"" | b"." | b".."));
        assert!(is_inside, "{path:?} leads elsewhere");
    };
    let mut frames = Frames::new(data);
    while let Ok(message) = message(&mut frames) {
        match message {
            Message::Entry(name, node) => {
                short(&name);
                is_inside(&node.path);
                if let Kind::HardLink(of) = &node.kind {
                    is_inside(of);
                }
            }
            Message::LeftOut(name, _) => short(&name),
            Message::Wrong(Wrong::Archive { what, .. }) => short(&what),
            Message::Wrong(Wrong::Entry { name, refusal }) => {
                [&name, &refusal.what].into_iter().for_each(|text| short(text))
            }
            Message::Wrong(Wrong::Taker(_)) => panic!("a worker takes nothing"),
            Message::Content(_) | Message::Place(..) | Message::Same(..) | Message::Answer(_) | Message::Done => {}
        }
    }
}

/// Parses the documents of an image.
///
/// # Panics
/// When an invariant is violated.
pub fn documents(data: &[u8]) {
    let short = |what: String| assert!(what.len() < 8192, "an error is as long as what it is about");
    match Document::parse(data) {
        Ok(Document::Index(list)) => {
            for architecture in ["amd64", "arm64"] {
                match choose(&list, architecture) {
                    Ok(chosen) => assert!(list.contains(chosen)),
                    Err(what) => short(what),
                }
            }
            list.iter().for_each(|entry| is_digest(&entry.digest));
        }
        Ok(Document::Manifest(manifest)) => {
            for descriptor in manifest.layers.iter().chain([&manifest.config]) {
                is_digest(&descriptor.digest);
                let _ = Packing::of_media_type(&descriptor.media_type).map_err(short);
            }
        }
        Err(what) => short(what),
    }
    match Configuration::parse(data) {
        Ok(configuration) => configuration.diff_ids.iter().for_each(is_digest),
        Err(what) => short(what),
    }
}

/// Checks that the digest is safe as the name of a file.
fn is_digest(digest: &BlobDigest) {
    assert!(digest.hex().len() == 64 && digest.hex().bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(digest.to_string().parse::<BlobDigest>().as_ref(), Ok(digest));
}
