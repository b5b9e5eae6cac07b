//! `dorm webhook`: the URLs that events are sent to.

use clap::Subcommand;
use dorm_api_types as wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::Done;
use super::shown;
use crate::exit;

/// Options of `dorm webhook`.
#[derive(Debug, clap::Args)]
pub(crate) struct WebhookOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: WebhookVerb,
}

#[derive(Debug, Subcommand)]
enum WebhookVerb {
    /// Send events to a URL from now on; prints the secret that signs them, once
    Create {
        /// The URL, such as http://127.0.0.1:9000/hook
        url: String,
        /// Only events of this kind, such as suspended; may be given several times
        #[arg(long = "kind", value_name = "KIND")]
        kinds: Vec<String>,
        /// Start after this event instead of with the next one; 0 for all events on record
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
    },
    /// List webhooks
    Ls,
    /// Send all events after an event again
    Replay {
        /// The webhook's id
        id: String,
        /// The number of the event; 0 for all events on record
        #[arg(long, value_name = "NUMBER")]
        after: u64,
    },
    /// Remove webhooks
    Rm {
        /// The webhooks' ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

const TITLES: [&str; 5] = ["ID", "URL", "KINDS", "DELIVERED", "CREATED"];

/// Runs `dorm webhook`.
pub(crate) async fn run(options: WebhookOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        WebhookVerb::Create { url, kinds, after } => {
            let made = client.create_webhook(&wire::CreateWebhook { url, kinds, after }).await?;
            match format {
                Format::Json => output::json(&made)?,
                Format::Table => {
                    let secret = made.secret.clone().unwrap_or_default();
                    output::fields(&[("id", made.id), ("url", made.url), ("secret", secret)])?;
                }
            }
            Ok(exit::OK)
        }
        WebhookVerb::Ls => print(&client.webhooks().await?, format),
        WebhookVerb::Replay { id, after } => print(&[client.replay_webhook(&id, after).await?], format),
        WebhookVerb::Rm { ids } => {
            for id in ids {
                client.delete_webhook(&id).await?;
                output::talk(&format!("webhook {id} is removed"));
            }
            Ok(exit::OK)
        }
    }
}

fn print(webhooks: &[wire::Webhook], format: Format) -> Done {
    match format {
        Format::Json => output::json(&webhooks)?,
        Format::Table => output::table(&TITLES, &webhooks.iter().map(row).collect::<Vec<_>>())?,
    }
    Ok(exit::OK)
}

fn row(webhook: &wire::Webhook) -> Vec<String> {
    let kinds = if webhook.kinds.is_empty() { "all".to_owned() } else { webhook.kinds.join(", ") };
    let created = shown::moment(webhook.created_at);
    vec![webhook.id.clone(), webhook.url.clone(), kinds, webhook.delivered.to_string(), created]
}
