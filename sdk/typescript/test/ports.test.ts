import { beforeAll, describe, expect, test } from "vitest";

import { Dormouse, InvalidArgumentError, NotFoundError, type Sandbox } from "@dormouse/sdk";

import { createSandbox, failure, unique, until } from "./support.js";

let sandbox: Sandbox;
const server = new URL(process.env["DORM_SERVER"]!);

beforeAll(async () => {
  sandbox = await createSandbox({ name: unique("ports"), portAccess: "private" });
  await sandbox.files.write("/site/index.html", "<p>hello</p>");
  await sandbox.processes.start("exec python3 -m http.server 8000 --directory /site");
  await until("the server listens", async () => (await sandbox.ports.fetch(8000, "/")).ok);
});

describe("a port", () => {
  test("answers through the daemon", async () => {
    const response = await sandbox.ports.fetch(8000, "/index.html");
    expect([response.status, await response.text()]).toEqual([200, "<p>hello</p>"]);
    expect((await sandbox.ports.fetch(8000, "/missing")).status).toBe(404);
  });

  test("gets method, headers and body of the request", async () => {
    const script = [
      "import http.server",
      "class H(http.server.BaseHTTPRequestHandler):",
      "  def do_PUT(self):",
      "    body = self.rfile.read(int(self.headers['content-length']))",
      "    self.send_response(201); self.end_headers()",
      "    self.wfile.write(b' '.join([self.headers['x-mine'].encode(), self.path.encode(), body]))",
      "http.server.HTTPServer(('127.0.0.1', 8001), H).serve_forever()",
    ].join("\n");
    await sandbox.processes.start(["python3", "-c", script]);
    const response = await until("the server listens", async () => {
      const answer = await sandbox.ports.fetch(8001, "/a?b=c", {
        method: "PUT",
        body: "body",
        headers: { "x-mine": "1" },
      });
      return answer.status === 201 && answer;
    });
    expect(await response.text()).toBe("1 /a?b=c body");
  });

  test("has an address for browsers", async () => {
    const port = await sandbox.ports.get(8000);
    expect(port.url).toBe(`http://8000-${sandbox.id}.localhost:${server.port}/`);
    expect(port).toMatchObject({ port: 8000, access: "private" });
  });

  test("that is private needs the token", async () => {
    const { endpoint } = await sandbox.ports.get(8000);
    expect((await fetch(endpoint.url, { headers: endpoint.headers })).status).toBe(200);
    const { "x-dormouse-token": _, ...without } = endpoint.headers;
    expect((await fetch(endpoint.url, { headers: without })).status).toBe(401);
  });

  test("that is public does not", async () => {
    await sandbox.update({ portRules: { 8000: { access: "public" } } });
    const { endpoint, access } = await sandbox.ports.get(8000);
    expect(access).toBe("public");
    const { "x-dormouse-token": _, ...without } = endpoint.headers;
    expect((await fetch(endpoint.url, { headers: without })).status).toBe(200);
  });

  test("without a program answers 502", async () => {
    expect((await sandbox.ports.fetch(9999, "/")).status).toBe(502);
  });

  test("has a link for a browser", async () => {
    const link = await sandbox.ports.link(8000);
    expect(link.url).toMatch(`http://8000-${sandbox.id}.localhost:${server.port}/`);
    expect(Date.parse(link.expiresAt)).toBeGreaterThan(Date.parse(sandbox.info.createdAt));
  });

  test("wakes the sandbox", async () => {
    await sandbox.suspend();
    expect((await sandbox.ports.fetch(8000, "/")).status).toBe(200);
    expect((await sandbox.refresh()).state).toBe("running");
    await sandbox.update({ wake: "never" });
    await sandbox.suspend();
    expect((await sandbox.ports.fetch(8000, "/")).status).toBeGreaterThanOrEqual(400);
    await sandbox.resume();
  });

  test("must be a port", async () => {
    await failure(sandbox.ports.get(0), InvalidArgumentError);
    await failure(sandbox.ports.get(70_000), InvalidArgumentError);
  });

  test("of a daemon elsewhere is below its domain", async () => {
    const info = { label: "80-abc", sandbox: "abc", port: 80, token: "t", access: "public" };
    const elsewhere = new Dormouse({
      server: "https://sandboxes.example.org/",
      fetch: async () => new Response(JSON.stringify({ id: "abc", state: "running", ...info })),
    });
    const port = await (await elsewhere.sandboxes.connect("abc")).ports.get(80);
    expect(port.url).toBe("https://80-abc.sandboxes.example.org/");
  });
});

describe("services", () => {
  test("are started again when they end", async () => {
    const name = unique("again");
    await sandbox.services.start(name, "echo run; exit 1", {
      restart: "on_failure",
      restartDelayMs: 1,
      maxRestarts: 2,
    });
    const service = await until("it gives up", async () => {
      const now = await sandbox.services.get(name);
      return now.state === "failed" && now;
    });
    expect(service).toMatchObject({ name, restarts: 2, maxRestarts: 2, lastExit: { exitCode: 1 } });
    const kinds = (await sandbox.services.events(name).toArray()).map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === "started")).toHaveLength(3);
    expect(kinds.at(-1)).toBe("gave_up");
    let text = "";
    for await (const event of sandbox.services.output(name, { follow: false }))
      if (event.type === "stdout") text += event.text;
    expect(text).toBe("run\nrun\nrun\n");
    await sandbox.services.remove(name);
    await failure(sandbox.services.get(name), NotFoundError);
  });

  test("have their health checked, and are stopped", async () => {
    const name = unique("healthy");
    await sandbox.services.start(name, ["python3", "-m", "http.server", "8100"], {
      health: { port: 8100, path: "/", intervalMs: 100 },
    });
    await until("it is healthy", async () => (await sandbox.services.get(name)).health === "healthy");
    expect((await sandbox.services.list()).map((it) => it.name)).toContain(name);
    expect((await sandbox.services.stop(name, { graceMs: 5000 })).state).toBe("stopped");
  });

  test("have unique names", async () => {
    const name = unique("once");
    await sandbox.services.start(name, "sleep 600");
    await expect(sandbox.services.start(name, "sleep 600")).rejects.toMatchObject({ code: "conflict" });
    await sandbox.services.stop(name, { graceMs: 0 });
    await failure(sandbox.services.start("", "true"), InvalidArgumentError);
  });
});
