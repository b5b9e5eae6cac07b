//! A coding agent whose sandbox sleeps while the model thinks. The model is a script here.

use dorm_client::{ClientError, Dormouse, Sandbox};

const BROKEN: &str = "def add(a, b):\n    return a - b\n";
const TEST: &str =
    "from calc import add\n\nassert add(2, 3) == 5, f'add(2, 3) is {add(2, 3)}'\nprint('tests passed')\n";

/// A call of a tool by the model.
enum Call {
    Write(&'static str, &'static str),
    Edit(&'static str, &'static str, &'static str),
    Exec(&'static str),
}

/// The calls of each turn.
fn turns() -> [Vec<Call>; 3] {
    [
        vec![Call::Write("/work/calc.py", BROKEN), Call::Write("/work/test_calc.py", TEST)],
        vec![Call::Exec("python3 -B test_calc.py 2>&1 | tail -1"), Call::Edit("/work/calc.py", "a - b", "a + b")],
        vec![Call::Exec("python3 -B test_calc.py")],
    ]
}

async fn run(sandbox: &Sandbox, call: &Call) -> Result<String, ClientError> {
    let files = sandbox.files();
    Ok(match call {
        Call::Write(path, content) => format!("wrote {} bytes", files.write(path, *content).await?.size_bytes),
        Call::Edit(path, old, new) => {
            let content = files.read_text(path).await?.replace(old, new);
            files.write(path, content).await?;
            format!("edited {path}")
        }
        Call::Exec(command) => sandbox.exec(*command).cwd("/work").await?.stdout_text().trim_end().to_owned(),
    })
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let sandbox = Dormouse::from_env()?.create("base").name("agent").await?;
    // It runs in every turn, and sleeps with the sandbox between them.
    let watcher = sandbox.start("while :; do date > /tmp/watched; sleep 0.1; done").await?;
    for (number, calls) in turns().iter().enumerate() {
        let awake = sandbox.resume().await?;
        println!("turn {}: {:?}, generation {}", number + 1, awake.state, awake.generation);
        for call in calls {
            println!("  {}", run(&sandbox, call).await?);
        }
        println!("  the watcher runs: {}", watcher.info().await?.exit.is_none());
        // The model thinks: the sandbox uses neither CPU nor memory meanwhile.
        sandbox.suspend().await?;
    }
    println!("asleep: {:?}", sandbox.state().await?);
    sandbox.terminate().await?;
    Ok(())
}
