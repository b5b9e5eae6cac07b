//! Kills a process with all that descend from it, also those that have left its group and session
//! and whose parents have ended.
//!
//! Descendants are found by their parent, group and session, and by a variable that each process
//! inherits. One that is left by its parents, has a session of its own and has removed the variable
//! is not found. All are stopped before the first is killed: a process that lives could start
//! another one meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The variable that tells which process started by the agent a process descends from.
pub(super) const VARIABLE: &str = "DORMOUSE_PROCESS";

/// Returns the value of the variable for the process with this handle of the agent `own`.
pub(super) fn mark(own: &str, handle: u64) -> String {
    format!("{handle}-{own}")
}

/// How often processes are looked for until all stand still.
const ROUNDS_MAX: usize = 200;
/// How long those that were stopped get to stand still.
const PAUSE: Duration = Duration::from_millis(2);
/// How often all that are found are killed.
const KILLS_MAX: usize = 5;

/// A process, as `/proc` tells it.
#[derive(Clone, Copy)]
struct Seen {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// When it started, by which it differs from a later one with the same ID.
    started: u64,
    state: u8,
    is_marked: bool,
}

/// Kills the descendants of the process with this mark, and itself if it lives with this ID.
/// Returns how many processes were killed.
pub(super) fn kill(mark: &str, root: Option<Pid>) -> Result<u32, String> {
    let mark = format!("{VARIABLE}={mark}");
    let mut killed = BTreeMap::new();
    for _ in 0..KILLS_MAX {
        let members = freeze(mark.as_bytes(), root.map(|pid| pid.as_raw_nonzero().get()));
        let new: Vec<_> = members.iter().filter(|(pid, started)| killed.get(*pid) != Some(*started)).collect();
        if new.is_empty() {
            return Ok(u32::try_from(killed.len()).unwrap_or(u32::MAX));
        }
        killed.extend(new);
        for (pid, started) in &members {
            if see(*pid, b"").is_some_and(|seen| seen.started == *started) {
                send(*pid, Signal::KILL);
            }
        }
    }
    Err(format!("they start new ones faster than those are killed; {} were killed", killed.len()))
}

/// Tells every process of a session that the size of its terminal has changed. The kernel tells the
/// group in the foreground, but gVisor's tells nobody, nor which group that is. A program that does
/// not ask for the signal does not notice it.
pub(super) fn tell_of_size(session: Pid) {
    let session = session.as_raw_nonzero().get();
    for seen in scan(b"").iter().filter(|seen| seen.session == session) {
        send(seen.pid, Signal::WINCH);
    }
}

/// Stops all processes of the tree, until none moves and no new one is found.
fn freeze(mark: &[u8], root: Option<i32>) -> BTreeMap<i32, u64> {
    let mut members = BTreeMap::new();
    for _ in 0..ROUNDS_MAX {
        let all = scan(mark);
        let found = tree(&all, root, &members);
        let mut moves = false;
        for seen in found {
            if members.insert(seen.pid, seen.started) != Some(seen.started) {
                moves = true;
                stop(&seen);
            }
            // Dying processes stop no more, but start nothing either.
            moves |= !matches!(seen.state, b'T' | b't' | b'Z' | b'X');
        }
        if !moves {
            break;
        }
        thread::sleep(PAUSE);
    }
    members
}

/// Stops a process. If another one got its ID since it was seen, that continues.
fn stop(seen: &Seen) {
    send(seen.pid, Signal::STOP);
    if see(seen.pid, b"").is_some_and(|now| now.started != seen.started) {
        send(seen.pid, Signal::CONT);
    }
}

/// Returns the living processes of the tree.
fn tree(all: &[Seen], root: Option<i32>, known: &BTreeMap<i32, u64>) -> Vec<Seen> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let mut found: BTreeMap<i32, Seen> = BTreeMap::new();
    loop {
        let is_in = |pid: i32| pid != own && pid != 1 && (found.contains_key(&pid) || root == Some(pid));
        let new: Vec<Seen> = all
            .iter()
            .filter(|seen| seen.pid != own && seen.pid != 1 && !found.contains_key(&seen.pid))
            .filter(|seen| {
                seen.is_marked
                    || known.get(&seen.pid) == Some(&seen.started)
                    || [seen.pid, seen.parent, seen.group, seen.session].into_iter().any(is_in)
            })
            .copied()
            .collect();
        if new.is_empty() {
            return found.into_values().filter(|seen| seen.state != b'Z').collect();
        }
        found.extend(new.into_iter().map(|seen| (seen.pid, seen)));
    }
}

fn send(pid: i32, signal: Signal) {
    // It may have ended.
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

fn scan(mark: &[u8]) -> Vec<Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| see(entry.ok()?.file_name().to_str()?.parse().ok()?, mark)).collect()
}

/// Reads a process; `None` if there is none.
fn see(pid: i32, mark: &[u8]) -> Option<Seen> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let is_marked = !mark.is_empty()
        && fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|variables| variables.split(|byte| *byte == 0).any(|variable| variable == mark));
    parse(pid, &stat, is_marked)
}

fn parse(pid: i32, stat: &str, is_marked: bool) -> Option<Seen> {
    // The name in parentheses may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    Some(Seen {
        pid,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        started: fields.get(19)?.parse().ok()?,
        state: *fields.first()?.as_bytes().first()?,
        is_marked,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Seen, parse, tree};

    fn one(pid: i32, parent: i32, group: i32, session: i32, is_marked: bool) -> Seen {
        Seen { pid, parent, group, session, started: 7, state: b'S', is_marked }
    }

    #[test]
    fn a_tree_has_children_groups_sessions_and_marked_processes_but_not_the_agent() {
        let all = [
            one(1, 0, 1, 1, true),
            one(10, 1, 10, 1, false),
            one(11, 10, 11, 11, false),
            one(12, 1, 11, 11, false),
            one(13, 1, 13, 13, true),
            one(14, 13, 14, 14, false),
            one(20, 1, 20, 1, false),
            one(21, 20, 20, 1, false),
        ];
        let pids = |root| tree(&all, root, &BTreeMap::new()).iter().map(|seen| seen.pid).collect::<Vec<_>>();
        assert_eq!(pids(Some(10)), [10, 11, 12, 13, 14]);
        assert_eq!(pids(None), [13, 14]);
    }

    #[test]
    fn a_name_may_contain_anything() {
        let rest = "S 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0";
        let seen = parse(9, &format!("9 (a ) b) {rest}"), false).unwrap();
        assert_eq!((seen.parent, seen.group, seen.session, seen.started, seen.state), (3, 4, 5, 99, b'S'));
        assert!(parse(9, "9 (x) S 1", false).is_none());
    }
}
