//! Reaching a daemon.

use std::path::PathBuf;

use anyhow::Result;
use dorm_client::{Client, Dormouse, OwnerSocket, Retries, SandboxFilter};

use crate::cases::{Cases, code_of, error_of};

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
    address: String,
    data: PathBuf,
}

crate::cases::area! {
    the_daemon_is_ready,
    the_daemon_describes_itself,
    a_wrong_key_is_refused,
    health_needs_no_key,
    the_owner_needs_no_key_over_the_socket,
    the_socket_of_a_long_path_is_reached,
    a_sandbox_that_does_not_exist_is_named_in_the_error,
    a_name_with_any_characters_stays_a_name,
    nothing_is_listed_before_something_is_created,
    an_address_without_a_daemon_is_unreachable_at_once_without_retries,
}

#[tokio::test]
async fn connections() {
    let mut cases = Cases::new("connections");
    let dormouse = cases.dormouse();
    let address = cases.place().daemon().address().to_owned();
    let data = cases.place().daemon().data().to_owned();
    let on = On { dormouse, address, data };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn the_daemon_is_ready(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    assert_eq!(client.health().await?.status, "ok");
    Ok(())
}

async fn the_daemon_describes_itself(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let info = client.info().await?;
    assert_eq!((info.engine.name.as_str(), info.project.as_str()), ("gvisor", "local"));
    Ok(())
}

async fn a_wrong_key_is_refused(on: &On) -> Result<()> {
    let On { address, .. } = on;
    let other = Dormouse::at(address, Some("wrong"), None)?;
    let error = error_of(other.client().info().await);
    assert_eq!((error.code(), error.status()), ("unauthorized", Some(401)));
    assert!(!error.next_step().is_empty());
    Ok(())
}

async fn health_needs_no_key(on: &On) -> Result<()> {
    let On { address, .. } = on;
    let other = Dormouse::at(address, None, None)?;
    assert_eq!(other.client().health().await?.status, "ok");
    assert_eq!(code_of(other.client().info().await), "unauthorized");
    Ok(())
}

async fn the_owner_needs_no_key_over_the_socket(on: &On) -> Result<()> {
    let On { data, .. } = on;
    let client = on.dormouse.client();
    let owner = Dormouse::at(&format!("unix:{}", data.join("api.sock").display()), None, None)?;
    assert_eq!(owner.client().info().await?.project, "local");
    assert!(owner.client().may_name_paths() && !client.may_name_paths());
    Ok(())
}

async fn the_socket_of_a_long_path_is_reached(on: &On) -> Result<()> {
    let On { address, data, .. } = on;
    let long = data.join("x".repeat(120));
    std::fs::create_dir(&long)?;
    std::fs::hard_link(data.join("api.sock"), long.join("api.sock"))?;
    let owner = Client::of_owner(OwnerSocket::of(&long)?, Some(address.clone()))?;
    assert_eq!(owner.health().await?.status, "ok");
    assert_eq!(owner.listens(), address.strip_prefix("http://"));
    std::fs::remove_dir_all(&long)?;
    Ok(())
}

async fn a_sandbox_that_does_not_exist_is_named_in_the_error(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let error = error_of(dormouse.connect("no-such-sandbox").await);
    assert_eq!((error.code(), error.status()), ("not_found", Some(404)));
    assert!(error.to_string().contains("no-such-sandbox"), "{error}");
    assert!(!error.next_step().is_empty() && error.is_not_found());
    Ok(())
}

async fn a_name_with_any_characters_stays_a_name(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    for name in ["a/b", "..", "", "?x=1", "ü"] {
        assert_eq!(code_of(dormouse.connect(name).await), "not_found", "{name:?}");
    }
    Ok(())
}

async fn nothing_is_listed_before_something_is_created(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    assert!(dormouse.sandboxes(&SandboxFilter::default()).await?.is_empty());
    Ok(())
}

async fn an_address_without_a_daemon_is_unreachable_at_once_without_retries(_on: &On) -> Result<()> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?;
    let nowhere = format!("http://{}", free.local_addr()?);
    drop(free);
    let client = Client::new(&nowhere, "key".to_owned(), None)?.with_retries(Retries::NONE);
    assert_eq!(code_of(Dormouse::new(client).connect("web").await), "unreachable");
    Ok(())
}
