//! `dorm image build`.

use serde_json::{Value, json};

use crate::world::{World, write};

const DOCKERFILE: &str = "FROM base\n\
    ENV GREETING=hello\n\
    WORKDIR /srv/app\n\
    COPY src/ ./src/\n\
    RUN cat src/one\n\
    COPY settings .\n\
    CMD [\"serve\", \"8000\"]\n";

async fn built(world: &World, arguments: &[&str]) -> Value {
    let arguments = [&["image", "build", "-o", "json"], arguments].concat();
    world.json(&arguments).await
}

/// For each step that leaves files: whether its files were cached.
fn cached(built: &Value) -> Vec<bool> {
    let steps = built["steps"].as_array().unwrap().iter();
    steps.filter(|step| !step["key"].is_null()).map(|step| step["cached"].as_bool().unwrap()).collect()
}

fn project(world: &World) {
    write(&world.path("project/Dockerfile"), DOCKERFILE.as_bytes());
    write(&world.path("project/src/one"), b"1");
    write(&world.path("project/src/empty"), b"");
    write(&world.path("project/settings"), b"a");
}

#[tokio::test]
async fn only_steps_that_changed_and_those_behind_them_are_run_again() {
    let world = World::new().await;
    project(&world);
    let first = built(&world, &["project", "--tag", "app"]).await;
    assert_eq!(cached(&first), [false, false, false]);
    assert_eq!(first["image"]["tags"], json!(["app"]));
    let config = &first["image"]["config"];
    assert_eq!((&config["command"], &config["directory"]), (&json!(["serve", "8000"]), &json!("/srv/app")));
    assert_eq!(config["env"], json!(["GREETING=hello"]));
    let again = built(&world, &["project", "--tag", "app"]).await;
    assert_eq!(cached(&again), [true, true, true]);
    assert_eq!(again["image"]["digest"], first["image"]["digest"]);
    write(&world.path("project/settings"), b"b");
    assert_eq!(cached(&built(&world, &["project", "--tag", "app"]).await), [true, true, false]);
    write(&world.path("project/src/two"), b"2");
    let third = built(&world, &["project", "--tag", "app"]).await;
    assert_eq!(cached(&third), [false, false, false]);
    assert_eq!(cached(&built(&world, &["project", "--no-cache"]).await), [false, false, false]);
    // No sandbox of the build is left.
    assert_eq!(world.dorm(&["sbx", "create", "web", "--image", "app"]).await.code, 0);
    let living = world.json(&["sbx", "ls", "-o", "json"]).await;
    assert_eq!(living.as_array().unwrap().len(), 1, "{living}");
}

#[tokio::test]
async fn steps_as_options_need_no_dockerfile() {
    let world = World::new().await;
    write(&world.path("context/file"), b"text");
    let line = "context --from base --run true --copy file:/srv/ --workdir /srv --env A=1 --tag mine --cmd serve";
    let first = built(&world, &line.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(cached(&first), [false, false]);
    assert_eq!(first["image"]["config"]["entrypoint"], json!(["/bin/sh", "-c", "serve"]));
    assert_eq!(world.dorm(&["sbx", "create", "web", "--image", "mine"]).await.code, 0);
}

#[tokio::test]
async fn what_cannot_be_built_is_refused_before_anything_is_run() {
    let world = World::new().await;
    project(&world);
    let build = |file: &'static str| {
        write(&world.path("project/Dockerfile"), file.as_bytes());
        world.dorm(&["image", "build", "project", "--tag", "app"])
    };
    build("FROM base\nRUN true\nEXPOSE 80\n").await.failed(2, "line 3: EXPOSE");
    build("FROM base\nRUN true\nCOPY nothing /x\n").await.failed(2, "line 3: COPY nothing /x: there is no 'nothing'");
    build("FROM base\nRUN true\nCOPY ../secret /x\n").await.failed(2, "leads out of the context");
    build("FROM no-such-image\nRUN true\n").await.failed(3, "no-such-image");
    world.dorm(&["image", "build", "project", "-f", "nowhere"]).await.failed(3, "nowhere");
    world.dorm(&["image", "build", "nowhere"]).await.failed(1, "nowhere");
    world.dorm(&["image", "build", "project", "--run", "true"]).await.failed(2, "--from");
    let snapshots = world.json(&["sbx", "checkpoint", "ls", "-o", "json"]).await;
    assert_eq!(snapshots, json!([]));
}

#[tokio::test]
async fn a_step_that_fails_is_named_and_what_is_before_it_is_kept() {
    let world = World::new().await;
    project(&world);
    write(&world.path("project/Dockerfile"), b"FROM base\nRUN true\nRUN false\n");
    world
        .dorm(&["image", "build", "project", "--tag", "app"])
        .await
        .failed(1, "line 3: RUN false: the command exited with code 1");
    write(&world.path("project/Dockerfile"), b"FROM base\nRUN true\nRUN echo mended\n");
    assert_eq!(cached(&built(&world, &["project", "--tag", "app"]).await), [true, false]);
    let living = world.json(&["sbx", "ls", "-o", "json"]).await;
    assert_eq!(living, json!([]));
}
