//! Commands, processes and files.

use dorm_client::{ClientError, CommandEvent, Dormouse, Position};

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let sandbox = Dormouse::from_env()?.create("base").name("commands").await?;

    // A string is a line for the shell, an array is a program with its arguments.
    let sorted = sandbox.exec(["sort"]).stdin("pear\napple\n").await?;
    println!("{:?} {:?}", sorted.stdout_text(), sorted.exit_code());

    let mut events = sandbox.exec("echo out; echo err >&2; exit 3").stream().await?;
    while let Some(event) = events.next().await? {
        if let CommandEvent::Exited(status) = event {
            println!("exited with {:?}", status.exit_code);
        }
    }

    // A process in the background, whose output is read up to a position and from there on.
    let process = sandbox.start("read name; echo hello $name; sleep 600").stdin().label("greeter").await?;
    process.write("world\n").await?;
    let mut output = process.output(Position::default()).await?;
    if let Some(CommandEvent::Stdout(chunk)) = output.next().await? {
        print!("{}", String::from_utf8_lossy(&chunk.bytes));
    }
    let position = output.position();
    sandbox.suspend().await?;
    sandbox.resume().await?;
    process.kill().await?;
    println!("{:?}", process.output(position).await?.collect().await?.status.signal);

    let files = sandbox.files();
    files.write("/work/notes.txt", "one\ntwo\n").await?;
    files.append("/work/notes.txt", "three\n").await?;
    println!("{:?}", files.read_text("/work/notes.txt").await?);
    println!("{:?}", files.read_range("/work/notes.txt", 4..7).await?);

    sandbox.terminate().await?;
    Ok(())
}
