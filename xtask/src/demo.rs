//! `cargo xtask demo`: takes one real sandbox through every state and checks that its memory is
//! intact.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use dorm_testing::{Daemon, until};

const PORT: u16 = 8000;
const PATIENCE: Duration = Duration::from_secs(60);
/// More CPU than the release of the guest's memory takes, and less than the guest does in a second.
const RELEASE_MS: f64 = 50.0;

struct Row {
    step: &'static str,
    state: String,
    kept: String,
    took: Duration,
}

struct Demo {
    daemon: Daemon,
    rows: Vec<Row>,
}

/// Runs the demo with the built `dorm` and the images in `images`.
pub(crate) async fn run(dorm: &Path, images: &Path) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("dormouse-demo-{}", std::process::id()));
    let log = std::env::temp_dir().join("dormouse-demo.log");
    let started = Instant::now();
    let daemon = Daemon::start(dorm, &directory, images, &log, &[])?;
    eprintln!("demo: its own daemon runs at {} (log: {})", daemon.address(), log.display());
    let mut demo = Demo { daemon, rows: Vec::new() };
    let lived = demo.live().await;
    demo.print();
    let ended = demo.daemon.end().await;
    lived.context("the demo found an error")?;
    ended.context("cannot clean up the demo")?;
    println!("All checks passed. The demo took {:.1} s.", started.elapsed().as_secs_f64());
    Ok(())
}

impl Demo {
    async fn live(&mut self) -> Result<()> {
        let created = Instant::now();
        let sandbox = self.daemon.post("/sandboxes", json!({ "name": "demo", "image": "base" })).await?;
        let id = text(&sandbox, "id")?;
        self.row("create from image 'base'", &sandbox, "files of the image", created);
        let first = self.start_guest(&id).await?;
        self.suspend_and_resume(&id, &first).await?;
        let snapshot = self.snapshot(&id).await?;
        let left = self.diverge(&snapshot, &first).await?;
        self.clone_running(&left, &snapshot).await?;
        self.timeouts().await
    }

    async fn start_guest(&mut self, id: &str) -> Result<Value> {
        let began = Instant::now();
        self.daemon.write(id, "/root/guest.py", include_bytes!("demo/guest.py").to_vec()).await?;
        let process = json!({ "argv": ["python3", "/root/guest.py"] });
        self.daemon.post(&format!("/sandboxes/{id}/processes"), process).await?;
        let daemon = &self.daemon;
        until(PATIENCE, "the guest's server answers", || async move { Ok(daemon.visit(id, PORT, "/").await.is_ok()) })
            .await?;
        let first = self.guest(id).await?;
        let view = self.daemon.get(&format!("/sandboxes/{id}")).await?;
        self.row("start counter, server, job", &view, "counts, port 8000, deleted file, job", began);
        Ok(first)
    }

    async fn guest(&self, id: &str) -> Result<Value> {
        serde_json::from_str(&self.daemon.visit(id, PORT, "/").await?).context("the guest's answer")
    }

    /// Resumes once from parked, once from evicted.
    async fn suspend_and_resume(&mut self, id: &str, first: &Value) -> Result<()> {
        let mut before = first.clone();
        for evict in [false, true] {
            let began = Instant::now();
            let view = self.daemon.post(&format!("/sandboxes/{id}/suspend"), json!({})).await?;
            ensure!(view["state"] == "suspended", "after suspend it is {}", view["state"]);
            self.row("suspend", &view, "memory, processes, files on disk", began);
            let (from, to) = (self.cpu(id).await?, {
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.cpu(id).await?
            });
            // A parked sandbox releases its memory to its image, once, without running the guest.
            let used_ms = (to - from) * 1000.0;
            ensure!(used_ms < RELEASE_MS, "suspended, it used {used_ms:.0} ms of CPU in a second");
            self.row("suspended for a second", &view, &format!("CPU used: {used_ms:.0} ms"), began);
            if evict {
                let began = Instant::now();
                let view = self.daemon.post(&format!("/sandboxes/{id}/evict"), json!({})).await?;
                ensure!(view["residence"] == "evicted", "after eviction it is {}", view["residence"]);
                let usage = self.daemon.get(&format!("/sandboxes/{id}/usage")).await?;
                ensure!(usage["processes"] == 0, "evicted, it has {} processes", usage["processes"]);
                self.row("evict", &view, "only on disk; processes: 0", began);
            }
            let began = Instant::now();
            let view = self.daemon.post(&format!("/sandboxes/{id}/resume"), json!({})).await?;
            let after = self.guest(id).await?;
            same_guest(&before, &after)?;
            let step = if evict { "resume from disk" } else { "resume from parked" };
            self.row(step, &view, &kept(&before, &after), began);
            before = after;
        }
        Ok(())
    }

    async fn cpu(&self, id: &str) -> Result<f64> {
        let usage = self.daemon.get(&format!("/sandboxes/{id}/usage")).await?;
        usage["cpu_secs"].as_f64().context("cpu_secs")
    }

