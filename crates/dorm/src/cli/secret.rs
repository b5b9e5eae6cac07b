//! `dorm secret`: secrets that header rules add to requests of sandboxes.
//!
//! A value is never an argument, where every user of the host can see it, and never printed.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use clap::Subcommand;
use dorm_api_types as wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::shown;
use crate::exit;

/// Options of `dorm secret`.
#[derive(Debug, clap::Args)]
pub(crate) struct SecretOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: SecretVerb,
}

#[derive(Debug, Subcommand)]
enum SecretVerb {
    /// Create a secret or replace its value, which is read from standard input. Sandboxes with a
    /// header rule that names it use the new value from the next request on
    Set {
        /// Name: letters, digits and underscores
        name: String,
        /// Read the value from this file
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
    },
    /// List secrets, without their values
    Ls,
    /// Remove secrets. Requests through header rules that name them are refused from then on
    Rm {
        /// The names of the secrets
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

const TITLES: [&str; 4] = ["NAME", "CREATED", "CHANGED", "USED BY"];

/// Runs `dorm secret`.
pub(crate) async fn run(options: SecretOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        SecretVerb::Set { name, from_file } => {
            let value = value(&name, from_file)?;
            let secret = client.set_secret(&name, &wire::SetSecret { value }).await?;
            match format {
                Format::Json => output::json(&secret)?,
                Format::Table => output::table(&TITLES, &[row(&secret)])?,
            }
        }
        SecretVerb::Ls => {
            let secrets = client.secrets().await?;
            match format {
                Format::Json => output::json(&secrets)?,
                Format::Table => output::table(&TITLES, &secrets.iter().map(row).collect::<Vec<_>>())?,
            }
        }
        SecretVerb::Rm { names } => {
            for name in names {
                client.delete_secret(&name).await?;
                output::talk(&format!("secret {name} is removed"));
            }
        }
    }
    Ok(exit::OK)
}

/// Returns the value in a file or on standard input, without the line feed at its end.
fn value(name: &str, from_file: Option<PathBuf>) -> Result<wire::Secret, Problem> {
    let mut value = match &from_file {
        Some(path) => {
            let what = format!("read secret '{name}' from {}", path.display());
            std::fs::read_to_string(path).map_err(|error| Problem::host(&what, &error))?
        }
        None => {
            let mut input = std::io::stdin().lock();
            if input.is_terminal() {
                let next = format!("pipe it in, as in `dorm secret set {name} < FILE`, or give --from-file FILE");
                return Err(Problem::usage("the value of a secret is not read from a terminal", &next));
            }
            let mut value = String::new();
            let what = format!("read secret '{name}' from standard input");
            input.read_to_string(&mut value).map_err(|error| Problem::host(&what, &error))?;
            value
        }
    };
    if value.ends_with('\n') {
        value.pop();
    }
    Ok(wire::Secret(value))
}

fn row(secret: &wire::ProjectSecret) -> Vec<String> {
    let used_by = match secret.used_by {
        0 => "nothing".to_owned(),
        1 => "1 sandbox".to_owned(),
        count => format!("{count} sandboxes"),
    };
    vec![secret.name.clone(), shown::moment(secret.created_at), shown::moment(secret.changed_at), used_by]
}
