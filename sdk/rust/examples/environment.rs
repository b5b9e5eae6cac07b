//! The sandbox of a project, whatever state it is in.

use std::time::Duration;

use dorm_client::types::{EnsureRequest, SetupStep};
use dorm_client::{ClientError, Dormouse, EnsureEvent};

fn project(key: &str) -> EnsureRequest {
    EnsureRequest {
        key: Some(key.to_owned()),
        image: Some("base".to_owned()),
        setup: vec![SetupStep::Command("echo compiling; echo done > /root/built".to_owned())],
        ..EnsureRequest::default()
    }
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let dormouse = Dormouse::from_env()?;

    let mut events = dormouse.ensure(project("thread-1")).events().await?;
    while let Some(event) = events.next().await? {
        match event {
            EnsureEvent::Line(line) => println!("  {}", line.text),
            EnsureEvent::Ensured(ensured) => println!("{:?}", ensured.info.by),
            EnsureEvent::Considered(_) | EnsureEvent::Attempt(_) => {}
        }
    }

    // The same key gets the same sandbox, and another one starts from the snapshot of the setup.
    let again = dormouse.ensure(project("thread-1")).await?;
    again.sandbox.suspend().await?;
    println!("{:?}", dormouse.ensure(project("thread-1")).await?.info.by);
    let other = dormouse.ensure(project("thread-2")).lease(Duration::from_secs(600)).await?;
    println!("{:?}, with a lease: {}", other.info.by, other.info.lease.is_some());

    for key in ["thread-1", "thread-2"] {
        dormouse.client().remove_environment(key).await?;
    }
    Ok(())
}
