import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { CommandExitError, GitAuthError, GitUpstreamError, InvalidArgumentError } from "../support/client.ts";
import { eventually, failure, output, shared } from "../support/guest.ts";

const common = shared();
const git = () => common.sandbox.git;
const who = { authorName: "Ann Example", authorEmail: "ann@example.com" };
const options = { envs: { GIT_PAGER: "cat" }, user: "user", cwd: "/tmp", timeoutMs: 60_000, requestTimeoutMs: 60_000 };

/** Makes a repository with one commit on its branch `main`. */
async function repository(): Promise<{ home: string; repo: string }> {
  const home = await common.home();
  const repo = `${home}/repo`;
  await git().init(repo, { initialBranch: "main", ...options });
  await common.sandbox.files.write(`${repo}/note`, "first\n");
  await git().add(repo, options);
  await git().commit(repo, "first", { ...who, ...options });
  return { home, repo };
}

/** Makes a bare repository that is the remote `origin` of another one, with its branch. */
async function withRemote(): Promise<{ home: string; repo: string; remote: string }> {
  const { home, repo } = await repository();
  const remote = `${home}/remote.git`;
  await git().init(remote, { bare: true, initialBranch: "main" });
  await git().remoteAdd(repo, "origin", remote, options);
  await git().push(repo, { remote: "origin", branch: "main", ...options });
  return { home, repo, remote };
}

const log = async (path: string) => (await output(common.sandbox, "git log --format=%s", { cwd: path })).split("\n");

describe("a repository", () => {
  test("begins empty on its branch", async () => {
    const home = await common.home();
    await git().init(`${home}/new`, { initialBranch: "trunk" });
    expect(await git().status(`${home}/new`)).toMatchObject({ currentBranch: "trunk", isClean: true, totalCount: 0 });
  });

  test("tells of its changes", async () => {
    const { repo } = await repository();
    await common.sandbox.files.write(`${repo}/note`, "changed");
    await common.sandbox.files.write(`${repo}/new`, "new");
    await common.sandbox.files.write(`${repo}/staged`, "staged");
    await git().add(repo, { files: ["staged"] });
    const status = await git().status(repo, options);
    expect(status).toMatchObject({ hasChanges: true, hasStaged: true, hasUntracked: true, hasConflicts: false });
    expect(status).toMatchObject({
      totalCount: 3,
      stagedCount: 1,
      unstagedCount: 2,
      untrackedCount: 1,
      conflictCount: 0,
    });
    await git().add(repo, { all: true });
    expect((await git().status(repo)).stagedCount).toBe(3);
  });

  test("takes a commit without changes if permitted", async () => {
    const { repo } = await repository();
    expect(await failure(git().commit(repo, "nothing", who))).toBeInstanceOf(CommandExitError);
    await git().commit(repo, "nothing", { allowEmpty: true, ...who });
    expect(await log(repo)).toEqual(["nothing", "first"]);
  });

  test("has branches", async () => {
    const { repo } = await repository();
    await git().createBranch(repo, "feature", options);
    expect((await git().branches(repo, options)).currentBranch).toBe("feature");
    await git().commit(repo, "feature", { allowEmpty: true, ...who });
    await git().checkoutBranch(repo, "main", options);
    expect(await failure(git().deleteBranch(repo, "feature"))).toBeInstanceOf(CommandExitError);
    await git().deleteBranch(repo, "feature", { force: true, ...options });
    expect((await git().branches(repo)).branches).toEqual(["main"]);
  });

  test.each([
    ["soft", true],
    ["mixed", true],
    ["hard", false],
  ] as const)("is reset in the mode %s", async (mode, kept) => {
    const { repo } = await repository();
    await common.sandbox.files.write(`${repo}/second`, "text");
    await git().add(repo);
    await git().commit(repo, "second", who);
    await git().reset(repo, { mode, target: "HEAD~1", ...options });
    expect(await log(repo)).toEqual(["first"]);
    expect(await common.sandbox.files.exists(`${repo}/second`)).toBe(kept);
  });

  test("is reset for some paths, and restored", async () => {
    const { repo } = await repository();
    await common.sandbox.files.write(`${repo}/note`, "changed");
    await git().add(repo);
    await git().reset(repo, { paths: ["note"] });
    expect((await git().status(repo)).stagedCount).toBe(0);
    await git().restore(repo, { paths: ["note"], staged: true, worktree: true, source: "HEAD", ...options });
    expect(await common.sandbox.files.read(`${repo}/note`)).toBe("first\n");
    const mode = "gentle" as "soft";
    expect(await failure(git().reset(repo, { mode }))).toBeInstanceOf(InvalidArgumentError);
  });

  test("has settings and an author", async () => {
    const { repo } = await repository();
    await git().setConfig("core.editor", "true", { scope: "local", path: repo, ...options });
    expect(await git().getConfig("core.editor", { scope: "local", path: repo, ...options })).toBe("true");
    expect(await git().getConfig("no.such", { scope: "local", path: repo })).toBeUndefined();
    await git().configureUser("Ben Example", "ben@example.com", { scope: "local", path: repo, ...options });
    await git().commit(repo, "by ben", { allowEmpty: true });
    expect(await output(common.sandbox, "git log -1 --format=%an", { cwd: repo })).toBe("Ben Example");
    expect(await failure(git().configureUser("", "x@example.com"))).toBeInstanceOf(InvalidArgumentError);
  });
});

