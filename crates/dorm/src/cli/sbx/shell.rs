//! `dorm sbx shell`.

use dorm_client::Client;

use super::screen::{self, Input};
use crate::cli::problem::Done;

/// Options of `dorm sbx shell`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShellOptions {
    /// The sandbox's id or name
    id: String,
    /// User to run as: a name, a number, or UID:GID
    #[arg(short, long)]
    user: Option<String>,
    /// Directory in the sandbox to start in. By default the user's home
    #[arg(short, long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// Resume the sandbox first if it is suspended, whatever wakes it otherwise
    #[arg(long)]
    wake: bool,
}

/// Opens the user's shell and returns its exit code.
pub(super) async fn run(client: &Client, options: ShellOptions) -> Done {
    let mut query = vec![("term", screen::kind())];
    query.extend(options.user.map(|user| ("user", user)));
    query.extend(options.workdir.map(|directory| ("cwd", directory)));
    let waking = client.waking();
    let client = if options.wake { &waking } else { client };
    screen::show(client, &options.id, &query, Input::Ours).await
}
