//! Runs that are restored from a memory image.

use dorm_engine::EngineError;
use dorm_lifecycle::RunCondition;

use crate::scenario::{Image, Scenario};

pub(super) async fn a_restored_run_has_the_same_memory_files_and_processes(scenario: &Scenario) {
    let source = scenario.start().await;
    let mut counter = scenario.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    source.write("/root/note", "written before").await;
    let image = scenario.save(&source).await;
    let restored = scenario.restore(&image, &source).await;
    assert_eq!(scenario.condition(restored.run()).await, Some(RunCondition::Running));
    let processes = restored.agent.processes().await.expect("the processes");
    let of_them: Vec<_> = processes.iter().map(|process| (process.process, process.pid, process.exit)).collect();
    assert_eq!(of_them, [(counter.process, counter.pid, None)]);
    assert_eq!(restored.ask(&mut counter).await, "kept 2");
    assert_eq!(restored.read("/root/note").await.expect("the file"), "written before");
    assert_eq!(restored.read("/run/dormouse/generation").await.expect("the generation").trim(), "2");
    // The source is still paused.
    assert_eq!(scenario.condition(source.run()).await, Some(RunCondition::Paused));
}

pub(super) async fn two_restores_of_one_image_diverge(scenario: &Scenario) {
    let source = scenario.start().await;
    let mut counter = scenario.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    source.write("/root/note", "before").await;
    let image = scenario.save(&source).await;
    scenario.stop(source).await;
    let (one, other) =
        (scenario.restore_as(&image, scenario.spec()).await, scenario.restore_as(&image, scenario.spec()).await);
    let (mut in_one, mut in_other) = (counter, counter);
    for expected in ["kept 2", "kept 3", "kept 4"] {
        assert_eq!(one.ask(&mut in_one).await, expected);
    }
    one.write("/root/note", "of the one").await;
    assert_eq!(other.ask(&mut in_other).await, "kept 2");
    assert_eq!(other.read("/root/note").await.expect("the file"), "before");
    scenario.stop(one).await;
    assert_eq!(other.ask(&mut in_other).await, "kept 3");
}

pub(super) async fn restoring_only_reads_the_image(scenario: &Scenario) {
    let source = scenario.start().await;
    let mut counter = scenario.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    let image = scenario.save(&source).await;
    let before = image.contents();
    scenario.stop(source).await;
    let restored = scenario.restore_as(&image, scenario.spec()).await;
    restored.write("/root/note", &"changed ".repeat(100_000)).await;
    assert_eq!(restored.ask(&mut counter).await, "kept 2");
    scenario.save(&restored).await;
    scenario.resume(&restored).await;
    scenario.stop(restored).await;
    assert!(image.contents() == before, "the image in {} was changed", image.directory.display());
}

pub(super) async fn five_saves_in_a_chain_lose_nothing(scenario: &Scenario) {
    let mut guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    for link in 0..5 {
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", link + 1));
        guest.write(&format!("/root/link-{link}"), &link.to_string()).await;
        let image = scenario.save(&guest).await;
        let next = scenario.restore(&image, &guest).await;
        scenario.stop(guest).await;
        guest = next;
    }
    assert_eq!(guest.ask(&mut counter).await, "kept 6");
    for link in 0..5 {
        assert_eq!(guest.read(&format!("/root/link-{link}")).await.expect("the file"), link.to_string());
    }
}

pub(super) async fn an_open_deleted_file_survives(scenario: &Scenario) {
    let source = scenario.start().await;
    let mut holding = source.answering(&scenario.subject.programs().holding_deleted, &[]).await;
    assert_eq!(source.ask(&mut holding).await, "line 1");
    let image = scenario.save(&source).await;
    let restored = scenario.restore(&image, &source).await;
    assert_eq!(restored.ask(&mut holding.clone()).await, "line 2");
    scenario.resume(&source).await;
    assert_eq!(source.ask(&mut holding).await, "line 2");
}

pub(super) async fn restoring_over_a_run_that_exists_is_refused(scenario: &Scenario) {
    let source = scenario.start().await;
    let mut counter = scenario.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    let image = scenario.save(&source).await;
    let again = scenario.engine().restore(&source.spec, &image.directory).await;
    assert!(matches!(&again, Err(EngineError::Exists(run)) if run == source.run()), "{again:?}");
    scenario.resume(&source).await;
    assert_eq!(source.ask(&mut counter).await, "kept 2");
}

pub(super) async fn an_image_without_one_of_its_files_is_refused(scenario: &Scenario) {
    damaged_images_are_refused(scenario, |file| std::fs::remove_file(file).expect("remove a file")).await;
}

pub(super) async fn an_image_with_a_cut_file_is_refused(scenario: &Scenario) {
    damaged_images_are_refused(scenario, |path| {
        let file = std::fs::File::options().write(true).open(path).expect("open a file");
        let length = file.metadata().expect("its length").len();
        file.set_len(length / 2).expect("cut a file");
    })
    .await;
}

/// Makes copies of an image, each with another file damaged. The engine refuses each copy, leaves
/// nothing of the attempt behind, and still works.
async fn damaged_images_are_refused(scenario: &Scenario, damage: fn(&std::path::Path)) {
    let source = scenario.start().await;
    let mut counter = scenario.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    let image: Image = scenario.save(&source).await;
    scenario.stop(source).await;
    for file in &image.files {
        let copy = image.copy(scenario.directory());
        damage(&copy.directory.join(&file.name));
        let restored = scenario.engine().restore(&scenario.spec(), &copy.directory).await;
        assert!(restored.is_err(), "an image with a damaged {} was restored", file.name.display());
        scenario.nothing_is_left().await;
    }
    let restored = scenario.restore_as(&image, scenario.spec()).await;
    assert_eq!(restored.ask(&mut counter).await, "kept 2");
}
