//! `dorm why`: explains the state of a sandbox and what happens next.

use dorm_api_types as wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::Done;
use super::shown;
use crate::exit;

/// Options of `dorm why`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhyOptions {
    #[command(flatten)]
    connection: Connection,
    /// The sandbox's id, or its name until it is terminated
    id: String,
}

const TITLES: [&str; 4] = ["", "BASED ON", "REASON", "AT"];

/// Prints the explanation.
pub(crate) async fn run(options: WhyOptions) -> Done {
    let client = options.connection.client()?;
    let why = client.why(&options.id).await?;
    match options.connection.output {
        Format::Json => output::json(&why)?,
        Format::Table => {
            output::write(format!("{}: {}\n", why.sandbox, output::harmless(&why.summary)).as_bytes())?;
            output::table(&TITLES, &rows(&why))?;
        }
    }
    Ok(exit::OK)
}

fn rows(why: &wire::Why) -> Vec<Vec<String>> {
    let refused: Vec<_> = why.refused.iter().cloned().collect();
    let parts = [("because", &why.because), ("refused", &refused), ("next", &why.next), ("on disk", &why.on_disk)];
    let mut rows = Vec::new();
    for (part, reasons) in parts {
        for (index, reason) in reasons.iter().enumerate() {
            let part = if index == 0 { part } else { "" };
            let at = reason.at.map_or_else(String::new, shown::moment);
            rows.push(vec![part.to_owned(), reason.signal.clone(), reason.says.clone(), at]);
        }
    }
    rows
}
