/** Server-sent events, parsed as they arrive. */

/** One event of a stream. */
export interface ServerEvent {
  /** Its kind. */
  kind: string;
  /** Its id: the position from which a client continues. */
  id: string | undefined;
  /** Its data, usually JSON. */
  data: string;
}

/** Yields the events of a stream. An event that the end of the stream cuts off is dropped. */
export async function* parseEvents(stream: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent, void, undefined> {
  const reader = stream.getReader();
  const parser = new Parser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.feed(value);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

class Parser {
  readonly #decoder = new TextDecoder();
  /** The beginning of a line whose end has not arrived, in pieces. */
  #line: string[] = [];
  #kind = "message";
  #id: string | undefined;
  #data: string[] = [];

  *feed(bytes: Uint8Array): Generator<ServerEvent> {
    const [first = "", ...rest] = this.#decoder.decode(bytes, { stream: true }).split("\n");
    this.#line.push(first);
    for (const next of rest) {
      const event = this.#take(this.#line.join("").replace(/\r$/, ""));
      if (event !== undefined) yield event;
      this.#line = [next];
    }
  }

  #take(line: string): ServerEvent | undefined {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#kind = value;
    else if (field === "id") this.#id = value;
    else if (field === "data") this.#data.push(value);
    return undefined;
  }

  #end(): ServerEvent | undefined {
    const event = { kind: this.#kind, id: this.#id, data: this.#data.join("\n") };
    const isEmpty = this.#data.length === 0;
    this.#kind = "message";
    this.#data = [];
    return isEmpty ? undefined : event;
  }
}
