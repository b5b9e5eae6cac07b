// Commands: running, streaming, in the background; and the interactive terminal.
import assert from "node:assert/strict";
import { CommandExitError, Sandbox } from "e2b";
import { example, main, until } from "./pages.mjs";

function withSandbox(title, run) {
  example(title, async () => {
    const sandbox = await Sandbox.create();
    await run(sandbox);
    await sandbox.kill();
  });
}

/** Opens a terminal; `said()` returns what it has shown. */
async function open(sandbox) {
  let text = "";
  const onData = (data) => (text += Buffer.from(data).toString());
  const shell = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData });
  shell.wait().catch(() => {});
  return { shell, said: () => text, type: (line) => sandbox.pty.sendInput(shell.pid, Buffer.from(line)) };
}

withSandbox("Run a command", async (sandbox) => {
  const result = await sandbox.commands.run("ls -l /");
  assert.equal(result.exitCode, 0);
  assert(result.stdout.includes("etc"));
});

withSandbox("A command that fails", async (sandbox) => {
  await assert.rejects(
    sandbox.commands.run("exit 1"),
    (error) => error instanceof CommandExitError && error.exitCode === 1,
  );
});

withSandbox("Stream output", async (sandbox) => {
  let [out, err] = ["", ""];
  await sandbox.commands.run("echo hello; sleep 1; echo world; echo problem >&2", {
    onStdout: (data) => (out += data),
    onStderr: (data) => (err += data),
  });
  assert.deepEqual([out, err], ["hello\nworld\n", "problem\n"]);
});

withSandbox("Run in the background, and kill", async (sandbox) => {
  let out = "";
  const onStdout = (data) => (out += data);
  const command = await sandbox.commands.run("echo hello; sleep 10; echo world", { background: true, onStdout });
  command.wait().catch(() => {});
  await until(() => out === "hello\n");
  assert(await command.kill());
});

withSandbox("Send input", async (sandbox) => {
  const command = await sandbox.commands.run("read name; echo hello $name", { background: true, stdin: true });
  await sandbox.commands.sendStdin(command.pid, "page\n");
  assert.equal((await command.wait()).stdout, "hello page\n");
});

withSandbox("Interactive terminal: create, send, resize", async (sandbox) => {
  const { shell, said, type } = await open(sandbox);
  await type("echo $((40 + 2))\n");
  await until(() => said().includes("42") && said().endsWith("$ "));
  await sandbox.pty.resize(shell.pid, { cols: 100, rows: 30 });
  await type("stty size\n");
  await until(() => said().includes("30 100"));
});

withSandbox("Interactive terminal: disconnect and reconnect", async (sandbox) => {
  const { shell, type } = await open(sandbox);
  await shell.disconnect();
  let text = "";
  const same = await sandbox.pty.connect(shell.pid, { onData: (data) => (text += Buffer.from(data).toString()) });
  await type("echo $((40 + 2)); exit\n");
  await same.wait();
  assert(text.includes("42"));
});

withSandbox("Interactive terminal: kill", async (sandbox) => {
  const { shell } = await open(sandbox);
  assert(await sandbox.pty.kill(shell.pid));
  await until(async () => !(await sandbox.pty.kill(shell.pid)));
});

await main();
