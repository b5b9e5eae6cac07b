/** Runs of environments, with their leases. */

import { describe, expect, test } from "vitest";

import { type EnvironmentLifecycle, GoneError, NotFoundError, type RunOptions } from "@dormouse/sdk";

import { cleanUp, dormouse, failure, unique, until } from "./support.js";

const { environments } = dormouse;

function asked(lifecycle: EnvironmentLifecycle = { snapshot: "none" }, leaseMs?: number): RunOptions & { key: string } {
  const key = unique("run");
  cleanUp(() => environments.remove(key));
  const setup = [`: ${key}`];
  return { key, image: "base", resources: { memoryBytes: 128 << 20 }, setup, lifecycle, leaseMs };
}

describe("a lease", () => {
  test("is taken, renewed and released", async () => {
    const request = asked(undefined, 60_000);
    const { lease, environment } = await environments.ensure(request);
    expect(environment.leases).toEqual([lease]);
    const renewed = await environments.renewLease(request.key, lease!.id, 3_600_000);
    expect(Date.parse(renewed.expiresAt)).toBeGreaterThan(Date.parse(lease!.expiresAt));
    expect((await environments.release(request.key, { lease: lease!.id })).leases).toEqual([]);
    expect((await environments.release(request.key, { lease: lease!.id })).leases).toEqual([]);
    await failure(environments.renewLease(request.key, lease!.id, 60_000), GoneError);
  });

  test("is not taken without a request", async () => {
    expect((await environments.ensure(asked())).lease).toBeNull();
  });
});

describe("a run", () => {
  test("has the sandbox and a lease until the end of the block", async () => {
    const request = asked();
    {
      await using run = await environments.run(request);
      expect((await run.sandbox.exec("echo works")).stdout).toBe("works\n");
      expect((await environments.get(request.key)).leases.map(({ id }) => id)).toEqual([run.lease.id]);
      expect(run.ensured.by).toBe("created");
    }
    expect(await environments.get(request.key)).toMatchObject({ leases: [], state: "ready" });
  });

  test("leaves a snapshot that the next one starts from", async () => {
    const request = asked({ snapshot: "after_run", destroyOnComplete: true });
    const first = await environments.run(request);
    await first.sandbox.files.write("/root/state", "kept");
    const ended = await first.end();
    expect(ended).toMatchObject({ sandbox: null, leases: [], snapshot: expect.any(String) });
    expect((await first.sandbox.refresh()).state).toBe("terminated");

    await using second = await environments.run(request);
    expect(second.ensured).toMatchObject({ by: "restored", restored: { snapshot: ended.snapshot } });
    expect(await second.sandbox.files.readText("/root/state")).toBe("kept");
  });

  test("that has failed leaves no snapshot", async () => {
    const run = await environments.run(asked({ snapshot: "after_run" }));
    run.fail();
    expect(await run.end()).toMatchObject({ snapshot: null, sandbox: run.sandbox.id });
  });

  test("ends once, and as long as others go on, nothing follows", async () => {
    const request = asked({ snapshot: "none", destroyOnComplete: true });
    const [one, two] = [await environments.run(request), await environments.run(request)];
    expect(two.sandbox.id).toBe(one.sandbox.id);
    expect((await one.end()).leases.map(({ id }) => id)).toEqual([two.lease.id]);
    await one.end();
    expect((await one.sandbox.refresh()).state).toBe("running");
    await two.end();
    expect((await one.sandbox.refresh()).state).toBe("terminated");
  });

  test("renews its lease in the background", async () => {
    await using run = await environments.run(asked(undefined, 6000));
    const { expiresAt } = run.lease;
    await until("it is renewed", async () => run.lease.expiresAt !== expiresAt);
    expect(run.signal.aborted).toBe(false);
    const { leases } = await environments.get(run.ensured.environment.id);
    expect(leases.map(({ id }) => id)).toEqual([run.lease.id]);
  });

  test("learns that its lease is lost", async () => {
    const request = asked(undefined, 300);
    const run = await environments.run(request);
    await environments.release(request.key, { lease: run.lease.id });
    await until("it is told", async () => run.signal.aborted);
    expect(run.signal.reason).toBeInstanceOf(GoneError);
    await run.end();
  });

  test("can be ended although its environment was removed", async () => {
    const request = asked();
    const run = await environments.run(request);
    await environments.remove(request.key);
    await failure(run.end(), NotFoundError);
  });
});
