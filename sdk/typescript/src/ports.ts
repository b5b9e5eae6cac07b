/** Ports of a sandbox, and requests to them. */

import type { PortAccess, PortInfo, PortLink } from "./generated/types.js";
import type { CallOptions, Transport } from "./transport.js";

/** A port of a sandbox. A request to it resumes the sandbox, unless its wake policy is `never`. */
export class Port {
  /** Port number inside the sandbox. */
  readonly port: number;
  /** Who can reach the port. */
  readonly access: PortAccess;
  /** Address for browsers, such as `http://8000-ID.localhost:7070/`. Not every HTTP client resolves `*.localhost`. */
  readonly url: string;
  /** Gives access to every port of the sandbox, in the header `X-Dormouse-Token`. */
  readonly token: string;
  /** Address and headers for HTTP clients: the headers choose the port and give access to it. */
  readonly endpoint: { url: string; headers: Record<string, string> };
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport, info: PortInfo) {
    this.#transport = transport;
    this.port = info.port;
    this.access = info.access;
    this.token = info.token;
    this.url = siteUrl(transport.server, info.label, "/");
    this.endpoint = {
      url: `${transport.server}/`,
      headers: {
        "x-dormouse-sandbox": info.sandbox,
        "x-dormouse-port": String(info.port),
        "x-dormouse-token": info.token,
      },
    };
  }

  /** Sends a request to the port, as `fetch` does. `path` begins with a slash. */
  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    for (const [name, value] of Object.entries(this.endpoint.headers)) headers.set(name, value);
    return await this.#transport.fetch(new URL(this.#transport.server + path), { ...init, headers });
  }
}

/** The ports of a sandbox. */
export class Ports {
  readonly #transport: Transport;
  readonly #id: string;

  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.#id = id;
  }

  /** Returns how to reach a port. A program need not listen on it yet. */
  async get(port: number, options: CallOptions = {}): Promise<Port> {
    return new Port(this.#transport, await this.#transport.call("getPort", { id: this.#id, port }, options));
  }

  /** Sends a request to a port, as `fetch` does. `path` begins with a slash. */
  async fetch(port: number, path: string, init: RequestInit = {}): Promise<Response> {
    return await (await this.get(port, { signal: init.signal ?? undefined })).fetch(path, init);
  }

  /**
   * Creates a link that opens a private port in a browser. It works once, within a minute, and then gives access
   * for 12 hours.
   */
  async link(port: number, options: CallOptions = {}): Promise<PortLink & { url: string }> {
    const link = await this.#transport.call("createPortLink", { id: this.#id, port }, { body: {}, ...options });
    return { ...link, url: siteUrl(this.#transport.server, link.label, link.path) };
  }
}

/** The address of a port for browsers: the label and the domain of the daemon. */
function siteUrl(server: string, label: string, path: string): string {
  const url = new URL(server);
  const isAddress = url.hostname.startsWith("[") || /^[\d.]+$/.test(url.hostname);
  return new URL(
    path,
    `${url.protocol}//${label}.${isAddress ? "localhost" : url.hostname}${url.port && `:${url.port}`}`,
  ).href;
}
