/** Builds of images, from a Dockerfile or from steps. */

import type { Build, BuildContext, BuildLogLine, CreateBuild } from "./generated/types.js";
import { Pages } from "./pages.js";
import { type CallOptions, data, type MakeOptions, split, type Transport } from "./transport.js";

/** How long one request of a wait lasts. HTTP clients give up on a silent response after some minutes. */
const WAIT_MS_MAX = 60_000;

/** The builds of a project. */
export class Builds {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Starts a build. {@link wait} waits for its end. */
  async create(request: CreateBuild, options: MakeOptions = {}): Promise<Build> {
    return await this.#transport.call("createBuild", {}, { body: request, ...options });
  }

  /** Lists builds, newest first. */
  list(options: { limit?: number | undefined } & CallOptions = {}): Pages<Build> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listBuilds", { ...fields, after }, call);
      return { items: page.builds, next: page.next };
    });
  }

  /** Returns a build. With `waitMs`, waits that long for its end, at most 600,000. */
  async get(build: string, options: { waitMs?: number | undefined } & CallOptions = {}): Promise<Build> {
    const { call, fields } = split(options);
    return await this.#transport.call("getBuild", { build, ...fields }, call);
  }

  /** Waits for the end of a build, and returns it. A failed build is a result: see its `state` and `failure`. */
  async wait(build: string, options: CallOptions = {}): Promise<Build> {
    for (;;) {
      const now = await this.get(build, { waitMs: WAIT_MS_MAX, ...options });
      if (now.state !== "reserved" && now.state !== "queued" && now.state !== "running") return now;
    }
  }

  /** Cancels a build. */
  async cancel(build: string, options: CallOptions = {}): Promise<Build> {
    return await this.#transport.call("cancelBuild", { build }, options);
  }

  /** Yields the lines of the log of a build, to its end. */
  async *logs(
    build: string,
    options: { offset?: number | undefined } & CallOptions = {},
  ): AsyncGenerator<BuildLogLine, void, undefined> {
    const { call, fields } = split(options);
    for await (const event of this.#transport.events("getBuildLog", { build, ...fields }, call)) {
      if (event.kind === "line") yield data<BuildLogLine>(event);
    }
  }

  /** Returns an uploaded context by its hash. */
  async context(hash: string, options: CallOptions = {}): Promise<BuildContext> {
    return await this.#transport.call("getBuildContext", { hash }, options);
  }

  /** Uploads the files that a build copies from, as a tar archive. Its `hash` is the `context` of {@link create}. */
  async uploadContext(archive: Uint8Array, options: CallOptions = {}): Promise<BuildContext> {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", archive as BufferSource));
    const hash = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return await this.#transport.call("uploadBuildContext", { hash }, { body: archive as BodyInit, ...options });
  }
}
