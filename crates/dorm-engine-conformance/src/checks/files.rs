//! Files without memory: they are read from a memory image, and a run boots from them as layers.

use dorm_agent_client::{Parents, RemoveScope};
use dorm_engine::{EngineError, Layer, RunSpec};
use dorm_lifecycle::Timestamp;
use dorm_lifecycle::{RunCondition, SavedStateId};
use dorm_storage::{Below, SavedState, SavedStateFacts, Storage};

use crate::scenario::{Guest, Image, Scenario, guest_path};

/// A storage for layers, and the layers on the image so far, the topmost first.
struct Stack {
    storage: Storage,
    layers: Vec<Layer>,
}

impl Stack {
    fn new(scenario: &Scenario) -> Self {
        let directory = scenario.directory();
        let storage = Storage::open(&directory.join("data"), &directory.join("images")).expect("a storage");
        Self { storage, layers: Vec::new() }
    }

    /// Adds the files of a memory image as the topmost layer.
    async fn add(&mut self, scenario: &Scenario, image: &Image, of: &Guest) {
        let id = SavedStateId::from_random([u8::try_from(self.layers.len()).expect("few") + 1; 20]);
        let saved_state = self.take(scenario, image, of, &id).await;
        self.layers.insert(0, Layer { id, directory: saved_state.root() });
    }

    /// Makes a saved state of the files of a memory image.
    async fn take(&self, scenario: &Scenario, image: &Image, of: &Guest, id: &SavedStateId) -> SavedState {
        let draft = self.storage.begin(id, 0).await.expect("a draft");
        let tree = draft.begin_tree(Below::default()).await.expect("a tree");
        scenario.engine().read_files(&image.directory, Box::new(tree.clone())).await.expect("read the files");
        let capabilities = scenario.engine().capabilities().clone();
        let facts = SavedStateFacts {
            engine: capabilities.name.to_owned(),
            build: capabilities.build,
            cpu: capabilities.cpu,
            image: of.spec.image.clone(),
            layer: self.layers.first().map(|layer| layer.id.clone()),
            sandbox: of.spec.run.sandbox.clone(),
            generation: of.spec.run.generation,
            parent: None,
            resources: of.spec.resources,
            taken: Timestamp::from_millis(0),
        };
        let saved_state = draft.commit_tree(facts, tree).await.expect("commit");
        self.storage.check(id).await.expect("what was written is there");
        saved_state
    }

    /// Returns the spec of a new sandbox that is based on the layers.
    fn spec(&self, scenario: &Scenario) -> RunSpec {
        RunSpec { layers: self.layers.clone(), ..scenario.spec() }
    }
}

pub(super) async fn files_of_an_image_are_there_in_a_run_that_boots_on_them(scenario: &Scenario) {
    let source = scenario.start().await;
    let mut counter = scenario.counting(&source, "kept").await;
    source.write("/root/note", "one").await;
    source.write("/etc/passwd-like", "new").await;
    source.agent.remove(&guest_path("/etc/os-release"), RemoveScope::Single).await.expect("remove a file of the image");
    source.agent.remove(&guest_path("/home"), RemoveScope::Tree).await.expect("remove a directory of the image");
    source.agent.make_directory(&guest_path("/home/deep/er"), Parents::Create, None).await.expect("make it again");
    let image = scenario.save(&source).await;
    let mut stack = Stack::new(scenario);
    stack.add(scenario, &image, &source).await;
    assert_eq!(scenario.condition(source.run()).await, Some(RunCondition::Paused), "the source has not moved");
    scenario.resume(&source).await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    source.write("/root/note", "of the source").await;
    let child = scenario.start_as(stack.spec(scenario)).await;
    assert_eq!(child.read("/root/note").await.expect("a file"), "one");
    assert_eq!(child.read("/etc/passwd-like").await.expect("a file"), "new");
    assert!(child.agent.processes().await.expect("the processes").is_empty());
    for (path, is_there) in
        [("/etc/os-release", false), ("/home/user", false), ("/home/deep/er", true), ("/etc/passwd", true)]
    {
        assert_eq!(child.agent.stat(&guest_path(path)).await.is_ok(), is_there, "{path}");
    }
    scenario.stop(source).await;
    assert_eq!(child.read("/root/note").await.expect("a file"), "one");
}

