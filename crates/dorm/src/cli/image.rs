//! `dorm image`: what sandboxes start from.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use dorm_api::wire;
use jiff::Timestamp;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::progress::Progress;
use super::{exit, shown};
use crate::client::Client;

/// What to do with images.
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
    /// Import a root filesystem: a directory, or a tar archive, plain or gzip-compressed
    Import {
        /// The directory or archive, on the daemon's host
        path: PathBuf,
        /// Name it; another image that had this tag loses it
        #[arg(long)]
        tag: Option<String>,
    },
    /// Remove images that no living sandbox and no snapshot needs
    Rm {
        /// Tags, digests, or the first 8 or more digits of one
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
}

/// Does it.
pub(crate) async fn run(options: ImageOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        ImageVerb::Ls => print(&client.images().await?, format),
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

async fn import(client: &Client, path: &Path, tag: Option<String>, format: Format) -> Done {
    let whole = std::path::absolute(path).map_err(|error| Problem::host(format!("find {}", path.display()), &error))?;
    let Some(path) = whole.to_str() else {
        let message = format!("the path {} is not UTF-8", whole.display());
        return Err(Problem::usage(message, "give it a name that is"));
    };
    let progress = Progress::new(&format!("importing {path}"));
    let mut stream = client.import_image(&wire::ImportImage { path: path.to_owned(), tag }).await?;
    while let Some(event) = stream.next().await? {
        match event.kind.as_str() {
            "progress" => progress.say(stage(&stream.parse(&event)?)),
            "done" => {
                let image: wire::Image = stream.parse(&event)?;
                drop(progress);
                return match format {
                    Format::Json => output::json(&image).map(|()| exit::OK),
                    Format::Table => print(&[image], format),
                };
            }
            _ => {}
        }
    }
    Err(stream.ended().into())
}

fn stage(progress: &wire::ImportProgress) -> String {
    let read = match progress.bytes_total {
        Some(total) => format!("{} of {}", shown::size(progress.bytes), shown::size(total)),
        None => shown::size(progress.bytes),
    };
    format!("{}: {} entries, {read}", shown::word(&progress.stage), progress.entries)
}

fn print(images: &[wire::Image], format: Format) -> Done {
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
        ]
    };
    output::table(&["IMAGE", "TAGS", "SIZE", "FILES", "AGE"], &images.iter().map(row).collect::<Vec<_>>())?;
    Ok(exit::OK)
}