describe("a remote", () => {
  test("carries commits between clones", async () => {
    const { home, repo, remote } = await withRemote();
    await git().clone(remote, { path: `${home}/copy`, ...options });
    await git().commit(repo, "second", { allowEmpty: true, ...who });
    await git().push(repo, { setUpstream: false });
    await git().pull(`${home}/copy`, { remote: "origin", branch: "main", ...options });
    expect(await log(`${home}/copy`)).toEqual(["second", "first"]);
    await git().clone(`file://${remote}`, { path: `${home}/shallow`, branch: "main", depth: 1 });
    expect(await log(`${home}/shallow`)).toEqual(["second"]);
  });

  test("is added, found and changed", async () => {
    const { repo, remote } = await withRemote();
    expect(await git().remoteGet(repo, "origin", options)).toBe(remote);
    expect(await git().remoteGet(repo, "other")).toBeUndefined();
    await git().remoteAdd(repo, "other", remote, { fetch: true });
    await git().remoteAdd(repo, "other", "/elsewhere", { overwrite: true });
    expect(await git().remoteGet(repo, "other")).toBe("/elsewhere");
  });

  test("that is missing is reported", async () => {
    const { repo } = await repository();
    expect(await failure(git().pull(repo))).toBeInstanceOf(GitUpstreamError);
  });

  test("with a password needs it, and does not keep it", async () => {
    const { home, remote } = await withRemote();
    await output(common.sandbox, "git config http.receivepack true", { cwd: remote });
    const source = fileURLToPath(new URL("../../python/support/git_server.py", import.meta.url));
    await common.sandbox.files.write(`${home}/git_server.py`, readFileSync(source, "utf8"));
    const find = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1])";
    const port = await output(common.sandbox, `python3 -c "${find}"`);
    const command = `python3 ${home}/git_server.py ${home} ${port} ann secret`;
    await common.sandbox.commands.run(command, { background: true, timeoutMs: 0 });
    const url = `http://127.0.0.1:${port}/remote.git`;
    const probe = `curl -s -o /dev/null -w '%{http_code}' ${url} || true`;
    await eventually(async () => (await output(common.sandbox, probe)) === "401");
    expect(await failure(git().clone(url, { path: `${home}/copy` }))).toBeInstanceOf(GitAuthError);
    const credentials = { username: "ann", password: "secret" };
    await git().clone(url, { path: `${home}/copy`, ...credentials });
    expect(await git().remoteGet(`${home}/copy`, "origin")).toBe(url);
    await git().commit(`${home}/copy`, "second", { allowEmpty: true, ...who });
    await git().push(`${home}/copy`, credentials);
    await git().pull(`${home}/copy`, credentials);
    await git().clone(url, { path: `${home}/kept`, dangerouslyStoreCredentials: true, ...credentials });
    expect(await git().remoteGet(`${home}/kept`, "origin")).toContain("ann:secret@");
    await git().dangerouslyAuthenticate({ ...credentials, host: `127.0.0.1:${port}`, protocol: "http", ...options });
    await git().clone(url, { path: `${home}/stored` });
    await output(common.sandbox, "git config --global --unset credential.helper; rm -f ~/.git-credentials");
    expect(await failure(git().push(`${home}/copy`, { password: "secret" }))).toBeInstanceOf(InvalidArgumentError);
  });
});
