/** Templates: named and tagged images or snapshots with settings. */

import type { CreateTemplate, Template } from "./generated/types.js";
import { Pages } from "./pages.js";
import { type CallOptions, split, type Transport } from "./transport.js";

/** The templates of a project. */
export class Templates {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a template, or adds a version to it. */
  async create(request: CreateTemplate, options: CallOptions = {}): Promise<Template> {
    return await this.#transport.call("createTemplate", {}, { body: request, ...options });
  }

  /** Lists templates. */
  list(options: { limit?: number | undefined } & CallOptions = {}): Pages<Template> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listTemplates", { ...fields, after }, call);
      return { items: page.templates, next: page.next };
    });
  }

  /** Returns a template by its id or name. */
  async get(template: string, options: CallOptions = {}): Promise<Template> {
    return await this.#transport.call("getTemplate", { template }, options);
  }

  /** Deletes a template, or one of its tags. */
  async delete(template: string, options: { tag?: string | undefined } & CallOptions = {}): Promise<void> {
    const { call, fields } = split(options);
    await this.#transport.call("deleteTemplate", { template, ...fields }, call);
  }

  /** Gives the version with the tag `from` more tags. Default of `from`: the default tag. */
  async tag(
    template: string,
    tags: readonly string[],
    options: { from?: string | undefined } & CallOptions = {},
  ): Promise<Template> {
    const { call, fields } = split(options);
    return await this.#transport.call("tagTemplate", { template }, { body: { tags: [...tags], ...fields }, ...call });
  }
}
