//! `dorm env`: environments, and the environment variables with which clients find the daemon.

use dorm_api_types as wire;

use super::connection::Connection;
use super::environment::EnvVerb;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use crate::exit;

/// Options of `dorm env`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "  eval \"$(dorm env)\"                   # variables for clients\n  \
                       eval \"$(dorm env --new-key ci --project team-a)\"\n  \
                       dorm env ls                          # environments of `dorm ensure`"
)]
pub(crate) struct EnvOptions {
    #[command(flatten)]
    connection: Connection,
    /// The clients to print variables for
    #[arg(value_enum, value_name = "NAME", default_value = "dormouse")]
    family: Family,
    /// Create a key with this name for the project, instead of printing the key of the daemon
    #[arg(long, value_name = "NAME")]
    new_key: Option<String>,
    #[command(subcommand)]
    verb: Option<EnvVerb>,
}

/// A family of clients.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Family {
    /// The command line and the native API
    Dormouse,
}

/// Runs a verb, or prints the variables as shell commands.
pub(crate) async fn run(options: EnvOptions) -> Done {
    let EnvOptions { connection, family: Family::Dormouse, new_key, verb } = options;
    if let Some(EnvVerb::Init(options)) = verb {
        return super::ensure::init(options);
    }
    let client = connection.client()?;
    if let Some(verb) = verb {
        return super::environment::run(&client, verb, connection.output).await;
    }
    let server = client.listens().ok_or_else(|| {
        Problem::no_daemon("the address of the daemon is not known".to_owned(), "give it with --server")
    })?;
    let server = format!("{}://{server}", client.scheme());
    let key = match (new_key, connection.project()) {
        (Some(name), _) => {
            let asked = wire::CreateKey {
                name,
                scope: wire::KeyScope::Full,
                sandbox: None,
                lifetime_secs: None,
                form: wire::KeyForm::Dormouse,
            };
            client.create_key(&asked).await?.key
        }
        (None, None | Some("local")) => connection.key(&server)?,
        (None, Some(project)) => {
            let message = format!("the key of the daemon is not only for the project {project}");
            return Err(Problem::usage(message, "create one for it with --new-key NAME".to_owned()));
        }
    };
    let mut variables = vec![("DORM_KEY", key), ("DORM_SERVER", server)];
    variables.extend(connection.ca().map(|path| ("DORM_CA", path.display().to_string())));
    match connection.output {
        Format::Json => output::json(&variables.into_iter().collect::<std::collections::BTreeMap<_, _>>())?,
        Format::Table => {
            let lines: String = variables.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
            output::write(lines.as_bytes())?;
        }
    }
    Ok(exit::OK)
}
