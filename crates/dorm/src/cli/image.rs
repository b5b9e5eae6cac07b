//! `dorm image`: the images that sandboxes start from.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use dorm_api_types as wire;
use dorm_client::Client;
use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use tokio_util::io::ReaderStream;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::progress::Progress;
use super::sbx::cp::place::Place;
use super::shown;
use crate::exit;

const PIECE_BYTES: usize = 256 << 10;
/// The mode of an exported image. Images contain no secrets, but who may read the file is decided
/// by its directory and its owner.
const MODE: u32 = 0o600;

/// Options of `dorm image`.
#[derive(Debug, clap::Args)]
pub(crate) struct ImageOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: ImageVerb,
}

#[derive(Debug, Subcommand)]
enum ImageVerb {
    /// List images
    Ls,
    /// Show all details of an image
    Describe {
        /// Its tag, its digest, or at least the first 8 digits of the digest
        image: String,
    },
    /// Build an image from a Dockerfile, or from steps given as options
    ///
    /// Each step that changes files runs in a sandbox of its own, and its files are kept for two
    /// weeks: the next build continues after the last step that is unchanged and copies the same
    /// files. The image gets its tag after a sandbox created from it was suspended and resumed.
    Build(Box<super::build::BuildOptions>),
    /// Pull an image from a registry
    ///
    /// Data that was fetched before is not fetched again, even after an interrupted pull.
    /// Credentials are read from the Docker configuration of the user that the daemon runs as.
    Pull {
        /// HOST/NAME with :TAG or @sha256:DIGEST; without a host, from Docker Hub
        #[arg(value_name = "REF")]
        reference: String,
        /// Architecture of the image, such as arm64. By default this host's
        #[arg(long, value_name = "ARCH")]
        arch: Option<String>,
        /// Also give the image this tag; another image with this tag loses it
        #[arg(long)]
        tag: Option<String>,
        /// Contact a registry on another host without TLS
        #[arg(long)]
        insecure: bool,
        /// When to contact the registry
        #[arg(long, value_enum, default_value = "always", value_name = "WHEN")]
        pull: super::pull::When,
    },
    /// Write an image to a file that other tools can read: an OCI layout in a tar archive
    Export {
        /// Its tag, its digest, or at least the first 8 digits of the digest
        image: String,
        /// The file; it must not exist yet
        path: PathBuf,
    },
    /// Import a root filesystem, an OCI layout or a Docker archive: a directory, or a tar archive,
    /// plain or compressed with gzip or zstd
    Import {
        /// The directory or archive. With --server, only an archive
        path: PathBuf,
        /// Tag the image; another image with this tag loses it
        #[arg(long)]
        tag: Option<String>,
    },
    /// Remove images that no living sandbox and no snapshot needs
    Rm {
        /// Tags, digests, or at least the first 8 digits of a digest
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
}

/// Runs `dorm image`.
pub(crate) async fn run(options: ImageOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        ImageVerb::Ls => print(&client.images().await?, format),
        ImageVerb::Describe { image } => describe(&client.image(&image).await?, format),
        ImageVerb::Build(options) => super::build::run(&client, *options, format).await,
        ImageVerb::Pull { reference, arch, tag, insecure, pull } => {
            let asked = wire::PullImage { reference, architecture: arch, tag, insecure, pull: pull.into() };
            finish(super::pull::pull(&client, &asked).await?, format)
        }
        ImageVerb::Export { image, path } => export(&client, &image, &path, format).await,
        ImageVerb::Import { path, tag } => import(&client, &path, tag, format).await,
        ImageVerb::Rm { images } => {
            for image in images {
                client.delete_image(&image).await?;
                output::talk(&format!("image {image} is removed"));
            }
            Ok(exit::OK)
        }
    }
}

/// Imports an image. Over the owner's socket the daemon reads the file itself; otherwise the file
/// is sent to it.
async fn import(client: &Client, path: &Path, tag: Option<String>, format: Format) -> Done {
    if !client.may_name_paths() {
        return finish(upload(client, path, tag.as_deref()).await?, format);
    }
    let path = whole(path)?;
    let progress = Progress::new(&format!("importing {path}"));
    let stream = client.import_image(&wire::ImportImage { path, tag }).await?;
    let image = super::pull::follow(stream, &progress).await?;
    drop(progress);
    finish(image, format)
}

async fn upload(client: &Client, path: &Path, tag: Option<&str>) -> Result<wire::Image, Problem> {
    let host = |error: std::io::Error| Problem::host(format!("read {}", path.display()), &error);
    let from = tokio::fs::File::open(path).await.map_err(host)?;
    let found = from.metadata().await.map_err(host)?;
    if found.is_dir() {
        let shown = path.display();
        return Err(Problem::usage(
            format!("{shown} is a directory, but with --server only archives can be imported"),
            format!("pack it: `tar --numeric-owner --xattrs -C {shown} -cf image.tar .`, and import image.tar"),
        ));
    }
    let progress = Progress::bytes(&format!("sending {}", path.display()));
    let passed = progress.share();
    let contents = ReaderStream::with_capacity(from, PIECE_BYTES).inspect_ok(move |piece| passed(piece.len()));
    let length = Some(found.len()).filter(|_| found.is_file());
    let stream = client.upload_image(tag, length, contents).await?;
    drop(progress);
    let progress = Progress::new(&format!("importing {}", path.display()));
    super::pull::follow(stream, &progress).await
}

