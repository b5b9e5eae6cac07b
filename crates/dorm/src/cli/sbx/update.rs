//! `dorm sbx update` and `dorm sbx extend`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::create::OnTimeout;
use super::port_options::{self, PortOptions};
use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::values::{self, Wake};

/// The properties that cannot be changed together with limits.
const OTHERS: [&str; 11] =
    ["name", "label", "unlabel", "annotation", "unannotate", "wake", "ports", "one", "host", "no_port", "on_timeout"];

/// Options of `dorm sbx update`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("properties").required(true).multiple(true)
    .args(OTHERS).args(["cpus", "memory"])))]
pub(crate) struct UpdateOptions {
    /// The sandbox's id or name
    id: String,
    /// Its name; an unnamed sandbox can be suspended from then on
    #[arg(long)]
    name: Option<String>,
    /// A label to set
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    /// A label to remove
    #[arg(long, value_name = "KEY")]
    unlabel: Vec<String>,
    /// An annotation to set: a note of a program
    #[arg(long, value_name = "PROGRAM/KEY=VALUE", value_parser = values::annotation)]
    annotation: Vec<(values::AnnotationName, String)>,
    /// An annotation to remove
    #[arg(long, value_name = "PROGRAM/KEY", value_parser = values::annotation_name)]
    unannotate: Vec<values::AnnotationName>,
    /// The calls that wake it when it is suspended: never, traffic for its ports, or any call
    #[arg(long, value_enum, value_name = "WHEN")]
    wake: Option<Wake>,
    #[command(flatten)]
    ports: PortOptions,
    /// A port that follows the settings for all ports again
    #[arg(long = "no-port", value_name = "PORT", value_parser = port_options::number)]
    no_port: Vec<u16>,
    /// Suspend it, suspend it with its files only, or terminate it when a time limit expires
    #[arg(long, value_enum, value_name = "ACTION")]
    on_timeout: Option<OnTimeout>,
    /// CPU limit, such as 0.5, at once if it runs
    #[arg(long, value_name = "COUNT", value_parser = values::cpus, conflicts_with_all = OTHERS)]
    cpus: Option<u32>,
    /// Memory limit, at once if it runs; not less than it uses
    #[arg(long, value_name = "SIZE", value_parser = values::size, conflicts_with_all = OTHERS)]
    memory: Option<u64>,
}

/// Options of `dorm sbx extend`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExtendOptions {
    /// The sandbox's id or name
    id: String,
    /// How long it may run at least from now on, such as 10m
    #[arg(value_name = "TIME", value_parser = values::duration)]
    by: f64,
}

/// Changes properties of a sandbox and prints it.
pub(super) async fn update(client: &Client, options: UpdateOptions, format: Format) -> Done {
    let removed = options.unlabel.into_iter().map(|key| (key, None));
    let labels = options.label.into_iter().map(|(key, value)| (key, Some(value)));
    let unannotated = options.unannotate.into_iter().map(|name| (name, None));
    let annotated = options.annotation.into_iter().map(|(name, value)| (name, Some(value)));
    let removed_rules = options.no_port.iter().map(|port| (*port, wire::PortRule::default()));
    let asked = wire::UpdateSandbox {
        name: options.name,
        on_timeout: options.on_timeout.map(Into::into),
        wake: options.wake.map(Into::into),
        port_access: options.ports.access(),
        port_host: options.ports.host(),
        port_rules: removed_rules.chain(options.ports.rules()).collect(),
        labels: removed.chain(labels).collect(),
        annotations: values::by_program(unannotated.chain(annotated)),
        resources: (options.cpus.is_some() || options.memory.is_some())
            .then_some(wire::ResizeRequest { cpu_millis: options.cpus, memory_bytes: options.memory }),
    };
    table::one(&client.update(&options.id, &asked).await?, format)
}

/// Postpones the deadline of a sandbox and prints it.
pub(super) async fn extend(client: &Client, options: ExtendOptions, format: Format) -> Done {
    table::one(&client.extend(&options.id, &wire::ExtendSandbox { timeout_secs: options.by }).await?, format)
}
