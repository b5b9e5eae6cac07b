/** Lists that the daemon returns in pages. */

/** One page of a list. */
export interface Page<T> {
  items: T[];
  /** The cursor of the next page. Null or undefined on the last page. */
  next?: string | null | undefined;
}

/**
 * A list of any length. Iterating over it requests page after page:
 *
 * ```ts
 * for await (const sandbox of dormouse.sandboxes.list()) console.log(sandbox.id);
 * ```
 */
export class Pages<T> implements AsyncIterable<T> {
  readonly #page: (after: string | undefined) => Promise<Page<T>>;

  /** @internal */
  constructor(page: (after: string | undefined) => Promise<Page<T>>) {
    this.#page = page;
  }

  /** Yields the items. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.pages()) yield* page;
  }

  /** Yields the pages. */
  async *pages(): AsyncGenerator<T[], void, undefined> {
    let after: string | undefined;
    do {
      const page = await this.#page(after);
      yield page.items;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  /** Returns all items. */
  async toArray(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }
}
