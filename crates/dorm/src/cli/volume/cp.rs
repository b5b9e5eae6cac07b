//! `dorm volume cp`: copies files and directories into a volume or out of it. Links are not copied:
//! each is named, and the exit code says that something is missing.

use std::path::{Path, PathBuf};

use dorm_api_types::VolumeFileKind;
use dorm_client::Client;
use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use crate::cli::output;
use crate::cli::problem::{Done, Problem};
use crate::cli::sbx;
use crate::exit;

const PIECE_BYTES: usize = 256 << 10;

/// Options of `dorm volume cp`.
#[derive(Debug, clap::Args)]
pub(super) struct CpOptions {
    /// Source: a path on this host, VOLUME:/path on a volume, or - for standard input
    source: String,
    /// Destination: a path on this host, VOLUME:/path on a volume, or - for standard output. A copy
    /// into an existing directory on this host, or to a path that ends with a slash, keeps its name
    destination: String,
}

/// One end of a copy.
enum End {
    There { volume: String, path: String },
    Here(PathBuf),
    Stream,
}

/// Runs `dorm volume cp`.
pub(super) async fn run(client: &Client, options: CpOptions) -> Done {
    let mut skipped = 0;
    match (end(&options.source)?, end(&options.destination)?) {
        (End::There { volume, path }, End::Stream) => {
            let mut contents = client.read_volume(&volume, &path).await?.boxed();
            while let Some(piece) = contents.next().await {
                output::write(&piece?)?;
            }
        }
        (End::Stream, End::There { volume, path }) => {
            client.write_volume(&volume, &path, sbx::our_input()).await?;
        }
        (End::There { volume, path }, End::Here(to)) => {
            let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            let to = if to.is_dir() && !name.is_empty() { to.join(name) } else { to };
            skipped = download(client, &volume, &path, &to).await?;
        }
        (End::Here(from), End::There { volume, path }) => {
            let name = from.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let to = if path.ends_with('/') { format!("{path}{name}") } else { path };
            skipped = upload(client, &from, &volume, &to).await?;
        }
        (End::There { .. }, End::There { .. }) => {
            let next = "copy through this host: dorm volume cp A:/file - | dorm volume cp - B:/file";
            return Err(Problem::usage("both paths are on volumes", next));
        }
        (End::Here(_) | End::Stream, End::Here(_) | End::Stream) => {
            return Err(Problem::usage("neither path is on a volume", "write a path on a volume as VOLUME:/path"));
        }
    }
    match skipped {
        0 => Ok(exit::OK),
        count => Err(Problem::failed(format!("entries not copied: {count}; all others were copied"), "")),
    }
}

fn end(text: &str) -> Result<End, Problem> {
    if text == "-" {
        return Ok(End::Stream);
    }
    match text.split_once(':') {
        Some((volume, path)) if !volume.is_empty() && !volume.contains('/') => {
            Ok(End::There { volume: volume.to_owned(), path: format!("/{}", path.trim_start_matches('/')) })
        }
        _ if text.is_empty() => Err(Problem::usage("a path is empty", "name a file")),
        _ => Ok(End::Here(text.into())),
    }
}

fn skip(path: &str) -> usize {
    output::talk(&format!("skipped {path}: it is not a file or directory"));
    1
}

async fn upload(client: &Client, from: &Path, volume: &str, to: &str) -> Result<usize, Problem> {
    let mut skipped = 0;
    let mut left = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = left.pop() {
        let host = |error: std::io::Error| Problem::host(format!("read {}", from.display()), &error);
        if !std::fs::metadata(&from).map_err(host)?.is_dir() {
            let file = tokio::fs::File::open(&from).await.map_err(host)?;
            client.write_volume(volume, &to, ReaderStream::with_capacity(file, PIECE_BYTES)).await?;
            continue;
        }
        let mut entries = std::fs::read_dir(&from).map_err(host)?.collect::<Result<Vec<_>, _>>().map_err(host)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type().map_err(host)?;
            match entry.file_name().to_str() {
                Some(name) if kind.is_dir() || kind.is_file() => {
                    left.push((entry.path(), format!("{}/{name}", to.trim_end_matches('/'))));
                }
                _ => skipped += skip(&entry.path().display().to_string()),
            }
        }
    }
    Ok(skipped)
}

async fn download(client: &Client, volume: &str, from: &str, to: &Path) -> Result<usize, Problem> {
    let Ok(top) = client.volume_files(volume, from).await else {
        file(client, volume, from, to).await?;
        return Ok(0);
    };
    let mut skipped = 0;
    let mut left = vec![(from.trim_end_matches('/').to_owned(), to.to_owned(), top)];
    while let Some((from, to, entries)) = left.pop() {
        let host = |error: std::io::Error| Problem::host(format!("make the directory {}", to.display()), &error);
        match std::fs::create_dir(&to) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && to.is_dir() => {}
            made => made.map_err(host)?,
        }
        for entry in entries {
            let (inside, here) = (format!("{from}/{}", entry.name), to.join(&entry.name));
            match entry.kind {
                VolumeFileKind::File => file(client, volume, &inside, &here).await?,
                VolumeFileKind::Directory => {
                    let below = client.volume_files(volume, &inside).await?;
                    left.push((inside, here, below));
                }
                VolumeFileKind::Symlink | VolumeFileKind::Other => skipped += skip(&inside),
            }
        }
    }
    Ok(skipped)
}

/// Downloads one file, which appears complete or not at all. A link on this host is replaced, not
/// followed.
async fn file(client: &Client, volume: &str, from: &str, to: &Path) -> Result<(), Problem> {
    let mut contents = client.read_volume(volume, from).await?.boxed();
    let mut draft = to.as_os_str().to_owned();
    draft.push(format!(".dorm-{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let host = |error: std::io::Error| Problem::host(format!("write {}", to.display()), &error);
    let mut file = tokio::fs::File::create_new(&draft).await.map_err(host)?;
    let written = async {
        while let Some(piece) = contents.next().await {
            file.write_all(&piece?).await.map_err(host)?;
        }
        file.flush().await.map_err(host)?;
        std::fs::rename(&draft, to).map_err(host)
    };
    let written: Result<(), Problem> = written.await;
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}