/// Downloads an image to a file, which appears complete or not at all and never replaces another
/// file.
async fn download(client: &Client, image: &str, path: &Path) -> Result<wire::ExportedImage, Problem> {
    let host = |error: std::io::Error| Problem::host(format!("write {}", path.display()), &error);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().map(PathBuf::from);
    let name = name.ok_or_else(|| Problem::usage(format!("{} is not the name of a file", path.display()), ""))?;
    if path.symlink_metadata().is_ok() {
        return Err(host(std::io::ErrorKind::AlreadyExists.into()));
    }
    let (about, mut contents) = client.download_image(image).await?;
    let (draft, mut to) = Place::open(parent).and_then(|place| place.begin(&name, MODE)).map_err(host)?;
    let progress = Progress::bytes(&format!("receiving {image}"));
    let mut bytes = 0;
    while let Some(piece) = contents.next().await {
        let piece = piece?;
        to.write_all(&piece).map_err(host)?;
        progress.add(piece.len());
        bytes += piece.len() as u64;
    }
    to.sync_all().map_err(host)?;
    draft.keep().map_err(host)?;
    let path = whole(path)?;
    Ok(wire::ExportedImage { image: about.image, path, bytes, manifest: about.manifest })
}

async fn export(client: &Client, image: &str, path: &Path, format: Format) -> Done {
    let exported = if client.may_name_paths() {
        let path = whole(path)?;
        let _progress = Progress::new(&format!("writing {path}"));
        client.export_image(image, &wire::ExportImage { path }).await?
    } else {
        download(client, image, path).await?
    };
    match format {
        Format::Json => output::json(&exported)?,
        Format::Table => {
            let row =
                vec![shown::digest(&exported.image), exported.path, shown::size(exported.bytes), exported.manifest];
            output::table(&["IMAGE", "FILE", "SIZE", "MANIFEST"], &[row])?;
        }
    }
    Ok(exit::OK)
}

/// Returns a path as an absolute one, for the daemon.
fn whole(path: &Path) -> Result<String, Problem> {
    let whole = std::path::absolute(path).map_err(|error| Problem::host(format!("find {}", path.display()), &error))?;
    whole
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| Problem::usage(format!("the path {} is not UTF-8", whole.display()), "rename it"))
}

fn finish(image: wire::Image, format: Format) -> Done {
    match format {
        Format::Json => output::json(&image).map(|()| exit::OK),
        Format::Table => print(&[image], format),
    }
}

fn describe(image: &wire::Image, format: Format) -> Done {
    if format == Format::Json {
        return output::json(image).map(|()| exit::OK);
    }
    let wire::Image { digest, tags, bytes, files, created_at, config, source, layers } = image;
    let list = |list: &[String]| if list.is_empty() { shown::none() } else { list.join(", ") };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(shown::none);
    let command = |words: &[String]| if words.is_empty() { shown::none() } else { words.join(" ") };
    let rows = [
        ("digest", digest.clone()),
        ("tags", list(tags)),
        ("size", shown::size(*bytes)),
        ("files", files.to_string()),
        ("age", shown::age(*created_at, Timestamp::now())),
        ("from", text(&source.reference)),
        ("manifest", text(&source.manifest)),
        ("architecture", text(&config.architecture)),
        ("entrypoint", command(&config.entrypoint)),
        ("command", command(&config.command)),
        ("ready", text(&config.ready)),
        ("directory", text(&config.directory)),
        ("user", text(&config.user)),
        ("env", list(&config.env)),
        ("ports", list(&config.ports)),
        ("layers", layers.len().to_string()),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    output::table(&["FIELD", "VALUE"], &rows)?;
    Ok(exit::OK)
}

pub(super) fn print(images: &[wire::Image], format: Format) -> Done {
    if format == Format::Json {
        return output::json(&images).map(|()| exit::OK);
    }
    let now = Timestamp::now();
    let row = |image: &wire::Image| {
        vec![
            shown::digest(&image.digest),
            if image.tags.is_empty() { shown::none() } else { image.tags.join(", ") },
            shown::size(image.bytes),
            image.files.to_string(),
            shown::age(image.created_at, now),
            image.source.reference.clone().unwrap_or_else(shown::none),
        ]
    };
    output::table(&["IMAGE", "TAGS", "SIZE", "FILES", "AGE", "FROM"], &images.iter().map(row).collect::<Vec<_>>())?;
    Ok(exit::OK)
}
