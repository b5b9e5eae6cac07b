//! The description of the API is valid OpenAPI, and a client that a common generator makes of it
//! works.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::world::{KEY, Ran, World, end};

/// The Python that has `tests/generated/requirements.txt`; set-up makes it.
fn python() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dormouse/python");
    let python = std::env::var_os("DORM_TEST_PYTHON").map_or(default, PathBuf::from).join("bin/python");
    assert!(python.is_file(), "there is no {}: run `cargo xtask setup`", python.display());
    python
}

fn description() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json").canonicalize().unwrap()
}

async fn run(arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Ran {
    let mut command = Command::new(python());
    command.args(arguments).kill_on_drop(true);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    prepare(&mut command);
    end(command, b"").await
}

#[tokio::test]
async fn the_description_of_the_api_is_valid() {
    let checked = run(&["-m", "openapi_spec_validator", description().to_str().unwrap()], |_| {}).await;
    assert_eq!(checked.code, 0, "{}", &checked.text()[..checked.text().len().min(500)]);
    // It must be able to fail.
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("openapi.json");
    let text = std::fs::read_to_string(description()).unwrap();
    std::fs::write(&broken, text.replace("\"$ref\": \"#/components/schemas/Sandbox\"", "\"$ref\": \"#/nowhere\""))
        .unwrap();
    let checked = run(&["-m", "openapi_spec_validator", broken.to_str().unwrap()], |_| {}).await;
    assert_ne!(checked.code, 0, "{checked:?}");
}

#[tokio::test]
async fn a_generated_client_works() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated");
    let world = World::new().await;
    let client = world.path("generated");
    let (description, client) = (description(), client.to_str().unwrap().to_owned());
    let config = sources.join("config.yaml");
    let generated = run(
        &[
            "-m",
            "openapi_python_client",
            "generate",
            "--fail-on-warning",
            "--meta",
            "none",
            "--path",
            description.to_str().unwrap(),
            "--output-path",
            &client,
            "--config",
            config.to_str().unwrap(),
        ],
        |_| {},
    )
    .await;
    assert_eq!(generated.code, 0, "{generated:?}");
    let used = run(&[sources.join("use.py").to_str().unwrap()], |command| {
        command.env("PYTHONPATH", world.path("")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("DORM_SERVER", format!("http://{}", world.address)).env("DORM_KEY", KEY);
    })
    .await;
    assert_eq!((used.code, used.text().as_str()), (0, "used\n"), "{}", used.stderr);
}
