import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import {
  AuthenticationError,
  CommandExitError,
  InvalidArgumentError,
  NotFoundError,
  SandboxError,
  TimeoutError,
} from "../support/client.ts";
import { Started, eventually, failure, output, shared } from "../support/guest.ts";

const common = shared();
const run = (command: string, opts: { [key: string]: unknown } = {}) =>
  common.sandbox.commands.run(command, { ...opts, background: false });

describe("a command", () => {
  test("returns its output and exit code", async () => {
    expect(await run("echo out; echo err >&2")).toMatchObject({ stdout: "out\n", stderr: "err\n", exitCode: 0 });
  });

  test("runs in a login shell of the user", async () => {
    const said = await output(common.sandbox, "whoami; echo $HOME; pwd; shopt -q login_shell && echo login");
    expect(said.split("\n")).toEqual(["user", "/home/user", "/home/user", "login"]);
  });

  test("can run as root", async () => {
    expect(await output(common.sandbox, "whoami", { user: "root" })).toBe("root");
  });

  test("runs where it is told", async () => {
    const home = await common.home();
    expect(await output(common.sandbox, "pwd", { cwd: home })).toBe(home);
  });

  test("has its variables", async () => {
    const envs = { A: "1", B: "two words", C: "", D: "ü\n'\"$" };
    expect((await run('printf \'%s|\' "$A" "$B" "$C" "$D"', { envs })).stdout).toBe("1|two words||ü\n'\"$|");
  });

  test.each([1, 42, 255])("that exits with %d is an error", async (code) => {
    const error = await failure(run(`echo out; echo err >&2; exit ${code}`));
    expect(error).toBeInstanceOf(CommandExitError);
    expect([error.exitCode, error.stdout, error.stderr, error.error]).toEqual([
      code,
      "out\n",
      "err\n",
      `exit status ${code}`,
    ]);
  });

  test("that does not exist is an error of the shell", async () => {
    expect((await failure(run("no-such-program"))).exitCode).toBe(127);
  });

  test("that ends by a signal says so", async () => {
    const error = await failure(run("kill -9 $$"));
    expect([error.exitCode, error.error]).toEqual([-1, "signal: killed"]);
  });

  test.each(["with spaces", "line\nline", "ünï — 漢字 😀", ""])("prints '%s' unchanged", async (text) => {
    expect((await run('printf "%s" "$TEXT"', { envs: { TEXT: text } })).stdout).toBe(text);
  });

  test("can have much output", async () => {
    const { stdout } = await run("seq 1 400000");
    expect(stdout).toBe(Array.from({ length: 400_000 }, (_, n) => `${n + 1}\n`).join(""));
  });

  test("can print a line of ten megabytes", async () => {
    expect((await run("head -c 10485760 /dev/zero | tr '\\0' x")).stdout.length).toBe(10_485_760);
  });

  test("can print what is not text", async () => {
    expect((await run("printf 'a\\377\\376b'")).stdout).toBe("a\ufffd\ufffdb");
  });

  test("can split characters between writes", async () => {
    const command = "for i in 1 2 3; do printf '\\360\\237'; sleep 0.05; printf '\\230\\200'; sleep 0.05; done";
    expect((await run(command)).stdout).toBe("😀😀😀");
  });

  test("passes on its output while it runs", async () => {
    const [out, err]: [string[], string[]] = [[], []];
    const result = await run("echo one; echo two >&2; sleep 0.2; echo three", {
      onStdout: (text: string) => void out.push(text),
      onStderr: async (text: string) => void err.push(text),
      requestTimeoutMs: 30_000,
    });
    expect([out.join(""), err.join("")]).toEqual([result.stdout, result.stderr]);
    expect(out.length).toBeGreaterThanOrEqual(2);
  });

  test("is ended when its time is over", async () => {
    const error = await failure(run("sleep 600", { timeoutMs: 1000 }));
    expect(error).toBeInstanceOf(TimeoutError);
  });

  test("has no limit of time with a timeout of zero", async () => {
    expect(await output(common.sandbox, "sleep 1; echo done", { timeoutMs: 0 })).toBe("done");
  });

  test("reads nothing unless told", async () => {
    expect(await output(common.sandbox, "cat; echo end", { stdin: false })).toBe("end");
  });

  test("can be given up", async () => {
    const given = new AbortController();
    const ended = failure(run("sleep 600", { timeoutMs: 0, signal: given.signal }));
    setTimeout(() => given.abort(), 300);
    expect(await ended).toBeInstanceOf(Error);
  });

  test("of an unknown user is refused", async () => {
    const error = await failure(run("true", { user: "nobody-here" }));
    expect(error).toBeInstanceOf(AuthenticationError);
    expect(error.message).toContain("invalid username: 'nobody-here'");
  });

  test("in a directory that does not exist is refused", async () => {
    const error = await failure(run("true", { cwd: "/no/such" }));
    expect(error).toBeInstanceOf(InvalidArgumentError);
    expect(error.message).toContain("cwd '/no/such' does not exist");
  });
});

