/** Output of processes: decoded, and continued after a lost connection. */

import { fromBase64, toBytes } from "./bytes.js";
import { TransportError, UnavailableError } from "./errors.js";
import type { ExitStatus, LostOutput, OutputChunk, OutputStream } from "./generated/types.js";
import type { ServerEvent } from "./sse.js";
import { data, sleep } from "./transport.js";

/** A position in the output of a process, in bytes from its beginning. */
export interface OutputPosition {
  stdout: number;
  stderr: number;
}

/** A piece of output. */
export interface OutputPiece<Stream extends OutputStream = OutputStream> {
  type: Stream;
  /** The bytes. */
  bytes: Uint8Array;
  /**
   * The bytes as text. A character that continues in the next piece of the stream is part of that piece's text.
   */
  text: string;
  /** When the output was read from the process, in RFC 3339 format, if that is known. */
  readAt: string | null;
  /** Where to continue after this event. */
  position: OutputPosition;
}

/** Output that is no longer kept. */
export interface OutputGap {
  type: "lost";
  stream: OutputStream;
  /** Length of the gap in bytes. */
  lostBytes: number;
  /** Where to continue after this event. */
  position: OutputPosition;
}

/** The end of a process. It is the last event of its output. */
export interface OutputEnd extends ExitStatus {
  type: "exit";
  /** Where the output ended. */
  position: OutputPosition;
}

/** An event in the output of a process. */
export type OutputEvent = OutputPiece<"stdout"> | OutputPiece<"stderr"> | OutputGap | OutputEnd;

/** How often in a row a stream is opened again without that anything arrives. */
const RECONNECTS_MAX = 5;
const RECONNECT_DELAY_MS = 100;

/** A source of output that can be opened again. */
export interface OutputSource {
  /** Opens the output at a position. */
  open(at: OutputPosition): AsyncIterable<ServerEvent>;
  /** Whether it can be opened again after a lost connection. */
  canReopen(): boolean;
  /** Receives events of other kinds. */
  onOther?(event: ServerEvent): void;
}

export interface FollowOptions {
  from?: OutputPosition | undefined;
  follow?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

/** Yields output from a position on, to the end of the process if `follow`, over any number of connections. */
export async function* followOutput(
  source: OutputSource,
  { from = { stdout: 0, stderr: 0 }, follow = true, signal }: FollowOptions,
): AsyncGenerator<OutputEvent, void, undefined> {
  const decoder = new OutputDecoder(from);
  for (let attempts = 0; ; attempts++) {
    try {
      for await (const event of source.open(decoder.position)) {
        attempts = 0;
        for (const output of decoder.decode(event) ?? []) {
          yield output;
          if (output.type === "exit") return;
        }
        if (!isOutput(event)) source.onOther?.(event);
      }
      if (!follow) return;
      throw new TransportError("the stream of output ended early");
    } catch (error) {
      if (!isInterruption(error) || attempts >= RECONNECTS_MAX || !source.canReopen()) throw error;
      await sleep(RECONNECT_DELAY_MS * 2 ** attempts, signal);
    }
  }
}

/** Whether a stream may continue: the connection failed, or the sandbox does not respond, as while it is suspended. */
function isInterruption(error: unknown): boolean {
  return error instanceof TransportError || error instanceof UnavailableError;
}

function isOutput(event: ServerEvent): boolean {
  return ["stdout", "stderr", "lost", "exit"].includes(event.kind);
}

/** Decodes the events of one process. */
class OutputDecoder {
  #position: OutputPosition;
  readonly #text = { stdout: streamDecoder(), stderr: streamDecoder() };

  constructor(from: OutputPosition) {
    this.#position = { ...from };
  }

  /** The position after the last event. */
  get position(): OutputPosition {
    return { ...this.#position };
  }

  decode(event: ServerEvent): OutputEvent[] | undefined {
    switch (event.kind) {
      case "stdout":
      case "stderr":
        return [this.#piece(event.kind, data<OutputChunk>(event))];
      case "lost": {
        const { stream, offset, bytes } = data<LostOutput>(event);
        this.#position[stream] = offset + bytes;
        return [...this.#rest(stream), { type: "lost", stream, lostBytes: bytes, position: this.position }];
      }
      case "exit": {
        const status = data<ExitStatus>(event);
        return [...this.#rest("stdout"), ...this.#rest("stderr"), { type: "exit", ...status, position: this.position }];
      }
      default:
        return undefined;
    }
  }

  #piece(type: OutputStream, chunk: OutputChunk): OutputEvent {
    const bytes = chunk.encoding === "base64" ? fromBase64(chunk.data) : toBytes(chunk.data);
    this.#position[type] = chunk.offset + bytes.length;
    const text = this.#text[type].decode(bytes, { stream: true });
    return { type, bytes, text, readAt: chunk.readAt, position: this.position } as OutputEvent;
  }

  /** What the text of a stream lacks if no continuation of its last character follows. */
  #rest(type: OutputStream): OutputEvent[] {
    const text = this.#text[type].decode();
    return text === ""
      ? []
      : [{ type, bytes: new Uint8Array(), text, readAt: null, position: this.position } as OutputEvent];
  }
}

function streamDecoder(): TextDecoder {
  return new TextDecoder("utf-8", { ignoreBOM: true });
}
