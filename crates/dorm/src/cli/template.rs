//! `dorm template`: names under which sandboxes are created.

use clap::Subcommand;
use dorm_api_types as wire;
use dorm_client::Client;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::{build, shown};
use crate::exit;
use crate::values;

/// Options of `dorm template`.
#[derive(Debug, clap::Args)]
pub(crate) struct TemplateOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: TemplateVerb,
}

#[derive(Debug, Subcommand)]
enum TemplateVerb {
    /// Create a template of an image or a snapshot, or move its tag
    ///
    /// With --start-cmd or --ready-cmd, the program is started and a memory snapshot is taken when
    /// it is ready: sandboxes of the template have it running. `dorm image build --template` does
    /// the same with an image that it builds.
    Create(Box<CreateOptions>),
    /// List templates
    Ls,
    /// Show the tags of a template, with the image or snapshot of each
    Describe {
        /// Name of the template
        name: String,
    },
    /// Point more tags at the version of a tag
    Tag {
        /// NAME or NAME:TAG
        #[arg(value_name = "TEMPLATE")]
        from: String,
        /// The tags
        #[arg(required = true, value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Remove templates, or single tags of them; sandboxes created from them stay
    Rm {
        /// NAME for the template with all its tags, or NAME:TAG
        #[arg(required = true, value_name = "TEMPLATE")]
        templates: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct CreateOptions {
    /// NAME or NAME:TAG [default tag: latest]
    template: String,
    /// Image to boot from, by tag or digest, or the name of a snapshot
    #[arg(long, value_name = "IMAGE", required_unless_present = "snapshot", conflicts_with = "snapshot")]
    image: Option<String>,
    /// Snapshot to start from instead
    #[arg(long, value_name = "ID")]
    snapshot: Option<String>,
    #[command(flatten)]
    start: super::sbx::StartOptions,
    /// A line for /bin/sh that starts the program of the template
    #[arg(long, value_name = "LINE", conflicts_with_all = ["snapshot", "start", "no_start"])]
    start_cmd: Option<String>,
    /// A line for /bin/sh that exits with 0 as soon as the program is ready
    #[arg(long, value_name = "LINE", conflicts_with_all = ["snapshot", "start", "no_start"])]
    ready_cmd: Option<String>,
    /// CPU limit, such as 0.5 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = values::cpus)]
    cpus: Option<u32>,
    /// Memory limit [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Disk limit [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    disk: Option<u64>,
    /// An environment variable for all processes in its sandboxes
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
}

const TITLES: [&str; 4] = ["TEMPLATE", "IMAGE", "SNAPSHOT", "CREATED"];

/// Runs `dorm template`.
pub(crate) async fn run(options: TemplateOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        TemplateVerb::Create(options) => return create(&client, *options, format).await,
        TemplateVerb::Ls => {
            let templates = client.templates().await?;
            match format {
                Format::Json => output::json(&templates)?,
                Format::Table => table(&templates)?,
            }
        }
        TemplateVerb::Describe { name } => show(client.template(&name).await?, format)?,
        TemplateVerb::Tag { from, tags } => {
            let (name, from) = from.split_once(':').unwrap_or((&from, ""));
            let asked = wire::TagTemplate { from: from.to_owned(), tags };
            show(client.tag_template(name, &asked).await?, format)?;
        }
        TemplateVerb::Rm { templates } => {
            for template in templates {
                let (name, tag) =
                    template.split_once(':').map_or((&template[..], None), |(name, tag)| (name, Some(tag)));
                client.delete_template(name, tag).await?;
                output::talk(&format!("template {template} is removed"));
            }
        }
    }
    Ok(exit::OK)
}

async fn create(client: &Client, options: CreateOptions, format: Format) -> Done {
    let resources = wire::ResourcesRequest {
        cpu_millis: options.cpus,
        memory_bytes: options.memory,
        disk_bytes: options.disk,
        processes: None,
    };
    let is_limited = options.cpus.is_some() || options.memory.is_some() || options.disk.is_some();
    let resources = is_limited.then_some(resources);
    let env = options.env.into_iter().collect();
    let wire::BuildTemplate { name, tags, .. } = build::template(&options.template);
    if options.start_cmd.is_some() || options.ready_cmd.is_some() {
        let asked = wire::CreateBuild {
            from: options.image,
            start_command: options.start_cmd,
            ready_command: options.ready_cmd,
            template: Some(wire::BuildTemplate { name, tags, resources, env }),
            ..wire::CreateBuild::default()
        };
        let requested = client.create_build(&asked).await?;
        return build::attach(client, &requested.id, 0, format).await;
    }
    let CreateOptions { image, snapshot, start, .. } = options;
    let asked = wire::CreateTemplate { name, tags, image, snapshot, resources, env, start: start.asked() };
    show(client.create_template(&asked).await?, format)?;
    Ok(exit::OK)
}

fn show(template: wire::Template, format: Format) -> Result<(), Problem> {
    match format {
        Format::Json => output::json(&template),
        Format::Table => table(&[template]),
    }
}

fn table(templates: &[wire::Template]) -> Result<(), Problem> {
    let mut rows = Vec::new();
    for template in templates {
        for (tag, version) in &template.tags {
            let image = version.image.as_deref().map_or_else(shown::none, shown::digest);
            let snapshot = version.snapshot.clone().unwrap_or_else(shown::none);
            rows.push(vec![format!("{}:{tag}", template.name), image, snapshot, shown::moment(version.created_at)]);
        }
    }
    output::table(&TITLES, &rows)
}
