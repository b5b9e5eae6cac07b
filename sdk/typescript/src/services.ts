/** Services: commands that the sandbox starts again when they end. */

import type { Command } from "./exec.js";
import { commandFields } from "./exec.js";
import type { Service, ServiceEvent, StartService } from "./generated/types.js";
import { followOutput, type OutputEvent, type OutputPosition } from "./output.js";
import { Pages } from "./pages.js";
import type { OutputOptions } from "./processes.js";
import { type InsideOptions, split, type Transport } from "./transport.js";

/** Options of {@link Services.start}. */
export interface ServiceOptions extends Omit<StartService, "argv" | "shell" | "name">, InsideOptions {}

/** The services of a sandbox. */
export class Services {
  readonly #transport: Transport;
  readonly #id: string;

  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.#id = id;
  }

  /** Starts a service under a name. */
  async start(name: string, command: Command, options: ServiceOptions = {}): Promise<Service> {
    const { call, fields } = split(options);
    const body = { name, ...commandFields(command), ...fields };
    return await this.#transport.call("startService", { id: this.#id }, { body, ...call });
  }

  /** Lists the services, with those that are over. */
  async list(options: InsideOptions = {}): Promise<Service[]> {
    return (await this.#transport.call("listServices", { id: this.#id }, options)).services;
  }

  /** Returns the state of a service. */
  async get(name: string, options: InsideOptions = {}): Promise<Service> {
    return await this.#transport.call("getService", { id: this.#id, service: name }, options);
  }

  /** Stops a service: SIGTERM, and SIGKILL to what is left after `graceMs` (default 10,000). */
  async stop(name: string, options: { graceMs?: number | undefined } & InsideOptions = {}): Promise<Service> {
    const { call, fields } = split(options);
    return await this.#transport.call("stopService", { id: this.#id, service: name }, { body: fields, ...call });
  }

  /** Removes a service that is over, with its output. */
  async remove(name: string, options: InsideOptions = {}): Promise<void> {
    await this.#transport.call("removeService", { id: this.#id, service: name }, options);
  }

  /** Lists what happened to a service: starts, exits, restarts, changes of its health. */
  events(name: string, options: InsideOptions = {}): Pages<ServiceEvent> {
    return new Pages(async (after) => {
      const params = { id: this.#id, service: name, after: after === undefined ? undefined : Number(after) };
      const { events, more, next } = await this.#transport.call("listServiceEvents", params, options);
      return { items: events, next: more ? next : null };
    });
  }

  /** Yields the output of all runs of a service. With `follow: false`, only what exists now. */
  output(name: string, options: OutputOptions = {}): AsyncGenerator<OutputEvent, void, undefined> {
    const { wake, signal, follow, from } = options;
    const open = (at: OutputPosition) =>
      this.#transport.events("streamServiceOutput", { id: this.#id, service: name, ...at, follow }, { wake, signal });
    return followOutput({ open, canReopen: () => true }, { from, follow, signal });
  }
}
