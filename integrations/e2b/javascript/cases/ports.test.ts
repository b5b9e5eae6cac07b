import { describe, expect, test } from "vitest";
import { ALL_TRAFFIC, Sandbox, SandboxNotFoundError, getSignature, isOlder } from "../support/client.ts";
import {
  create,
  eventually,
  failure,
  output,
  serve,
  shared,
  unique,
  variable,
  visit,
  visitByHost,
} from "../support/guest.ts";

const common = shared();

const ECHO = `
import http.server, json, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        told = {"path": self.path, "method": self.command, "body": body, "host": self.headers["Host"]}
        answer = json.dumps(told).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(answer))); self.end_headers()
        self.wfile.write(answer)
    do_POST = do_GET
    def log_message(self, *rest): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
`;

/** Starts a web server that tells what it was asked. */
async function serveEcho(sandbox: Sandbox): Promise<void> {
  await sandbox.files.write("/tmp/echo.py", ECHO);
  await sandbox.commands.run("python3 /tmp/echo.py", { background: true, timeoutMs: 0 });
  await eventually(async () => (await visit(sandbox, 8000)).status !== 502);
}

describe("a port", () => {
  test("has a host that names it", () => {
    const { sandboxId, sandboxDomain } = common.sandbox;
    expect(common.sandbox.getHost(8000)).toBe(`8000-${sandboxId}.${sandboxDomain}`);
  });

  test("is reached by headers and by its host over https", async () => {
    const sandbox = await create();
    await serveEcho(sandbox);
    const told = await (await visit(sandbox, 8000, "/a?b=c", { method: "POST", body: "sent" })).json();
    expect(told).toMatchObject({ path: "/a?b=c", method: "POST", body: "sent" });
    expect(JSON.parse(await visitByHost(sandbox, 8000, "/path"))).toMatchObject({
      path: "/path",
      host: sandbox.getHost(8000),
    });
  });

  test("on which nothing listens is told from a missing sandbox", async () => {
    const message = "The sandbox is running but port is not open";
    const answer = await visit(common.sandbox, 9);
    expect([answer.status, await answer.json()]).toEqual([
      502,
      { sandboxId: common.sandbox.sandboxId, message, port: 9, code: 502 },
    ]);
  });

  test.each(["", "0", "65536", "-1", "http"])("cannot be '%s'", async (port) => {
    expect((await visit(common.sandbox, port)).status).toBe(400);
  });

  test("that is private needs its token", async () => {
    const sandbox = await create({ network: { allowPublicTraffic: false } });
    await sandbox.commands.run("python3 -m http.server 8000", { background: true, timeoutMs: 0 });
    const token = sandbox.trafficAccessToken!;
    await eventually(
      async () => (await visit(sandbox, 8000, "/", { headers: { "e2b-traffic-access-token": token } })).status === 200,
    );
    expect((await visit(sandbox, 8000)).status).toBe(403);
    expect((await visit(sandbox, 8000, "/", { headers: { "e2b-traffic-access-token": "wrong" } })).status).toBe(403);
    expect(common.sandbox.trafficAccessToken).toBeUndefined();
  });

  test("can show another host to its program", async () => {
    const maskRequestHost = "${PORT}-app.example.com";
    const sandbox = await create({ network: { maskRequestHost, allowPublicTraffic: true } });
    await serveEcho(sandbox);
    expect(((await (await visit(sandbox, 8000)).json()) as { host: string }).host).toBe("8000-app.example.com");
    expect((await sandbox.getInfo()).network?.maskRequestHost).toBe(maskRequestHost);
  });

  test("answers many requests at once", async () => {
    const sandbox = await create();
    await serve(sandbox);
    const answers = await Promise.all(Array.from({ length: 30 }, () => visit(sandbox, 8000)));
    expect(new Set(answers.map((one) => one.status))).toEqual(new Set([200]));
  });
});

