//! `dorm project`: separate users of one daemon.

use clap::Subcommand;
use dorm_api_types as wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::shown;
use crate::exit;
use crate::values;

/// Options of `dorm project`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProjectOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: ProjectVerb,
}

#[derive(Debug, Subcommand)]
enum ProjectVerb {
    /// Create a project; give its users a key with `dorm key create --project NAME`
    Create {
        /// Name: lower-case letters, digits and hyphens. It is never used again for another project
        name: String,
        #[command(flatten)]
        budgets: Budgets,
    },
    /// List projects, with what they use of their limits
    Ls,
    /// Show a project
    Describe {
        /// Name of the project
        name: String,
    },
    /// Change limits of a project; those that are not given stay
    Limit {
        /// Name of the project
        name: String,
        #[command(flatten)]
        budgets: Budgets,
        /// Remove all limits that are not given
        #[arg(long)]
        only: bool,
    },
    /// Remove projects without sandboxes, snapshots and volumes, with their keys and webhooks
    Rm {
        /// The names of the projects
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

/// Limits of a project.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Budgets {
    /// How many sandboxes it may have, running or not
    #[arg(long, value_name = "COUNT")]
    sandboxes: Option<u64>,
    /// How many of them may run at a time
    #[arg(long, value_name = "COUNT")]
    running: Option<u64>,
    /// Sum of the CPU limits of running sandboxes
    #[arg(long, value_name = "COUNT", value_parser = values::cpus)]
    cpus: Option<u32>,
    /// Sum of the memory limits of running sandboxes
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Size of sleep images, snapshots, volumes, images and build contexts
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    disk: Option<u64>,
}

impl Budgets {
    /// Returns the limits that are given, and for the others those of `base`.
    fn over(self, base: wire::ProjectBudgets) -> wire::ProjectBudgets {
        wire::ProjectBudgets {
            sandboxes: self.sandboxes.or(base.sandboxes),
            running: self.running.or(base.running),
            cpu_millis: self.cpus.map(u64::from).or(base.cpu_millis),
            memory_bytes: self.memory.or(base.memory_bytes),
            disk_bytes: self.disk.or(base.disk_bytes),
        }
    }
}

const TITLES: [&str; 6] = ["PROJECT", "SANDBOXES", "RUNNING", "CPUS", "MEMORY", "DISK"];

/// Runs `dorm project`.
pub(crate) async fn run(options: ProjectOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        ProjectVerb::Create { name, budgets } => {
            let budgets = budgets.over(wire::ProjectBudgets::default());
            one(&client.create_project(&wire::CreateProject { name, budgets }).await?, format)?;
        }
        ProjectVerb::Ls => {
            let projects = client.projects().await?;
            match format {
                Format::Json => output::json(&projects)?,
                Format::Table => output::table(&TITLES, &projects.iter().map(row).collect::<Vec<_>>())?,
            }
        }
        ProjectVerb::Describe { name } => one(&client.project(&name).await?, format)?,
        ProjectVerb::Limit { name, budgets, only } => {
            let base = match only {
                true => wire::ProjectBudgets::default(),
                false => client.project(&name).await?.budgets,
            };
            one(&client.set_budgets(&name, &budgets.over(base)).await?, format)?;
        }
        ProjectVerb::Rm { names } => {
            for name in names {
                client.delete_project(&name).await?;
                output::talk(&format!("project {name} is removed"));
            }
        }
    }
    Ok(exit::OK)
}

fn one(project: &wire::Project, format: Format) -> Result<(), Problem> {
    match format {
        Format::Json => output::json(project),
        Format::Table => output::table(&TITLES, &[row(project)]),
    }
}

/// A row with what is used of each limit, such as `3 / 10`.
fn row(project: &wire::Project) -> Vec<String> {
    let wire::Project { name, budgets, used, .. } = project;
    let of = |used: String, limit: Option<String>| match limit {
        Some(limit) => format!("{used} / {limit}"),
        None => used,
    };
    let count = |used: u64, limit: Option<u64>| of(used.to_string(), limit.map(|limit| limit.to_string()));
    let size = |used: u64, limit: Option<u64>| of(shown::size(used), limit.map(shown::size));
    let cpus = |millis: u64| shown::cpus(u32::try_from(millis).unwrap_or(u32::MAX));
    vec![
        name.clone(),
        count(used.sandboxes, budgets.sandboxes),
        count(used.running, budgets.running),
        of(cpus(used.cpu_millis), budgets.cpu_millis.map(cpus)),
        size(used.memory_bytes, budgets.memory_bytes),
        size(used.disk_bytes, budgets.disk_bytes),
    ]
}
