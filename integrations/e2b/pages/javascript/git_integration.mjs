// Git integration. The remote repository is in the sandbox, since the page's are on GitHub.
import assert from "node:assert/strict";
import { Sandbox } from "e2b";
import { example, main } from "./pages.mjs";

const sandbox = await Sandbox.create({ timeoutMs: 600_000 });
const { git } = sandbox;
const path = "/home/user/repo";
await git.init("/home/user/remote.git", { bare: true, initialBranch: "main" });
await git.configureUser("Page", "page@example.com");
await git.init(path, { initialBranch: "main" });
await git.remoteAdd(path, "origin", "/home/user/remote.git");

example("Configure the identity", async () => {
  await git.configureUser("E2B Bot", "bot@example.com", { scope: "local", path });
  assert.equal(await git.getConfig("user.name", { scope: "local", path }), "E2B Bot");
});

example("Stage, commit and push", async () => {
  await sandbox.files.write(`${path}/README.md`, "hello");
  await git.add(path);
  await git.commit(path, "Initial commit", { authorName: "E2B Bot", authorEmail: "bot@example.com" });
  await git.push(path, { remote: "origin", branch: "main", setUpstream: true });
  assert((await git.status(path)).isClean);
});

example("Clone, shallow and by branch", async () => {
  const url = "file:///home/user/remote.git";
  await git.clone(url, { path: "/home/user/copy" });
  await git.clone(url, { path: "/home/user/shallow", branch: "main", depth: 1 });
  assert.equal(await sandbox.files.read("/home/user/shallow/README.md"), "hello");
});

example("Status and branches", async () => {
  await git.createBranch(path, "feature/new-docs");
  assert.equal((await git.branches(path)).currentBranch, "feature/new-docs");
  await git.checkoutBranch(path, "main");
  await git.deleteBranch(path, "feature/new-docs");
  const { currentBranch, ahead, behind } = await git.status(path);
  assert.deepEqual([currentBranch, ahead, behind], ["main", 0, 0]);
});

example("Pull", async () => void (await git.pull(path, { remote: "origin", branch: "main" })));

example("Remotes", async () => {
  await git.remoteAdd(path, "origin", "/home/user/remote.git", { overwrite: true });
  assert.equal(await git.remoteGet(path, "origin"), "/home/user/remote.git");
});

example("Settings", async () => {
  await git.setConfig("pull.rebase", "false");
  assert.equal(await git.getConfig("pull.rebase"), "false");
  await git.setConfig("pull.rebase", "true", { scope: "local", path });
  assert.equal(await git.getConfig("pull.rebase", { scope: "local", path }), "true");
});

example("Credentials", async () => {
  await git.dangerouslyAuthenticate({
    username: "page",
    password: "token",
    host: "git.example.com",
    protocol: "https",
  });
  assert.equal(await git.getConfig("credential.helper"), "store");
  await assert.rejects(git.clone("http://127.0.0.1:9/private.git", { username: "page", password: "token" }));
  await sandbox.kill();
});

await main();
