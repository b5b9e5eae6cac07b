//! From nothing to a sandbox that sleeps and wakes.

use std::time::Duration;

use dorm_client::{ClientError, Dormouse};

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let dormouse = Dormouse::from_env()?;
    let sandbox = dormouse.create("base").name("quick-start").idle_timeout(Duration::from_secs(600)).await?;

    let output = sandbox.exec("echo hello from $(uname -s)").check().await?;
    print!("{}", output.stdout_text());

    let counter = sandbox.start("i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done").await?;
    sandbox.suspend().await?;
    println!("{:?}", sandbox.state().await?);

    // On another day, in another program: the process continues where it was.
    let sandbox = dormouse.connect("quick-start").await?;
    let woken = sandbox.resume().await?;
    println!("{:?}, restored from {:?}, generation {}", woken.state, woken.restored, woken.generation);
    println!("the counter runs: {}", counter.info().await?.exit.is_none());

    sandbox.terminate().await?;
    Ok(())
}
