/** Who may do what: projects, API keys, secrets; and webhooks. */

import type {
  CreatedKey,
  CreateKey,
  CreateProject,
  CreateWebhook,
  Key,
  Project,
  ProjectBudgets,
  ProjectSecret,
  Webhook,
} from "./generated/types.js";
import { Pages } from "./pages.js";
import { type CallOptions, type MakeOptions, split, type Transport } from "./transport.js";

/** Options of a list. */
export interface ListOptions extends CallOptions {
  /** Size of a page, 1 to 1000. Default 100. */
  limit?: number | undefined;
}

/** The projects of the daemon. Only with a key of its own project. */
export class Projects {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a project. */
  async create(request: CreateProject, options: CallOptions = {}): Promise<Project> {
    return await this.#transport.call("createProject", {}, { body: request, ...options });
  }

  /** Lists projects. */
  list(options: ListOptions = {}): Pages<Project> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listProjects", { ...fields, after }, call);
      return { items: page.projects, next: page.next };
    });
  }

  /** Returns a project with its budgets, and what is used of them. */
  async get(project: string, options: CallOptions = {}): Promise<Project> {
    return await this.#transport.call("getProject", { project }, options);
  }

  /** Replaces the budgets of a project. */
  async setBudgets(project: string, budgets: ProjectBudgets, options: CallOptions = {}): Promise<Project> {
    return await this.#transport.call("setProjectBudgets", { project }, { body: budgets, ...options });
  }

  /** Deletes an empty project. */
  async delete(project: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("deleteProject", { project }, options);
  }
}

/** The API keys of a project. */
export class Keys {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a key. `key` of the result is shown only once. */
  async create(request: CreateKey = {}, options: MakeOptions = {}): Promise<CreatedKey> {
    return await this.#transport.call("createKey", {}, { body: request, ...options });
  }

  /** Lists keys, without the keys themselves. */
  list(options: ListOptions = {}): Pages<Key> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listKeys", { ...fields, after }, call);
      return { items: page.keys, next: page.next };
    });
  }

  /** Deletes a key by its id. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("deleteKey", { id }, options);
  }
}

/** The secrets of a project, which header rules of egress policies use. No call returns a value. */
export class Secrets {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a secret, or replaces its value: one line of printable ASCII, at most 8 KiB. */
  async set(secret: string, value: string, options: CallOptions = {}): Promise<ProjectSecret> {
    return await this.#transport.call("setSecret", { secret }, { body: { value }, ...options });
  }

  /** Lists secrets, without their values. */
  list(options: ListOptions = {}): Pages<ProjectSecret> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listSecrets", { ...fields, after }, call);
      return { items: page.secrets, next: page.next };
    });
  }

  /** Returns when a secret was set, and how many sandboxes use it. */
  async get(secret: string, options: CallOptions = {}): Promise<ProjectSecret> {
    return await this.#transport.call("getSecret", { secret }, options);
  }

  /** Deletes a secret. */
  async delete(secret: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("deleteSecret", { secret }, options);
  }
}

/** The webhooks of a project, which receive its events. */
export class Webhooks {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a webhook. `secret` of the result signs its requests, and is shown only once. */
  async create(request: CreateWebhook, options: MakeOptions = {}): Promise<Webhook> {
    return await this.#transport.call("createWebhook", {}, { body: request, ...options });
  }

  /** Lists webhooks. */
  list(options: ListOptions = {}): Pages<Webhook> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listWebhooks", { ...fields, after }, call);
      return { items: page.webhooks, next: page.next };
    });
  }

  /** Sends the events after a number again. */
  async replay(id: string, after: number, options: CallOptions = {}): Promise<Webhook> {
    return await this.#transport.call("replayWebhook", { id }, { body: { after }, ...options });
  }

  /** Deletes a webhook. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("deleteWebhook", { id }, options);
  }
}