describe("a signed URL", () => {
  test("downloads a file", async () => {
    const path = `${await common.home()}/a note ü`;
    await common.sandbox.files.write(path, "signed");
    expect(await (await fetch(await common.sandbox.downloadUrl(path))).text()).toBe("signed");
  });

  test("uploads a file", async () => {
    const path = `${await common.home()}/note`;
    const form = new FormData();
    form.append("file", new Blob(["uploaded"]), "ignored");
    const answer = await fetch(await common.sandbox.uploadUrl(path), { method: "POST", body: form });
    expect(await answer.json()).toEqual([{ name: "note", path, type: "file" }]);
    expect(await common.sandbox.files.read(path)).toBe("uploaded");
  });

  test("is for one user, one operation and one path", async () => {
    const path = `/root/${unique()}`;
    await common.sandbox.files.write(path, "x", { user: "root" });
    const url = await common.sandbox.downloadUrl(path, { user: "root" });
    expect(await (await fetch(url)).text()).toBe("x");
    expect((await fetch(await common.sandbox.uploadUrl(path, { user: "root" }))).status).toBe(401);
    expect((await fetch(url.replace(path.slice(6), "other"))).status).toBe(401);
  });

  test("expires", async () => {
    const path = `${await common.home()}/note`;
    await common.sandbox.files.write(path, "text");
    expect((await fetch(await common.sandbox.downloadUrl(path, { useSignatureExpiration: 60 }))).status).toBe(200);
    const form = new FormData();
    form.append("file", new Blob(["x"]));
    const upload = await common.sandbox.uploadUrl(path, { useSignatureExpiration: 60 });
    expect((await fetch(upload, { method: "POST", body: form })).status).toBe(200);
    const expired = await fetch(await common.sandbox.downloadUrl(path, { useSignatureExpiration: -60 }));
    expect([expired.status, await expired.text()]).toEqual([
      401,
      '{"code":401,"message":"signature is already expired"}',
    ]);
  });

  test("is what the client computes", async () => {
    const envdAccessToken = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
    const signed = await getSignature({ path: "hello.txt", operation: "read", user: "user", envdAccessToken });
    expect(signed.signature).toBe("v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
    const later = await getSignature({
      path: "a",
      operation: "write",
      user: undefined,
      expirationInSeconds: 60,
      envdAccessToken,
    });
    expect(Math.abs(later.expiration! - Date.now() / 1000 - 60)).toBeLessThan(5);
  });
});

describe("the network", () => {
  const internet = () => variable("E2B_CASES_INTERNET");
  const reaches = async (sandbox: Sandbox) =>
    (await output(
      sandbox,
      `timeout 5 bash -c 'exec 3<>/dev/tcp/${internet()}/8000' 2> /dev/null && echo yes || echo no`,
    )) === "yes";

  test("reaches the internet unless told otherwise", async () => {
    expect(await reaches(common.sandbox)).toBe(true);
    expect(await reaches(await create({ allowInternetAccess: false }))).toBe(false);
  });

  test("denies and allows addresses", async () => {
    const denied = await create({ network: { denyOut: [internet()] } });
    expect(await reaches(denied)).toBe(false);
    expect((await denied.getInfo()).network?.denyOut).toEqual([internet()]);
    const allowed = await create({
      network: { denyOut: ({ allTraffic }) => [allTraffic], allowOut: [`${internet()}/32`] },
    });
    expect(await reaches(allowed)).toBe(true);
    expect((await allowed.getInfo()).network).toMatchObject({ denyOut: [ALL_TRAFFIC], allowOut: [`${internet()}/32`] });
  });

  test("changes while a sandbox runs, and holds after a pause", async () => {
    const sandbox = await create();
    await sandbox.updateNetwork({ denyOut: [ALL_TRAFFIC] }, { requestTimeoutMs: 30_000 });
    expect(await reaches(sandbox)).toBe(false);
    await sandbox.pause();
    await sandbox.connect();
    expect(await reaches(sandbox)).toBe(false);
    await Sandbox.updateNetwork(sandbox.sandboxId, { allowOut: [internet()], denyOut: [ALL_TRAFFIC] });
    expect(await reaches(sandbox)).toBe(true);
    await sandbox.updateNetwork({ allowInternetAccess: false });
    expect(await reaches(sandbox)).toBe(false);
    await sandbox.updateNetwork({});
    expect(await reaches(sandbox)).toBe(true);
  });

  test("takes rules for headers with secrets of the project, and no values of their own", async () => {
    const network = (value: string) => ({
      rules: { "api.example.com": [{ transform: { headers: { Authorization: value } } }] },
      allowOut: ["api.example.com"],
      denyOut: [ALL_TRAFFIC],
    });
    const sandbox = await create({ network: network("Bearer {CASES}") });
    expect((await sandbox.getInfo()).network?.allowOut).toEqual(["api.example.com"]);
    await sandbox.updateNetwork(network("{CASES}"));
    const refused = /header 'Authorization' for api.example.com has a value of its own.*dorm secret set/;
    expect((await failure(Sandbox.create({ network: network("Bearer abc") }))).message).toMatch(refused);
    expect((await failure(sandbox.updateNetwork(network("Bearer abc")))).message).toMatch(refused);
  });

  test.each(["no address", "1.2.3.4/99", "http://example.com", ""])("refuses the entry '%s'", async (entry) => {
    expect((await failure(Sandbox.create({ network: { denyOut: [entry] } }))).message).toMatch(/^400: /);
    expect((await failure(Sandbox.create({ network: { allowOut: [entry], denyOut: [ALL_TRAFFIC] } }))).message).toMatch(
      /^400: /,
    );
  });

  test("has no proxy for what leaves a sandbox, which is refused by name", async () => {
    const egressProxy = { address: "proxy.example.com:1080", username: "a", password: "b" };
    expect((await failure(Sandbox.create({ network: { egressProxy } }))).message).toContain("egressProxy");
    expect((await failure(common.sandbox.updateNetwork({ egressProxy }))).message).toContain("egressProxy");
  });

  test.runIf(!isOlder)("has no ports with HTTPS inside, which are refused by name", async () => {
    expect((await failure(Sandbox.create({ network: { httpsPorts: [8443] } }))).message).toContain("httpsPorts");
  });

  test("of an unknown sandbox cannot be changed", async () => {
    expect(await failure(Sandbox.updateNetwork(unique(), {}))).toBeInstanceOf(SandboxNotFoundError);
  });
});
