//! `dorm volume`: storage that outlives sandboxes.

mod cp;

use clap::Subcommand;
use dorm_api_types as wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::Done;
use super::shown;
use crate::exit;
use crate::values;

/// Options of `dorm volume`.
#[derive(Debug, clap::Args)]
pub(crate) struct VolumeOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: VolumeVerb,
}

#[derive(Debug, Subcommand)]
enum VolumeVerb {
    /// Create a volume
    Create {
        /// Name: lower-case letters, digits and hyphens
        name: String,
        /// Size of the volume
        #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "1G")]
        size: u64,
        /// How many sandboxes can write to it at a time; with one, all others can only read
        #[arg(long, value_enum, value_name = "HOW MANY", default_value = "one")]
        writers: Writers,
    },
    /// List volumes
    Ls,
    /// Show all details of a volume, including its health and where it is attached
    Describe {
        /// The volume's name or id
        volume: String,
    },
    /// Copy files into or out of a volume, without a sandbox
    Cp(cp::CpOptions),
    /// Remove volumes that are attached to no sandbox, with all their content
    Rm {
        /// The volumes' names or ids
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Writers {
    One,
    Many,
}

/// Runs `dorm volume`.
pub(crate) async fn run(options: VolumeOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        VolumeVerb::Create { name, size, writers } => {
            let writers = match writers {
                Writers::One => wire::Writers::One,
                Writers::Many => wire::Writers::Many,
            };
            let asked = wire::CreateVolume { name, size_bytes: Some(size), writers: Some(writers) };
            let volume = client.create_volume(&asked).await?;
            match format {
                Format::Json => output::json(&volume)?,
                Format::Table => print(&[volume])?,
            }
        }
        VolumeVerb::Ls => {
            let volumes = client.volumes().await?;
            match format {
                Format::Json => output::json(&volumes)?,
                Format::Table => print(&volumes)?,
            }
        }
        VolumeVerb::Describe { volume } => describe(&client.volume(&volume).await?, format)?,
        VolumeVerb::Cp(options) => return cp::run(&client, options).await,
        VolumeVerb::Rm { volumes } => {
            for volume in volumes {
                client.delete_volume(&volume).await?;
                output::talk(&format!("volume {volume} is removed"));
            }
        }
    }
    Ok(exit::OK)
}

fn print(volumes: &[wire::Volume]) -> Result<(), super::problem::Problem> {
    let row = |volume: &wire::Volume| {
        vec![
            volume.name.clone(),
            shown::size(volume.size_bytes),
            volume.used_bytes.map_or_else(shown::none, shown::size),
            shown::word(&volume.writers),
            shown::word(&volume.health),
            attached(volume),
        ]
    };
    let rows: Vec<_> = volumes.iter().map(row).collect();
    output::table(&["VOLUME", "SIZE", "USED", "WRITERS", "HEALTH", "ATTACHED TO"], &rows)
}

fn describe(volume: &wire::Volume, format: Format) -> Result<(), super::problem::Problem> {
    if format == Format::Json {
        return output::json(volume);
    }
    let mut fields = vec![
        ("name", volume.name.clone()),
        ("id", volume.id.clone()),
        ("size", shown::size(volume.size_bytes)),
        ("used", volume.used_bytes.map_or_else(shown::none, shown::size)),
        ("writers", shown::word(&volume.writers)),
        ("health", shown::word(&volume.health)),
        ("attached to", attached(volume)),
        ("created", shown::moment(volume.created_at)),
    ];
    if let Some(problem) = &volume.problem {
        fields.push(("problem", problem.clone()));
    }
    output::fields(&fields)
}

fn attached(volume: &wire::Volume) -> String {
    if volume.attached_to.is_empty() { shown::none() } else { volume.attached_to.join(", ") }
}
