//! `dorm sbx shell`, and terminals in general.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::world::{World, eventually, wait};

#[tokio::test]
async fn what_is_piped_in_is_typed() {
    let world = World::new().await;
    world.named("web").await;
    let ran = world.dorm_with(&["sbx", "shell", "web"], b"echo one two\nexit 6\n").await;
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.text().contains("one two"), "{ran:?}");
    world.dorm(&["sbx", "shell", "nobody"]).await.failed(125, "error: there is no sandbox 'nobody'");
}

#[tokio::test]
async fn a_command_can_have_a_terminal() {
    let world = World::new().await;
    world.named("web").await;
    let ran = world.dorm(&["sbx", "exec", "web", "-t", "-e", "A=b", "--", "sh", "-c", "echo $A; exit 9"]).await;
    assert_eq!(ran.code, 9, "{ran:?}");
    assert!(ran.text().contains('b'), "{ran:?}");
}

#[tokio::test]
async fn our_terminal_is_raw_meanwhile_and_as_before_afterwards() {
    let world = World::new().await;
    world.named("web").await;
    let (master, slave) = terminal();
    let is_cooked =
        |slave: &OwnedFd| tcgetattr(slave).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON);
    assert!(is_cooked(&slave));
    let mut command = world.command(&["sbx", "shell", "web"]);
    command.stdin(Stdio::from(slave.try_clone().unwrap())).stdout(Stdio::from(slave.try_clone().unwrap()));
    let child = command.spawn().unwrap();
    eventually("the terminal is raw", || async { !is_cooked(&slave) }).await;
    let mut keyboard = File::from(master.try_clone().unwrap());
    // The output must be read, or the program would not end.
    let screen = std::thread::spawn(move || {
        let (mut screen, mut shown, mut piece) = (File::from(master), Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = screen.read(&mut piece) {
            shown.extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    keyboard.write_all(b"echo from-here\nexit 5\n").unwrap();
    let ran = wait(child).await;
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(is_cooked(&slave));
    // With both ends closed, the reader ends.
    drop((slave, command, keyboard));
    assert!(screen.join().unwrap().contains("from-here"));
}

fn terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    tcsetwinsize(&master, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (master, slave)
}
