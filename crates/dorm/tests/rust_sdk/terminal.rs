//! Terminals.

use anyhow::Result;
use bytes::Bytes;
use dorm_client::Sandbox;
use dorm_client::types::TerminalSize;
use dorm_client::{Terminal, TerminalEvent};

use crate::cases::{Cases, code_of};

/// Reads what is shown until it ends with this text.
async fn shown(terminal: &mut Terminal, end: &str) -> Result<String> {
    let mut text = String::new();
    while !text.ends_with(end) {
        if let TerminalEvent::Output(bytes) = terminal.output.next().await? {
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    Ok(text)
}

/// Reads all that is shown, and the exit code.
async fn whole(mut terminal: Terminal) -> Result<(String, Option<i32>)> {
    let mut text = String::new();
    loop {
        match terminal.output.next().await? {
            TerminalEvent::Output(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
            TerminalEvent::Exited(status) => return Ok((text, status.exit_code)),
            TerminalEvent::Started(_) | TerminalEvent::Lost(_) => {}
        }
    }
}

/// The daemon of the cases, and what they share.
struct On {
    sandbox: Sandbox,
}

crate::cases::area! {
    a_command_in_a_terminal_is_shown_to_its_end,
    what_is_typed_is_read,
    a_terminal_has_the_size_that_was_asked_for_and_changes_it,
    directory_user_and_kind_are_set,
    end_of_input_ends_a_program_that_reads,
    a_terminal_is_left_and_attached_to_again,
    a_process_that_does_not_exist_cannot_be_attached_to,
}

#[tokio::test]
async fn terminals() {
    let mut cases = Cases::new("terminals");
    let sandbox = cases.dormouse().create("base").await.unwrap();
    let on = On { sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_command_in_a_terminal_is_shown_to_its_end(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let terminal = sandbox.terminal().command("tty && exit 3").open().await?;
    let (text, code) = whole(terminal).await?;
    assert!(text.starts_with("/dev/pts/"), "{text}");
    assert_eq!(code, Some(3));
    Ok(())
}

async fn what_is_typed_is_read(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let mut terminal = sandbox.terminal().command("read line; echo $line | tr a-z A-Z").open().await?;
    terminal.input.write(Bytes::from_static(b"quiet\n")).await;
    let (text, _) = whole(terminal).await?;
    assert!(text.ends_with("QUIET\r\n"), "{text}");
    Ok(())
}

async fn a_terminal_has_the_size_that_was_asked_for_and_changes_it(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let command = "stty size; read line; stty size";
    let mut terminal = sandbox.terminal().command(command).size(33, 99).open().await?;
    shown(&mut terminal, "33 99\r\n").await?;
    terminal.input.resize(TerminalSize { rows: 11, cols: 22 }).await;
    terminal.input.write(Bytes::from_static(b"\n")).await;
    let (text, _) = whole(terminal).await?;
    assert!(text.ends_with("11 22\r\n"), "{text}");
    Ok(())
}

async fn directory_user_and_kind_are_set(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let terminal = sandbox.terminal().command("pwd; id -u; echo $TERM").cwd("/usr").user("1000").term("vt100");
    assert_eq!(whole(terminal.open().await?).await?.0, "/usr\r\n1000\r\nvt100\r\n");
    Ok(())
}

async fn end_of_input_ends_a_program_that_reads(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let mut terminal = sandbox.terminal().command("cat; echo over").open().await?;
    terminal.input.end().await;
    assert!(whole(terminal).await?.0.ends_with("over\r\n"));
    Ok(())
}

async fn a_terminal_is_left_and_attached_to_again(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let mut terminal = sandbox.terminal().command("echo one; read line; echo two").open().await?;
    let TerminalEvent::Started(process) = terminal.output.next().await? else { panic!("not started") };
    shown(&mut terminal, "one\r\n").await?;
    drop(terminal);
    let mut again = sandbox.terminal().attach(process, 0).open().await?;
    shown(&mut again, "one\r\n").await?;
    again.input.write(Bytes::from_static(b"\n")).await;
    assert!(whole(again).await?.0.ends_with("two\r\n"));
    Ok(())
}

async fn a_process_that_does_not_exist_cannot_be_attached_to(on: &On) -> Result<()> {
    let On { sandbox } = on;
    assert_eq!(code_of(sandbox.terminal().attach(1_000_000, 0).open().await), "not_found");
    Ok(())
}
