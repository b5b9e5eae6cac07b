use bytes::Bytes;
use dorm_agent_client::{AgentError, ExitStatus, Offsets, Signal, Stdin, Target, TerminalSize, User, Variable};

use crate::support::{Sandbox, command, read_all, read_until, shell, within};

#[tokio::test]
async fn a_command_gives_its_outputs_and_its_code() {
    let sandbox = Sandbox::new().await;
    let ended = sandbox.shell("echo out; echo err >&2; exit 7").await;
    assert_eq!(ended.stdout(), "out\n");
    assert_eq!(ended.stderr, b"err\n");
    assert_eq!(ended.status, Some(ExitStatus::Code(7)));
}

#[tokio::test]
async fn all_input_of_a_process_outlives_its_host() {
    // More than a pipe has room for, and no text.
    let input: Vec<u8> = (0..200_u32 << 10).flat_map(|number| number.to_le_bytes()).collect();
    let sandbox = Sandbox::new().await;
    let (gate, copy) = (sandbox.path("gate"), sandbox.path("copy"));
    let script = format!("until [ -e {gate} ]; do sleep 0.01; done; cat >{copy}");
    let process = within(sandbox.agent.start_with_input(&shell(&script), &input, None)).await.unwrap().process;
    within(sandbox.agent.quiesce()).await.unwrap();
    let sandbox = sandbox.reconnect().await;
    std::fs::write(sandbox.host_path("gate"), "").unwrap();
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Code(0));
    assert!(std::fs::read(sandbox.host_path("copy")).unwrap() == input);
    let more = within(sandbox.agent.write_stdin(process, Bytes::from_static(b"more"))).await;
    assert!(matches!(more, Err(AgentError::InputClosed(_))), "{more:?}");
}