describe("a command in the background", () => {
  test("continues until it is waited for", async () => {
    const started = await Started.run(common.sandbox, "echo begun; sleep 0.5; echo ended");
    expect((await started.handle.wait()).stdout).toBe("begun\nended\n");
    const { handle } = started;
    expect([handle.stdout, handle.stderr, handle.exitCode, handle.error]).toEqual(["begun\nended\n", "", 0, undefined]);
  });

  test("reports its failure when it is waited for", async () => {
    const started = await Started.run(common.sandbox, "echo problem >&2; exit 3");
    expect((await failure(started.handle.wait())).exitCode).toBe(3);
    expect(started.err).toBe("problem\n");
  });

  test("is listed with its settings", async () => {
    const home = await common.home();
    const started = await Started.run(common.sandbox, "sleep 600", {
      envs: { LISTED: "yes" },
      cwd: home,
      timeoutMs: 0,
    });
    const listed = (await common.sandbox.commands.list({ requestTimeoutMs: 30_000 })).find(
      (one) => one.pid === started.pid,
    );
    expect(listed).toMatchObject({
      cmd: "/bin/bash",
      args: ["-l", "-c", "sleep 600"],
      envs: { LISTED: "yes" },
      cwd: home,
    });
    started.handle.wait().catch(() => {});
    await started.handle.kill();
  });

  test("can be killed by its handle and by its id", async () => {
    for (const by of ["handle", "id"]) {
      const started = await Started.run(common.sandbox, "exec sleep 600", { timeoutMs: 0 });
      const ended = failure(started.handle.wait());
      const kill =
        by === "handle"
          ? started.handle.kill()
          : common.sandbox.commands.kill(started.pid, { requestTimeoutMs: 30_000 });
      expect(await kill).toBe(true);
      expect([(await ended).exitCode, (await ended).error]).toEqual([-1, "signal: killed"]);
      await eventually(async () => (await common.sandbox.commands.kill(started.pid)) === false);
    }
  });

  test("can be connected to", async () => {
    const started = await Started.run(common.sandbox, "read line; echo got $line; echo problem >&2; exit 5", {
      stdin: true,
      timeoutMs: 0,
    });
    started.handle.wait().catch(() => {});
    const again = await Started.connect(common.sandbox, started.pid, { timeoutMs: 60_000, requestTimeoutMs: 30_000 });
    expect(again.pid).toBe(started.pid);
    await common.sandbox.commands.sendStdin(started.pid, "input\n", { requestTimeoutMs: 30_000 });
    expect((await failure(again.handle.wait())).exitCode).toBe(5);
    expect([again.out, again.err]).toEqual(["got input\n", "problem\n"]);
  });

  test("can be read by several clients", async () => {
    const started = await Started.run(common.sandbox, "read line; seq 1000", { stdin: true, timeoutMs: 0 });
    const others = [
      await Started.connect(common.sandbox, started.pid),
      await Started.connect(common.sandbox, started.pid),
    ];
    await common.sandbox.commands.sendStdin(started.pid, "go\n");
    const results = await Promise.all([started, ...others].map((one) => one.handle.wait()));
    expect(new Set(results.map((one) => one.stdout)).size).toBe(1);
    expect(results[0]!.stdout.split("\n").length).toBe(1001);
  });

  test("continues when its client disconnects", async () => {
    const home = await common.home();
    const started = await Started.run(common.sandbox, `read line; echo $line > ${home}/note`, {
      stdin: true,
      timeoutMs: 0,
    });
    await started.handle.disconnect();
    expect((await common.sandbox.commands.list()).map((one) => one.pid)).toContain(started.pid);
    await common.sandbox.commands.sendStdin(started.pid, "later\n");
    await eventually(() => common.sandbox.files.exists(`${home}/note`));
  });

  test("reports its end to those who connect soon after", async () => {
    const started = await Started.run(common.sandbox, "exit 6");
    await failure(started.handle.wait());
    expect(
      (await failure(Started.connect(common.sandbox, started.pid).then((one) => one.handle.wait()))).exitCode,
    ).toBe(6);
  });

  test("that is unknown is refused", async () => {
    expect(await failure(Started.connect(common.sandbox, 4_000_000))).toBeInstanceOf(NotFoundError);
    expect(await common.sandbox.commands.kill(4_000_000)).toBe(false);
  });
});