    async fn snapshot(&mut self, id: &str) -> Result<String> {
        let began = Instant::now();
        let snapshot = self.daemon.post(&format!("/sandboxes/{id}/checkpoint"), json!({ "kind": "memory" })).await?;
        let view = self.daemon.get(&format!("/sandboxes/{id}")).await?;
        ensure!(view["state"] == "running", "after a snapshot the source is {}", view["state"]);
        self.row("memory snapshot", &view, "source continues", began);
        let began = Instant::now();
        let view = self.daemon.post(&format!("/sandboxes/{id}/terminate"), json!({})).await?;
        self.row("terminate the source", &view, "only the snapshot", began);
        text(&snapshot, "id")
    }

    async fn diverge(&mut self, snapshot: &str, first: &Value) -> Result<String> {
        let mut ids = Vec::new();
        for name in ["left", "right"] {
            let began = Instant::now();
            let view = self.daemon.post("/sandboxes", json!({ "name": name, "snapshot": snapshot })).await?;
            let id = text(&view, "id")?;
            let guest = self.guest(&id).await?;
            same_guest(first, &guest)?;
            self.row("start from the snapshot", &view, &kept(first, &guest), began);
            self.daemon.visit(&id, PORT, &format!("/note/{name}")).await?;
            ids.push(id);
        }
        for (id, name) in ids.iter().zip(["left", "right"]) {
            let guest = self.guest(id).await?;
            ensure!(guest["notes"] == json!([name]), "{name} knows {}", guest["notes"]);
        }
        Ok(ids.swap_remove(0))
    }

    async fn clone_running(&mut self, left: &str, snapshot: &str) -> Result<()> {
        let began = Instant::now();
        let source = self.guest(left).await?;
        let answer = self.daemon.post(&format!("/sandboxes/{left}/clone"), json!({ "name": "copy" })).await?;
        let clone = &answer["sandbox"];
        let guest = self.guest(&text(clone, "id")?).await?;
        same_guest(&source, &guest)?;
        ensure!(guest["notes"] == json!(["left"]), "the clone knows {}", guest["notes"]);
        ensure!(answer["snapshot"]["id"] != *snapshot, "a clone makes a snapshot of its own");
        self.row("clone a running one", clone, &kept(&source, &guest), began);
        Ok(())
    }

    async fn timeouts(&mut self) -> Result<()> {
        for (step, name, state) in
            [("time out, ephemeral", None, "terminated"), ("time out, named", Some("sleeper"), "suspended")]
        {
            let began = Instant::now();
            let asked = json!({ "name": name, "image": "base", "timeout_secs": 1 });
            let id = text(&self.daemon.post("/sandboxes", asked).await?, "id")?;
            let (daemon, path) = (&self.daemon, format!("/sandboxes/{id}"));
            until(PATIENCE, step, || {
                let path = path.clone();
                async move { Ok(daemon.get(&path).await?["state"] == state) }
            })
            .await?;
            let view = self.daemon.get(&path).await?;
            let kept = if name.is_some() { "memory, processes, files on disk" } else { "nothing, as asked" };
            self.row(step, &view, kept, began);
        }
        Ok(())
    }

    fn row(&mut self, step: &'static str, view: &Value, kept: &str, began: Instant) {
        let took = began.elapsed();
        let residence = view["residence"].as_str().filter(|word| matches!(*word, "parked" | "evicted"));
        let state = view["state"].as_str().unwrap_or("?");
        let state = residence.map_or_else(|| state.to_owned(), |residence| format!("{state} ({residence})"));
        eprintln!("demo: {step}: {state}, {} ms", took.as_millis());
        self.rows.push(Row { step, state, kept: kept.to_owned(), took });
    }

    fn print(&self) {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED).set_header(["step", "state", "kept", "ms"]);
        for row in &self.rows {
            table.add_row([row.step.to_owned(), row.state.clone(), row.kept.clone(), row.took.as_millis().to_string()]);
        }
        println!("{table}");
    }
}

fn text(value: &Value, field: &str) -> Result<String> {
    value[field].as_str().map(str::to_owned).with_context(|| format!("no {field} in {value}"))
}

/// Checks for the same process, its memory, its deleted file and its job, and a counter that
/// continued.
fn same_guest(before: &Value, after: &Value) -> Result<()> {
    for field in ["pid", "secret", "deleted_file"] {
        ensure!(before[field] == after[field], "{field} was {}, is {}", before[field], after[field]);
    }
    ensure!(after["job"] == true, "the background job has ended");
    let (was, is) = (before["count"].as_u64(), after["count"].as_u64());
    if is < was || is.is_none() {
        bail!("the counter was at {was:?} and is at {is:?}");
    }
    Ok(())
}

fn kept(before: &Value, after: &Value) -> String {
    format!("pid {}, count {} → {}, port, deleted file, job", after["pid"], before["count"], after["count"])
}
