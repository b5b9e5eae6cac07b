//! Builds of images: with every step to run, with none, and starting from what was built.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use dorm_testing::{Daemon, project};
use reqwest::Method;
use serde_json::{Value, json};

use super::millis;
use super::rows::Row;

const ROUNDS: usize = 4;
/// How many sandboxes of an image are created one after the other.
const IN_A_ROW: usize = 6;

/// Compares a build whose steps are all cached with one that runs them all, and creating from the
/// built image with creating from `base`.
pub(super) async fn build(daemon: &Daemon, dorm: &Path, directory: &Path) -> Result<Vec<Row>> {
    let mut kept = Row::new("build with all steps cached", 0.1).beside("all steps run");
    let mut create = Row::new("create from a built image", 1.2).beside("create from base");
    let context = directory.join("project");
    let mut images = Vec::new();
    for round in 0..3 {
        eprintln!("bench: build, round {} of 3", round + 1);
        let _ = std::fs::remove_dir_all(&context);
        // Another repository each time, so that no step is cached.
        std::fs::create_dir_all(&context)?;
        project::write(&context, &format!("{round}\n"))?;
        let began = Instant::now();
        let cold = run(daemon, dorm, &context)?;
        kept.peer.push(millis(began));
        images.extend(cold["image"]["digest"].as_str().map(str::to_owned));
        ensure!(cached(&cold) == 0, "steps of another build were reused: {}", cold["steps"]);
        let began = Instant::now();
        let warm = run(daemon, dorm, &context)?;
        kept.ours.push(millis(began));
        ensure!(cached(&warm) == 6, "steps were run again: {}", warm["steps"]);
    }
    for round in 0..ROUNDS {
        let mut both = [("bench-project", &mut create.ours), ("base", &mut create.peer)];
        if round % 2 == 1 {
            both.reverse();
        }
        for (image, times) in both {
            for turn in 0..IN_A_ROW {
                let began = Instant::now();
                let id = daemon.create(json!({ "image": image })).await?;
                let took = millis(began);
                // The first create uses up what was prepared ahead, so that both are measured
                // without it.
                if turn > 0 {
                    times.push(took);
                }
                daemon.act(&id, "terminate").await?;
            }
        }
    }
    // The images directory is shared with later runs.
    for image in images {
        daemon.request(Method::DELETE, &format!("/images/{image}")).send().await?.error_for_status()?;
    }
    Ok(vec![kept, create])
}

fn cached(built: &Value) -> usize {
    built["steps"].as_array().into_iter().flatten().filter(|step| step["cached"] == json!(true)).count()
}

fn run(daemon: &Daemon, dorm: &Path, context: &Path) -> Result<Value> {
    let mut command = Command::new(dorm);
    command.args(["image", "build", "--tag", "bench-project", "-o", "json", "--data"]).arg(daemon.data());
    let output = command.arg(context).output().context("run dorm image build")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("read what was built")
}
