//! The lifecycle matrix on the fake engine, and the page that is generated from it.

use std::path::Path;

use anyhow::{Result, ensure};
use dorm_service::{Budgets, Settings};
use dorm_testing::Daemon;
use dorm_testing::matrix::{BUDGET_MIB, CELLS, Stage, page};

use crate::world::{KEY, World};

struct Fake {
    world: World,
    daemon: Daemon,
}

impl Fake {
    async fn new() -> Self {
        let budgets = Budgets { memory_bytes: Some(BUDGET_MIB << 20), ..Budgets::default() };
        let world = World::with(Settings { budgets, ..Settings::default() }).await;
        let daemon = Daemon::attach(&format!("http://{}", world.address), KEY, &world.path("data"));
        Self { world, daemon }
    }
}

impl Stage for Fake {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn counting(&self) -> Vec<String> {
        vec!["counter".to_owned()]
    }

    fn crash(&self, sandbox: &str) -> Result<()> {
        let runs = self.world.host.runs();
        let killed = runs.iter().filter(|(run, _)| run.sandbox.as_str() == sandbox);
        let killed = killed.filter(|(run, _)| self.world.host.kill(run, "its process was killed")).count();
        ensure!(killed == 1, "{killed} runs of {sandbox} were killed");
        Ok(())
    }

    async fn close(self) {
        self.daemon.end_sandboxes().await.unwrap();
        assert_eq!(self.world.host.runs(), []);
    }
}

dorm_testing::matrix_tests!(Fake::new().await);

#[test]
fn the_page_has_every_cell() {
    let engines = [("fake", "dorm::cli matrix::"), ("gvisor", "dorm::daemon matrix::")];
    let made = page(&engines);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/lifecycle-matrix.md");
    if std::env::var_os("DORM_UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "docs/reference/lifecycle-matrix.md is stale: run this test with DORM_UPDATE=1");
    assert!(CELLS.iter().all(|cell| made.contains(cell.name) && made.contains(cell.says)));
}
