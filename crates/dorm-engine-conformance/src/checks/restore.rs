//! Runs that begin from an image.

use dorm_engine::EngineError;
use dorm_lifecycle::RunCondition;

use crate::story::{Image, Story};

pub(super) async fn a_restored_run_has_the_same_memory_files_and_processes(story: &Story) {
    let source = story.start().await;
    let mut counter = story.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    source.write("/root/note", "written before").await;
    let image = story.capture(&source).await;
    let restored = story.restore(&image, &source).await;
    assert_eq!(story.condition(restored.run()).await, Some(RunCondition::Running));
    let processes = restored.agent.processes().await.expect("the processes");
    let of_them: Vec<_> = processes.iter().map(|process| (process.process, process.pid, process.exit)).collect();
    assert_eq!(of_them, [(counter.process, counter.pid, None)]);
    assert_eq!(restored.ask(&mut counter).await, "kept 2");
    assert_eq!(restored.read("/root/note").await.expect("the file"), "written before");
    assert_eq!(restored.read("/run/dormouse/generation").await.expect("the generation").trim(), "2");
    // The source has not moved.
    assert_eq!(story.condition(source.run()).await, Some(RunCondition::Paused));
}

pub(super) async fn two_restores_of_one_image_diverge(story: &Story) {
    let source = story.start().await;
    let mut counter = story.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    source.write("/root/note", "before").await;
    let image = story.capture(&source).await;
    story.stop(source).await;
    let (one, other) = (story.restore_as(&image, story.spec()).await, story.restore_as(&image, story.spec()).await);
    let (mut in_one, mut in_other) = (counter, counter);
    for expected in ["kept 2", "kept 3", "kept 4"] {
        assert_eq!(one.ask(&mut in_one).await, expected);
    }
    one.write("/root/note", "of the one").await;
    assert_eq!(other.ask(&mut in_other).await, "kept 2");
    assert_eq!(other.read("/root/note").await.expect("the file"), "before");
    story.stop(one).await;
    assert_eq!(other.ask(&mut in_other).await, "kept 3");
}

pub(super) async fn restoring_only_reads_the_image(story: &Story) {
    let source = story.start().await;
    let mut counter = story.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    let image = story.capture(&source).await;
    let before = image.contents();
    story.stop(source).await;
    let restored = story.restore_as(&image, story.spec()).await;
    restored.write("/root/note", &"changed ".repeat(100_000)).await;
    assert_eq!(restored.ask(&mut counter).await, "kept 2");
    story.capture(&restored).await;
    story.go_on(&restored).await;
    story.stop(restored).await;
    assert!(image.contents() == before, "the image in {} was changed", image.directory.display());
}

pub(super) async fn five_captures_in_a_chain_lose_nothing(story: &Story) {
    let mut guest = story.start().await;
    let mut counter = story.counting(&guest, "kept").await;
    for link in 0..5 {
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", link + 1));
        guest.write(&format!("/root/link-{link}"), &link.to_string()).await;
        let image = story.capture(&guest).await;
        let next = story.restore(&image, &guest).await;
        story.stop(guest).await;
        guest = next;
    }
    assert_eq!(guest.ask(&mut counter).await, "kept 6");
    for link in 0..5 {
        assert_eq!(guest.read(&format!("/root/link-{link}")).await.expect("the file"), link.to_string());
    }
}

pub(super) async fn an_open_deleted_file_survives(story: &Story) {
    let source = story.start().await;
    let mut holding = source.answering(&story.subject.programs().holding_deleted, &[]).await;
    assert_eq!(source.ask(&mut holding).await, "line 1");
    let image = story.capture(&source).await;
    let restored = story.restore(&image, &source).await;
    assert_eq!(restored.ask(&mut holding.clone()).await, "line 2");
    story.go_on(&source).await;
    assert_eq!(source.ask(&mut holding).await, "line 2");
}

pub(super) async fn restoring_over_a_run_that_exists_is_refused(story: &Story) {
    let source = story.start().await;
    let mut counter = story.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    let image = story.capture(&source).await;
    let again = story.engine().restore(&source.spec, &image.directory).await;
    assert!(matches!(&again, Err(EngineError::Exists(run)) if run == source.run()), "{again:?}");
    story.go_on(&source).await;
    assert_eq!(source.ask(&mut counter).await, "kept 2");
}

pub(super) async fn an_image_without_one_of_its_files_is_refused(story: &Story) {
    damaged_images_are_refused(story, |file| std::fs::remove_file(file).expect("remove a file")).await;
}

pub(super) async fn an_image_with_a_cut_file_is_refused(story: &Story) {
    damaged_images_are_refused(story, |path| {
        let file = std::fs::File::options().write(true).open(path).expect("open a file");
        let length = file.metadata().expect("its length").len();
        file.set_len(length / 2).expect("cut a file");
    })
    .await;
}

/// Damages one file after the other of copies of an image. Each is refused, nothing is left of it, the engine lives.
async fn damaged_images_are_refused(story: &Story, damage: fn(&std::path::Path)) {
    let source = story.start().await;
    let mut counter = story.counting(&source, "kept").await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    let image: Image = story.capture(&source).await;
    story.stop(source).await;
    for file in &image.files {
        let copy = image.copy(story.directory());
        damage(&copy.directory.join(&file.name));
        let restored = story.engine().restore(&story.spec(), &copy.directory).await;
        assert!(restored.is_err(), "an image with a damaged {} was restored", file.name.display());
        story.nothing_is_left().await;
    }
    let restored = story.restore_as(&image, story.spec()).await;
    assert_eq!(restored.ask(&mut counter).await, "kept 2");
}
