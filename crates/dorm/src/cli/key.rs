//! `dorm key`: API keys, in addition to the one in the daemon's data directory.

use clap::Subcommand;
use dorm_api_types as wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::Done;
use super::shown;
use crate::exit;
use crate::values;

/// Options of `dorm key`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: KeyVerb,
}

#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// Create a key and print it once: only its hash is kept
    Create {
        /// Name of the key
        name: Option<String>,
        /// Let it only read the objects, files and output of its project. It cannot list keys, or
        /// get addresses or tokens of ports
        #[arg(long, conflicts_with = "sandbox")]
        read_only: bool,
        /// Permit it to use only this sandbox, by id or name
        #[arg(long, value_name = "SANDBOX")]
        sandbox: Option<String>,
        /// Expire the key after this time, such as 30d [default: never]
        #[arg(long, value_name = "TIME", value_parser = values::duration)]
        expires: Option<f64>,
        /// Form of the key, for clients that accept only their own
        #[arg(long, value_enum, value_name = "FORM", default_value = "dormouse")]
        form: KeyForm,
    },
    /// List keys, without their secret values
    Ls,
    /// Revoke keys
    Rm {
        /// The ids of the keys
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum KeyForm {
    Dormouse,
    E2b,
}

const TITLES: [&str; 6] = ["ID", "NAME", "PROJECT", "ACCESS", "CREATED", "EXPIRES"];

/// Runs `dorm key`.
pub(crate) async fn run(options: KeyOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        KeyVerb::Create { name, read_only, sandbox, expires, form } => {
            let scope = match (read_only, &sandbox) {
                (true, _) => wire::KeyScope::ReadOnly,
                (false, Some(_)) => wire::KeyScope::Sandbox,
                (false, None) => wire::KeyScope::Full,
            };
            let form = match form {
                KeyForm::Dormouse => wire::KeyForm::Dormouse,
                KeyForm::E2b => wire::KeyForm::E2b,
            };
            let name = name.unwrap_or_default();
            let asked = wire::CreateKey { name, scope, sandbox, lifetime_secs: expires, form };
            let made = client.create_key(&asked).await?;
            match format {
                Format::Json => output::json(&made)?,
                Format::Table => {
                    let opens = opens(&made.record);
                    let project = made.record.project;
                    output::fields(&[
                        ("id", made.record.id),
                        ("project", project),
                        ("access", opens),
                        ("key", made.key),
                    ])?;
                    output::talk("the key is not shown again");
                }
            }
            Ok(exit::OK)
        }
        KeyVerb::Ls => {
            let keys = client.keys().await?;
            match format {
                Format::Json => output::json(&keys)?,
                Format::Table => output::table(&TITLES, &keys.iter().map(row).collect::<Vec<_>>())?,
            }
            Ok(exit::OK)
        }
        KeyVerb::Rm { ids } => {
            for id in ids {
                client.delete_key(&id).await?;
                output::talk(&format!("key {id} is revoked"));
            }
            Ok(exit::OK)
        }
    }
}

fn row(key: &wire::Key) -> Vec<String> {
    let expires = key.expires_at.map_or_else(|| "never".to_owned(), shown::moment);
    vec![key.id.clone(), key.name.clone(), key.project.clone(), opens(key), shown::moment(key.created_at), expires]
}

fn opens(key: &wire::Key) -> String {
    match (key.scope, &key.sandbox) {
        (wire::KeyScope::Full, _) => "everything".to_owned(),
        (wire::KeyScope::ReadOnly, _) => "everything, read-only".to_owned(),
        (wire::KeyScope::Sandbox, sandbox) => format!("sandbox {}", sandbox.as_deref().unwrap_or("?")),
    }
}