describe("input", () => {
  test.each(["text", "bytes"])("can be %s", async (kind) => {
    const started = await Started.run(common.sandbox, "read line; echo got $line", { stdin: true });
    const data = kind === "text" ? "line\n" : new TextEncoder().encode("line\n");
    await common.sandbox.commands.sendStdin(started.pid, data);
    expect((await started.handle.wait()).stdout).toBe("got line\n");
  });

  test("can be sent and ended by the handle", async () => {
    const started = await Started.run(common.sandbox, "cat; echo end", { stdin: true });
    await started.handle.sendStdin("text\n", { requestTimeoutMs: 30_000 });
    await started.handle.closeStdin({ requestTimeoutMs: 30_000 });
    expect((await started.handle.wait()).stdout).toBe("text\nend\n");
  });

  test("can be ended by the id", async () => {
    const started = await Started.run(common.sandbox, "wc -c", { stdin: true });
    await common.sandbox.commands.sendStdin(started.pid, "12345");
    expect(common.sandbox.commands.supportsStdinClose).toBe(true);
    await common.sandbox.commands.closeStdin(started.pid, { requestTimeoutMs: 30_000 });
    expect((await started.handle.wait()).stdout).toBe("5\n");
  });

  test("that is not text arrives unchanged", async () => {
    const data = Uint8Array.from({ length: 10_240 }, (_, n) => n % 256);
    const started = await Started.run(common.sandbox, `head -c ${data.length} | sha256sum`, { stdin: true });
    await common.sandbox.commands.sendStdin(started.pid, data);
    const sum = createHash("sha256").update(data).digest("hex");
    expect((await started.handle.wait()).stdout.split(" ")[0]).toBe(sum);
  });

  test("for a process that takes none is refused", async () => {
    const started = await Started.run(common.sandbox, "sleep 600", { stdin: false, timeoutMs: 0 });
    started.handle.wait().catch(() => {});
    expect(await failure(common.sandbox.commands.sendStdin(started.pid, "text"))).toBeInstanceOf(SandboxError);
    await started.handle.kill();
  });

  test("for an unknown process is refused", async () => {
    expect(await failure(common.sandbox.commands.sendStdin(4_000_000, "text"))).toBeInstanceOf(NotFoundError);
    expect(await failure(common.sandbox.commands.closeStdin(4_000_000))).toBeInstanceOf(NotFoundError);
  });
});

test("commands run at the same time", async () => {
  const numbers = Array.from({ length: 12 }, (_, n) => String(n));
  const said = await Promise.all(numbers.map((n) => output(common.sandbox, `sleep 0.3; echo ${n}`)));
  expect(said).toEqual(numbers);
});
