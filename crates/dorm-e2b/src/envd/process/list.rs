//! Lists living processes.

use dorm_agent_client::{Agent, GuestPath, PAGE_MAX, ProcessStatus};
use dorm_service::Use;
use futures_util::StreamExt as _;

use super::super::access::Call;
use super::super::budget::{Budget, Spent};
use super::super::fault::Failed;
use super::start::OWN_VARIABLES;
use super::wire::{Config, ListResponse, ProcessInfo};

/// The most bytes of a process's variables that are read.
const VARIABLES_BYTES_MAX: usize = 256 << 10;

/// Lists the processes that were started through an API and run.
pub(super) async fn list(call: &Call) -> Result<ListResponse, Failed> {
    let (agent, _in_use) = call.agent(Use::Process).await?;
    let (mut processes, mut budget) = (Vec::new(), Budget::of_call());
    let spent = |spent: Spent| spent.refusal("the list of processes has", "end some of them");
    let mut after = None;
    loop {
        let page = agent.processes_that(after, PAGE_MAX, |status| status.exit.is_none()).await?;
        budget.charge(page.items.len(), page.bytes).map_err(spent)?;
        after = page.items.last().map(|last| last.process);
        for status in page.items {
            let info = info(&agent, status).await;
            budget.charge(0, info.config.bytes()).map_err(spent)?;
            processes.push(info);
        }
        if !page.more {
            return Ok(ListResponse { processes });
        }
    }
}

async fn info(agent: &Agent, status: ProcessStatus) -> ProcessInfo {
    let mut words = status.arguments.iter().map(|word| word.to_text());
    let cmd = words.next().unwrap_or_default();
    let args: Vec<String> = words.collect();
    let names = status.variables.iter().map(|one| one.name().to_text());
    let names: Vec<String> = names.filter(|name| !OWN_VARIABLES.contains(&name.as_str())).collect();
    let values = if names.is_empty() { Vec::new() } else { environment(agent, status.pid).await };
    let value = |name: &String| {
        let found = values.iter().find(|(found, _)| found == name);
        found.map_or_else(String::new, |(_, value)| value.clone())
    };
    let envs = names.iter().map(|name| (name.clone(), value(name)));
    let config = Config {
        cmd,
        args: (!args.is_empty()).then_some(args),
        envs: Some(envs.collect()),
        cwd: Some(status.directory.to_text()),
    };
    ProcessInfo { config, pid: status.pid, tag: status.label }
}

/// The variables that a process was started with. The agent keeps only their names, since values
/// may be secret; the kernel shows the values while the process lives.
async fn environment(agent: &Agent, pid: u32) -> Vec<(String, String)> {
    let Ok(path) = GuestPath::try_from(format!("/proc/{pid}/environ")) else { return Vec::new() };
    let length = Some(VARIABLES_BYTES_MAX as u64);
    let Ok((_, mut contents)) = agent.read_file(&path, 0, length).await else { return Vec::new() };
    let mut bytes = Vec::new();
    // A hostile agent sends more than was asked for.
    while bytes.len() < VARIABLES_BYTES_MAX {
        match contents.next().await {
            Some(Ok(piece)) => bytes.extend_from_slice(&piece),
            None => break,
            // A process that has ended has none.
            Some(Err(_)) => return Vec::new(),
        }
    }
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pair = |one: &[u8]| {
        let at = one.iter().position(|byte| *byte == b'=')?;
        let (name, value) = one.split_at(at);
        Some((text(name), text(value.get(1..)?)))
    };
    bytes.split(|byte| *byte == 0).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_of_a_process_are_separated_by_zeros() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(parse(b"A=1\0B=x=y\0C=\0broken\0"), [pair("A", "1"), pair("B", "x=y"), pair("C", "")]);
        assert_eq!(parse(b""), []);
    }
}
