//! `dorm env`: environments, and the environment variables with which clients find the daemon.

use std::net::SocketAddr;

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
    /// The SDKs and the command line of E2B
    E2b,
}

impl Family {
    /// The form of a new key.
    const fn key_form(self) -> wire::KeyForm {
        match self {
            Self::Dormouse => wire::KeyForm::Dormouse,
            Self::E2b => wire::KeyForm::E2b,
        }
    }
}

/// Runs a verb, or prints the variables as shell commands.
pub(crate) async fn run(options: EnvOptions) -> Done {
    let EnvOptions { connection, family, new_key, verb } = options;
    if let Some(EnvVerb::Init(options)) = verb {
        return super::ensure::init(options);
    }
    let client = connection.client()?;
    if let Some(verb) = verb {
        return super::environment::run(&client, verb, connection.output).await;
    }
    let listens = client.listens().ok_or_else(|| {
        Problem::no_daemon("the address of the daemon is not known".to_owned(), "give it with --server")
    })?;
    let server = format!("{}://{listens}", client.scheme());
    let is_new = new_key.is_some();
    let key = match (new_key, connection.project()) {
        (Some(name), _) => {
            let asked = wire::CreateKey {
                name,
                scope: wire::KeyScope::Full,
                sandbox: None,
                lifetime_secs: None,
                form: family.key_form(),
            };
            client.create_key(&asked).await?.key
        }
        (None, None | Some("local")) => connection.key(&server)?,
        (None, Some(project)) => {
            let message = format!("the key of the daemon gives access to all projects, not only to {project}");
            return Err(Problem::usage(message, "create one for it with --new-key NAME".to_owned()));
        }
    };
    let variables = match family {
        Family::Dormouse => {
            let ca = connection.ca().map(|path| ("DORM_CA", path.display().to_string()));
            [("DORM_KEY", key), ("DORM_SERVER", server)].into_iter().chain(ca).collect()
        }
        Family::E2b => {
            let door = client.info().await?.doors.remove("e2b");
            e2b(&key, is_new, door.as_deref(), listens, client.scheme())?
        }
    };
    match connection.output {
        Format::Json => output::json(&variables.into_iter().collect::<std::collections::BTreeMap<_, _>>())?,
        Format::Table => {
            let lines: String = variables.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
            output::write(lines.as_bytes())?;
        }
    }
    Ok(exit::OK)
}

/// The variables of the clients of E2B. Their releases around 2.45 refuse keys that do not have the
/// form of E2B's, unless a variable forbids that.
fn e2b(
    key: &str,
    is_new: bool,
    door: Option<&str>,
    listens: &str,
    scheme: &str,
) -> Result<Vec<(&'static str, String)>, Problem> {
    let Some(door) = door.and_then(|door| door.parse::<SocketAddr>().ok()) else {
        let message = "this daemon has no listener for clients of E2B".to_owned();
        return Err(Problem::usage(message, "start it with `dorm serve --e2b ADDRESS`".to_owned()));
    };
    // A listener on every address is reached at the one of the daemon.
    let host = listens.rsplit_once(':').map_or(listens, |(host, _)| host);
    let url = match door.ip() {
        ip if ip.is_loopback() => format!("http://{door}"),
        ip if ip.is_unspecified() => format!("{scheme}://{host}:{}", door.port()),
        _ => format!("https://{door}"),
    };
    let mut variables = vec![
        ("E2B_API_KEY", key.to_owned()),
        ("E2B_API_URL", url.clone()),
        ("E2B_SANDBOX_URL", url.clone()),
        ("E2B_VOLUME_API_URL", url),
    ];
    variables.extend((!is_new).then(|| ("E2B_VALIDATE_API_KEY", "false".to_owned())));
    Ok(variables)
}
