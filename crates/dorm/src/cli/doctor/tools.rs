//! Checks of the programs that the daemon starts.

use std::process::Command;

use super::Check;

pub(super) fn checks() -> Vec<Check> {
    vec![nft(), shaping(), mkfs()]
}

fn nft() -> Check {
    const NAME: &str = "nft";
    let version = match said("nft", &["--version"]) {
        Ok(version) => version,
        Err(error) => return Check::fail(NAME, error, "install nftables, which keeps sandboxes off private networks"),
    };
    match said("nft", &["list", "tables"]) {
        Ok(_) => Check::ok(NAME, version),
        Err(error) => {
            Check::fail(NAME, format!("{version}, but it cannot query the kernel: {error}"), "load nf_tables")
        }
    }
}

fn shaping() -> Check {
    match dorm_net::probe_shaping() {
        Ok(()) => Check::ok("traffic shaping", "the scheduler tbf works"),
        Err(error) => Check::warn(
            "traffic shaping",
            format!("{error}; traffic above a sandbox's rate limit is dropped instead of delayed"),
            "load the module sch_tbf",
        ),
    }
}

fn mkfs() -> Check {
    match said("mkfs.ext4", &["-V"]) {
        Ok(version) => Check::ok("mkfs.ext4", version),
        Err(error) => Check::fail("mkfs.ext4", error, "install e2fsprogs, which formats the disks of sandboxes"),
    }
}

/// Returns the first line that a program prints.
fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "not installed".to_owned(),
        _ => format!("cannot be executed: {error}"),
    })?;
    let all = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&all);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
    if output.status.success() { Ok(line) } else { Err(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_said_to_be_missing() {
        assert_eq!(said("dormouse-no-such-program", &[]), Err("not installed".to_owned()));
        assert_eq!(said("echo", &["", "two words"]), Ok("two words".to_owned()));
    }
}