#[tokio::test]
async fn the_bytes_of_calls_that_write_at_the_same_time_are_not_mixed() {
    const BYTES: usize = 300_000;
    let sandbox = Sandbox::new().await;
    let (gate, copy) = (sandbox.path("gate"), sandbox.path("copy"));
    let mut spec = shell(&format!("until [ -e {gate} ]; do sleep 0.01; done; cat >{copy}"));
    spec.stdin = Stdin::Pipe;
    let process = sandbox.start(&spec).await;
    let write = |letter| {
        let agent = sandbox.agent.clone();
        tokio::spawn(async move { agent.write_stdin(process, vec![letter; BYTES].into()).await })
    };
    // All of them wait for the process, and one of their callers leaves.
    let writing: Vec<_> = b"abcd".iter().map(|letter| write(*letter)).collect();
    within(sandbox.agent.ping()).await.unwrap();
    writing[1].abort();
    std::fs::write(sandbox.host_path("gate"), "").unwrap();
    for (number, writing) in writing.into_iter().enumerate() {
        match within(writing).await {
            Ok(written) => written.unwrap(),
            Err(error) => assert!(number == 1 && error.is_cancelled()),
        }
    }
    within(sandbox.agent.close_stdin(process)).await.unwrap();
    within(sandbox.agent.wait(process)).await.unwrap();
    let mut copied = std::fs::read(sandbox.host_path("copy")).unwrap();
    let whole = copied.iter().filter(|letter| **letter != b'b').count();
    assert_eq!(whole, 3 * BYTES);
    copied.dedup();
    assert!(copied.len() <= 4, "{}", String::from_utf8_lossy(&copied[..copied.len().min(100)]));
    // A process that has ended lets none wait.
    let refused = within(write(b'e')).await.unwrap();
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn a_process_started_with_its_input_reads_to_its_end() {
    let sandbox = Sandbox::new().await;
    let run = async |spec, input: &[u8], limit| {
        let started = within(sandbox.agent.start_with_input(&spec, input, limit)).await.unwrap();
        within(read_all(within(sandbox.agent.output(started.process, Offsets::BEGINNING)).await.unwrap())).await
    };
    for input in ["", "some text\n"] {
        let ended = run(command(&["cat"]), input.as_bytes(), None).await;
        assert_eq!((ended.stdout(), ended.status), (input, Some(ExitStatus::Code(0))));
        // A command need not read it.
        assert_eq!(run(command(&["true"]), input.as_bytes(), None).await.status, Some(ExitStatus::Code(0)));
    }
    let mut on_terminal = command(&["cat"]);
    on_terminal.terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let ended = run(on_terminal, b"line\n", None).await;
    assert_eq!((ended.stdout(), ended.status), ("line\r\nline\r\n", Some(ExitStatus::Code(0))));
    let late = run(command(&["sleep", "1000"]), &[0; 100_000], Some(std::time::Duration::from_millis(50))).await;
    assert_eq!(late.status, Some(ExitStatus::Signal(9)));
}

#[tokio::test]
async fn a_process_gets_its_directory_and_variables_and_nothing_of_the_agents_descriptors() {
    let sandbox = Sandbox::new().await;
    let mut spec = shell("pwd; echo \"$GREETING $1\"; readlink /proc/self/fd/0; ls -l /proc/self/fd");
    spec.directory = Some(sandbox.path(""));
    spec.variables = vec![Variable::new("GREETING", "good day").unwrap()];
    let process = sandbox.start(&spec).await;
    let ended = read_all(within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap()).await;
    let directory = sandbox.host_path("").canonicalize().unwrap();
    let lines: Vec<&str> = ended.stdout().lines().collect();
    assert_eq!(lines[0].trim_end_matches('/'), directory.to_str().unwrap());
    assert_eq!(lines[1], "good day ");
    assert_eq!(lines[2], "/dev/null");
    let stream = std::fs::read_link(format!("/proc/{}/fd/0", sandbox.agent.pid())).unwrap();
    assert!(!ended.stdout().contains(stream.to_str().unwrap()), "{}", ended.stdout());
}

#[tokio::test]
async fn what_cannot_be_started_is_told_apart() {
    let sandbox = Sandbox::new().await;
    let start = async |arguments: &[&str]| within(sandbox.agent.start(&command(arguments))).await.unwrap_err();
    assert!(matches!(start(&["no-such-command"]).await, AgentError::CommandNotFound(_)));
    assert!(matches!(start(&["/no/such/command"]).await, AgentError::CommandNotFound(_)));
    assert!(matches!(start(&["/etc/passwd"]).await, AgentError::CannotExecute { .. }));
    assert!(matches!(start(&[]).await, AgentError::Invalid(_)));
    std::fs::write(sandbox.host_path("script"), "#!/no/interpreter\n").unwrap();
    std::fs::set_permissions(sandbox.host_path("script"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = sandbox.path("script").to_text();
    assert!(matches!(start(&[&script]).await, AgentError::CannotExecute { .. }));

    let mut spec = shell("true");
    spec.directory = Some(sandbox.path("missing"));
    assert!(matches!(within(sandbox.agent.start(&spec)).await, Err(AgentError::NotFound(_))));
    spec.directory = Some(sandbox.path("script"));
    assert!(matches!(within(sandbox.agent.start(&spec)).await, Err(AgentError::NotADirectory(_))));
    let mut spec = shell("true");
    spec.user = Some("no-such-user".parse().unwrap());
    assert!(matches!(within(sandbox.agent.start(&spec)).await, Err(AgentError::NoUser(_))));
}

#[tokio::test]
async fn a_process_can_run_as_another_user() {
    let sandbox = Sandbox::new().await;
    if !rustix::process::geteuid().is_root() {
        dorm_skip::skip("only root can become another user");
        return;
    }
    let nobody = within(sandbox.agent.account(&"nobody".parse().unwrap())).await.unwrap();
    let wanted = format!("{} {}", nobody.uid, nobody.gid);
    for user in ["nobody".to_owned(), nobody.uid.to_string(), format!("{}:{}", nobody.uid, nobody.gid)] {
        let mut spec = shell("echo $(id -u) $(id -g) $HOME");
        spec.user = Some(user.parse::<User>().unwrap());
        spec.directory = Some("/".try_into().unwrap());
        let process = sandbox.start(&spec).await;
        let ended = within(read_all(sandbox.agent.output(process, Offsets::BEGINNING).await.unwrap())).await;
        assert_eq!(ended.stdout().trim(), format!("{wanted} {}", nobody.home), "{user}");
    }
}

#[tokio::test]
async fn input_arrives_in_order_and_ends_when_closed() {
    let sandbox = Sandbox::new().await;
    let mut spec = command(&["cat"]);
    spec.stdin = Stdin::Pipe;
    let process = sandbox.start(&spec).await;
    within(sandbox.agent.write_stdin(process, Bytes::from_static(b"one "))).await.unwrap();
    within(sandbox.agent.write_stdin(process, Bytes::from_static(b"two"))).await.unwrap();
    within(sandbox.agent.close_stdin(process)).await.unwrap();
    within(sandbox.agent.close_stdin(process)).await.unwrap();
    let ended = within(read_all(sandbox.agent.output(process, Offsets::BEGINNING).await.unwrap())).await;
    assert_eq!((ended.stdout(), ended.status), ("one two", Some(ExitStatus::Code(0))));
    let late = within(sandbox.agent.write_stdin(process, Bytes::from_static(b"late"))).await;
    assert!(matches!(late, Err(AgentError::InputClosed(_))));
}

#[tokio::test]
async fn a_process_that_does_not_read_its_input_blocks_only_its_writer() {
    let sandbox = Sandbox::new().await;
    let mut spec = command(&["sleep", "1000"]);
    spec.stdin = Stdin::Pipe;
    let process = sandbox.start(&spec).await;
    let agent = sandbox.agent.clone();
    let writer = tokio::spawn(async move { agent.write_stdin(process, Bytes::from(vec![0; 4 << 20])).await });
    assert_eq!(sandbox.shell("echo alive").await.stdout(), "alive\n");
    within(sandbox.agent.signal(process, Signal::KILL, Target::Process)).await.unwrap();
    let result = within(writer).await.unwrap();
    assert!(matches!(result, Err(AgentError::InputClosed(_) | AgentError::NoProcess(_))), "{result:?}");
}

#[tokio::test]
async fn signals_reach_a_process_or_its_whole_group() {
    let sandbox = Sandbox::new().await;
    let process = sandbox.start(&shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done")).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    read_until(&mut output, "ready").await;
    within(sandbox.agent.signal(process, Signal::TERMINATE, Target::Process)).await.unwrap();
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Code(3));

    // The grandchild keeps the pipe open; the reader still sees the end of the process.
    let process = sandbox.start(&shell("sleep 1000 | cat & echo ready; wait")).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    read_until(&mut output, "ready").await;
    within(sandbox.agent.signal(process, Signal::KILL, Target::Group)).await.unwrap();
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Signal(9));
    let again = within(sandbox.agent.signal(process, Signal::KILL, Target::Process)).await;
    assert!(matches!(again, Err(AgentError::NoProcess(_))));
}

#[tokio::test]
async fn a_child_left_behind_does_not_hold_up_the_end() {
    let sandbox = Sandbox::new().await;
    let ended = sandbox.shell("sleep 1000 & echo done").await;
    assert_eq!((ended.stdout(), ended.status), ("done\n", Some(ExitStatus::Code(0))));
}

#[tokio::test]
async fn a_terminal_has_a_size_that_can_change() {
    let sandbox = Sandbox::new().await;
    let mut spec = command(&["/bin/sh"]);
    spec.terminal = Some(TerminalSize { rows: 10, columns: 20 });
    spec.variables = vec![Variable::new("PS1", "").unwrap()];
    let process = sandbox.start(&spec).await;
    let mut output = within(sandbox.agent.output(process, Offsets::BEGINNING)).await.unwrap();
    let say = async |line: &'static str| within(sandbox.agent.write_stdin(process, Bytes::from(line))).await.unwrap();
    say("tty >/dev/null && stty size | tr ' ' x\n").await;
    read_until(&mut output, "10x20").await;
    within(sandbox.agent.resize(process, 33, 44)).await.unwrap();
    say("stty size | tr ' ' x\n").await;
    read_until(&mut output, "33x44").await;
    let status = within(sandbox.agent.processes()).await.unwrap();
    assert_eq!(status[0].terminal, Some(TerminalSize { rows: 33, columns: 44 }));
    say("exit 5\n").await;
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Code(5));
    let plain = sandbox.start(&command(&["true"])).await;
    assert!(matches!(within(sandbox.agent.resize(plain, 1, 1)).await, Err(AgentError::NoTerminal(_))));
}

#[tokio::test]
async fn all_that_a_terminal_showed_comes_before_the_end() {
    let sandbox = Sandbox::new().await;
    let mut spec = shell("seq 1 20000");
    spec.terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let process = sandbox.start(&spec).await;
    let ended = within(read_all(sandbox.agent.output(process, Offsets::BEGINNING).await.unwrap())).await;
    assert_eq!(ended.status, Some(ExitStatus::Code(0)));
    assert_eq!(ended.stdout().lines().count(), 20_000);
}

#[tokio::test]
async fn end_of_file_on_a_terminal_ends_who_reads_it() {
    let sandbox = Sandbox::new().await;
    let mut spec = command(&["cat"]);
    spec.terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let process = sandbox.start(&spec).await;
    within(sandbox.agent.write_stdin(process, Bytes::from_static(b"line\n"))).await.unwrap();
    within(sandbox.agent.close_stdin(process)).await.unwrap();
    assert_eq!(within(sandbox.agent.wait(process)).await.unwrap(), ExitStatus::Code(0));
}

#[tokio::test]
async fn the_list_tells_the_living_from_the_ended_and_forgets_the_oldest() {
    let sandbox = Sandbox::new().await;
    let mut spec = command(&["sleep", "1000"]);
    spec.label = Some("mine".to_owned());
    let living = sandbox.start(&spec).await;
    let first = sandbox.start(&shell("echo hello; exit 9")).await;
    within(sandbox.agent.wait(first)).await.unwrap();
    let list = within(sandbox.agent.processes()).await.unwrap();
    assert_eq!(list.iter().map(|process| process.process).collect::<Vec<_>>(), [living, first]);
    assert_eq!((list[0].exit, list[0].label.as_deref()), (None, Some("mine")));
    assert_eq!(list[1].exit, Some(ExitStatus::Code(9)));

    let end = async |many: usize, spec| {
        for _ in 0..many {
            let process = sandbox.start(&spec).await;
            within(sandbox.agent.wait(process)).await.unwrap();
        }
    };
    end(4095, command(&["true"])).await;
    let list = within(sandbox.agent.processes()).await.unwrap();
    assert_eq!((list.len(), list[1].process), (4097, first));
    let before = sandbox.memory();
    end(1, command(&["true"])).await;
    let list = within(sandbox.agent.processes()).await.unwrap();
    assert_eq!((list.len(), list[0].process), (4097, living));
    assert!(matches!(within(sandbox.agent.wait(first)).await, Err(AgentError::NoProcess(_))));
    let forgotten = within(sandbox.agent.output(first, Offsets::BEGINNING)).await;
    assert!(matches!(forgotten, Err(AgentError::NoProcess(_))));
    // Fewer processes are remembered if their arguments are long.
    let long = "x".repeat(60_000);
    end(400, command(&["true", &long])).await;
    let list = within(sandbox.agent.processes_after(Some(living), 10_000)).await.unwrap();
    assert!((256..300).contains(&list.items.len()) || list.more, "{}", list.items.len());
    assert!(sandbox.memory() < before + (48 << 20), "{} {before}", sandbox.memory());
}

#[tokio::test]
async fn many_at_once_each_get_their_own_output() {
    let sandbox = Sandbox::new().await;
    let runs = (0..40).map(|number| {
        let sandbox = &sandbox;
        async move { (number, sandbox.shell(&format!("echo {number}; exit {number}")).await) }
    });
    for (number, ended) in within(futures_util::future::join_all(runs)).await {
        assert_eq!(ended.stdout(), format!("{number}\n"));
        assert_eq!(ended.status, Some(ExitStatus::Code(number)));
    }
}

#[tokio::test]
async fn measures_are_answered() {
    let sandbox = Sandbox::new().await;
    let metrics = within(sandbox.agent.metrics()).await.unwrap();
    assert!(metrics.memory_total_bytes > 0 && metrics.processes > 0);
    let oom_victim = within(sandbox.agent.oom_victim()).await;
    assert!(oom_victim.is_some_and(|pid| pid != sandbox.agent.pid() && pid != 1));
}