pub(super) async fn files_saved_without_memory_are_those_saved_with_it(scenario: &Scenario) {
    let source = scenario.start().await;
    let mut counter = scenario.counting(&source, "kept").await;
    source.write("/root/note", &"a line\n".repeat(3000)).await;
    source.write("/root/empty", "").await;
    source.write("/tmp/kept", "in memory").await;
    source.agent.remove(&guest_path("/etc/os-release"), RemoveScope::Single).await.expect("remove a file of the image");
    source.agent.remove(&guest_path("/home"), RemoveScope::Tree).await.expect("remove a directory of the image");
    source.agent.make_directory(&guest_path("/home/deep/er"), Parents::Create, None).await.expect("make it again");
    let files = scenario.save_files(&source).await;
    assert_eq!(scenario.condition(source.run()).await, Some(RunCondition::Paused));
    let memory = scenario.write_image(&source).await;
    let stack = Stack::new(scenario);
    let without = stack.take(scenario, &files, &source, &SavedStateId::from_random([1; 20])).await;
    let with = stack.take(scenario, &memory, &source, &SavedStateId::from_random([2; 20])).await;
    assert_eq!((&without.tree, &without.files), (&with.tree, &with.files));
    assert!(without.tree.is_some());
    scenario.resume(&source).await;
    assert_eq!(source.ask(&mut counter).await, "kept 1");
    source.write("/root/note", "later").await;
    let again = scenario.save_files(&source).await;
    scenario.resume(&source).await;
    let later = stack.take(scenario, &again, &source, &SavedStateId::from_random([3; 20])).await;
    assert_ne!(later.tree, with.tree);
    let mut stack = stack;
    stack.layers.insert(0, Layer { id: without.id.clone(), directory: without.root() });
    let child = scenario.start_as(stack.spec(scenario)).await;
    assert_eq!(child.read("/root/note").await.expect("a file"), "a line\n".repeat(3000));
    assert_eq!(source.ask(&mut counter).await, "kept 2");
}

pub(super) async fn layers_lie_on_each_other(scenario: &Scenario) {
    let mut stack = Stack::new(scenario);
    let mut guest = scenario.start().await;
    for (number, name) in ["/root/one", "/root/two", "/root/three"].into_iter().enumerate() {
        guest.write("/root/last", name).await;
        guest.write(name, "here").await;
        if number == 2 {
            guest.agent.remove(&guest_path("/root/one"), RemoveScope::Single).await.expect("remove");
        }
        let image = scenario.save_files(&guest).await;
        stack.add(scenario, &image, &guest).await;
        scenario.stop(guest).await;
        guest = scenario.start_as(stack.spec(scenario)).await;
        assert_eq!(guest.read("/root/last").await.expect("a file"), name);
    }
    for (path, is_there) in [("/root/one", false), ("/root/two", true), ("/root/three", true)] {
        assert_eq!(guest.agent.stat(&guest_path(path)).await.is_ok(), is_there, "{path}");
    }
}

pub(super) async fn a_run_on_layers_is_saved_and_restored_like_any_other(scenario: &Scenario) {
    let source = scenario.start().await;
    source.write("/root/note", "below").await;
    let image = scenario.save(&source).await;
    let mut stack = Stack::new(scenario);
    stack.add(scenario, &image, &source).await;
    scenario.stop(source).await;
    let guest = scenario.start_as(stack.spec(scenario)).await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    guest.write("/root/own", "above").await;
    let image = scenario.save(&guest).await;
    let restored = scenario.restore(&image, &guest).await;
    scenario.stop(guest).await;
    assert_eq!(restored.ask(&mut counter).await, "kept 2");
    assert_eq!(restored.read("/root/own").await.expect("a file"), "above");
    assert_eq!(restored.read("/root/note").await.expect("a file"), "below");
    // Only the files of the topmost layer are read.
    let own = Stack::new(scenario).take(scenario, &image, &restored, &SavedStateId::from_random([9; 20])).await;
    assert!(own.root().join("root/own").exists() && !own.root().join("root/note").exists());
}

pub(super) async fn files_are_not_read_out_of_what_is_no_image(scenario: &Scenario) {
    let source = scenario.start().await;
    let image = scenario.save(&source).await;
    scenario.resume(&source).await;
    refuses_each_broken_file(scenario, &image).await;
    let image = scenario.save_files(&source).await;
    refuses_each_broken_file(scenario, &image).await;
}

async fn refuses_each_broken_file(scenario: &Scenario, image: &Image) {
    let storage = Stack::new(scenario).storage;
    for (number, file) in image.files.iter().enumerate() {
        let broken = scenario.directory();
        for other in &image.files {
            std::fs::copy(image.directory.join(&other.name), broken.join(&other.name)).expect("copy");
        }
        std::fs::write(broken.join(&file.name), b"no image").expect("break a file");
        let id = SavedStateId::from_random([u8::try_from(number).expect("few") + 1; 20]);
        let draft = storage.begin(&id, 0).await.expect("a draft");
        let read = scenario
            .engine()
            .read_files(&broken, Box::new(draft.begin_tree(Below::default()).await.expect("a tree")))
            .await;
        // A file that only contains pages of memory may not be needed to read the files.
        let is_needed = !file.name.to_string_lossy().contains("pages") && file.name.as_os_str() != "memory.json";
        match read {
            Err(EngineError::Files { .. }) => {}
            Ok(_) if !is_needed => {}
            other => panic!("{} is broken, and reading answers {other:?}", file.name.display()),
        }
    }
}
