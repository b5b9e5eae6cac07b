/** The client of a daemon. */

import { Keys, Projects, Secrets, Webhooks } from "./access.js";
import { Builds } from "./builds.js";
import { readAll, toText } from "./bytes.js";
import { Environments } from "./environments.js";
import { DormouseError } from "./errors.js";
import { EventLog } from "./events.js";
import type { Authority, Diff, DiffOrder, Health, Info, TreeNode } from "./generated/types.js";
import { Images } from "./images.js";
import { Maintenance } from "./maintenance.js";
import { OperationLog } from "./operations.js";
import { Pools } from "./pools.js";
import { Sandboxes } from "./sandboxes.js";
import { Snapshots } from "./snapshots.js";
import { Templates } from "./templates.js";
import { type CallOptions, split, Transport } from "./transport.js";
import { Volumes } from "./volumes.js";

/** Options of a client. */
export interface DormouseOptions {
  /** Address of the daemon. Default: the environment variable `DORM_SERVER`, otherwise `http://127.0.0.1:7070`. */
  server?: string | undefined;
  /** API key. Default: the environment variable `DORM_KEY`. */
  apiKey?: string | undefined;
  /** Project of all requests, if the key may choose it. Default: the project of the key. */
  project?: string | undefined;
  /** How often a request that failed is repeated, if that is safe. Default 3. */
  maxRetries?: number | undefined;
  /** Sends requests in place of the global `fetch`. */
  fetch?: typeof fetch | undefined;
}

const DEFAULT_SERVER = "http://127.0.0.1:7070";
const DEFAULT_RETRIES = 3;

/**
 * A client of a Dormouse daemon.
 *
 * ```ts
 * const dormouse = new Dormouse();
 * await using sandbox = await dormouse.sandboxes.create({ image: "base" });
 * console.log((await sandbox.exec("uname -a")).stdout);
 * ```
 */
export class Dormouse {
  /** Sandboxes. */
  readonly sandboxes: Sandboxes;
  /** Environments: sandboxes that are found, restored or set up by a key. */
  readonly environments: Environments;
  /** Snapshots, from which any number of sandboxes can be created. */
  readonly snapshots: Snapshots;
  /** Images, from which sandboxes boot. */
  readonly images: Images;
  /** Builds of images. */
  readonly builds: Builds;
  /** Templates: named images or snapshots with settings. */
  readonly templates: Templates;
  /** Volumes: storage that outlives sandboxes. */
  readonly volumes: Volumes;
  /** Pools of sandboxes that were made in advance. */
  readonly pools: Pools;
  /** What happened. */
  readonly events: EventLog;
  /** Commands in progress, and ended ones. */
  readonly operations: OperationLog;
  /** Projects. */
  readonly projects: Projects;
  /** API keys. */
  readonly keys: Keys;
  /** Secrets for header rules. */
  readonly secrets: Secrets;
  /** Webhooks. */
  readonly webhooks: Webhooks;
  /** Maintenance of the daemon. */
  readonly maintenance: Maintenance;
  readonly #transport: Transport;

  constructor(options: DormouseOptions = {}) {
    const server = options.server ?? variable("DORM_SERVER") ?? DEFAULT_SERVER;
    if (!/^https?:\/\//.test(server) || !URL.canParse(server)) {
      throw new DormouseError(`'${server}' is not the address of a daemon, such as ${DEFAULT_SERVER}`);
    }
    const transport = new Transport({
      server,
      apiKey: options.apiKey ?? variable("DORM_KEY"),
      project: options.project,
      maxRetries: options.maxRetries ?? DEFAULT_RETRIES,
      fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    });
    this.#transport = transport;
    this.sandboxes = new Sandboxes(transport);
    this.environments = new Environments(transport);
    this.snapshots = new Snapshots(transport);
    this.images = new Images(transport);
    this.builds = new Builds(transport);
    this.templates = new Templates(transport);
    this.volumes = new Volumes(transport);
    this.pools = new Pools(transport);
    this.events = new EventLog(transport);
    this.operations = new OperationLog(transport);
    this.projects = new Projects(transport);
    this.keys = new Keys(transport);
    this.secrets = new Secrets(transport);
    this.webhooks = new Webhooks(transport);
    this.maintenance = new Maintenance(transport);
  }

  /** Returns the version of the daemon, its engine, and the project of the key. */
  async info(options: CallOptions = {}): Promise<Info> {
    return await this.#transport.call("getInfo", {}, options);
  }

  /** Returns whether the daemon serves requests. Needs no key. */
  async health(options: CallOptions = {}): Promise<Health> {
    return await this.#transport.call("getHealth", {}, options);
  }

  /** Returns the certificate authority of the daemon, which clients have to trust for HTTPS. */
  async authority(options: CallOptions = {}): Promise<Authority> {
    return await this.#transport.call("getAuthority", {}, options);
  }

  /** Returns the OpenAPI document of the daemon. */
  async openApi(options: CallOptions = {}): Promise<Record<string, unknown>> {
    const document = toText(await readAll(await this.#transport.download("getOpenApi", {}, options)));
    return JSON.parse(document) as Record<string, unknown>;
  }

  /** Compares the files of two snapshots or sandboxes, from the older to the newer. */
  async diff(from: string, to: string, options: { order?: DiffOrder | undefined } & CallOptions = {}): Promise<Diff> {
    const { call, fields } = split(options);
    return await this.#transport.call("diffFiles", { from, to, ...fields }, call);
  }

  /** Returns which sandboxes and snapshots come from which. */
  async tree(options: { all?: boolean | undefined } & CallOptions = {}): Promise<TreeNode[]> {
    const { call, fields } = split(options);
    return (await this.#transport.call("getTree", fields, call)).nodes;
  }
}

/** An environment variable, in runtimes that have them. */
function variable(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}
