//! `dorm sbx attr`.

use dorm_api_types as wire;
use dorm_client::Client;

use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::exit;
use crate::values;

const TITLES: [&str; 2] = ["NAME", "VALUE"];

/// Options of `dorm sbx attr`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttrOptions {
    /// The sandbox's id or name
    id: String,
    /// The file or directory in the sandbox
    path: String,
    /// Set this attribute, whose name begins with `user.` (with the dot)
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::pair)]
    set: Vec<(String, String)>,
    /// Remove this attribute, if the file has it
    #[arg(long, value_name = "NAME")]
    remove: Vec<String>,
}

/// Changes attributes of a file, and prints all that it has.
pub(super) async fn run(client: &Client, options: AttrOptions, format: Format) -> Done {
    let AttrOptions { id, path, set, remove } = options;
    let found = if set.is_empty() && remove.is_empty() {
        client.attributes(&id, &path).await?
    } else {
        let attribute =
            |(name, value)| wire::FileAttribute { name: wire::Text::Plain(name), value: wire::Text::Plain(value) };
        let asked = wire::SetFileAttributes {
            path: wire::Text::Plain(path),
            set: set.into_iter().map(attribute).collect(),
            remove: remove.into_iter().map(wire::Text::Plain).collect(),
        };
        client.set_attributes(&id, &asked).await?
    };
    match format {
        Format::Json => output::json(&found)?,
        Format::Table => {
            let shown = |text: &wire::Text| output::harmless(&text.to_string());
            let rows: Vec<_> = found.attributes.iter().map(|one| vec![shown(&one.name), shown(&one.value)]).collect();
            output::table(&TITLES, &rows)?;
        }
    }
    Ok(exit::OK)
}
