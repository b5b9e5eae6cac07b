//! Webhooks are replaced as a whole, listed in the order of their ids, and removed when a change
//! says so.

use std::sync::Arc;

use dorm_lifecycle::{EventKind, WebhookId};

use super::sample::{at, bytes, project};
use crate::{Change, Store, StoreError, WebhookRecord};

type Checked = Result<(), StoreError>;

fn webhook(number: u32) -> WebhookRecord {
    WebhookRecord {
        id: WebhookId::from_random(bytes(number)),
        project: project("local"),
        url: format!("http://127.0.0.1:9000/{number}"),
        secret: [7; 32],
        kinds: vec![EventKind::Suspended],
        created: at(1_000),
        delivered: 3,
    }
}

pub(super) async fn a_webhook_is_rewritten_and_removed(store: Arc<dyn Store>) -> Checked {
    let write = async |webhooks: Vec<WebhookRecord>, removed_webhooks: Vec<WebhookId>| {
        store.commit(Change { webhooks, removed_webhooks, ..Change::default() }).await.map(drop)
    };
    write(vec![webhook(2), webhook(1)], Vec::new()).await?;
    assert_eq!(store.webhooks().await?, [webhook(1), webhook(2)]);
    let further = WebhookRecord { delivered: 9, kinds: Vec::new(), ..webhook(1) };
    write(vec![further.clone()], vec![webhook(2).id, webhook(77).id]).await?;
    assert_eq!(store.webhooks().await?, [further]);
    Ok(())
}
