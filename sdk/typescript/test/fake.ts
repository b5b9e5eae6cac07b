/** A server that answers as the test says, for what a real daemon does not do on request. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { onTestFinished } from "vitest";

import { Dormouse, type DormouseOptions } from "@dormouse/sdk";

/** A request that the server has received. */
export interface Received {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: string;
}

type Answer = (response: ServerResponse, received: Received) => void;

/** Starts a server that gives these answers in turn, the last one again and again. */
export async function fake(
  answers: Answer[],
  options: DormouseOptions = {},
): Promise<{ dormouse: Dormouse; received: Received[] }> {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += String(piece);
    const { method = "", url = "", headers } = request;
    const last = { method, url, headers, body };
    received.push(last);
    answers[Math.min(received.length, answers.length) - 1]!(response, last);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { dormouse: new Dormouse({ server: `http://127.0.0.1:${port}`, apiKey: "k", ...options }), received };
}

/** Answers with JSON. */
export function json(body: unknown, status = 200, headers: Record<string, string> = {}): Answer {
  return (response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  };
}

/** Answers with an error. */
export function problem(code: string, status: number, headers: Record<string, string> = {}): Answer {
  return json(
    { type: `/errors/${code}`, title: code, status, detail: `it is ${code}`, code, next_step: "do something" },
    status,
    headers,
  );
}

/** Closes the connection without an answer. */
export const drop: Answer = (response) => response.destroy();

/** Answers with events, and then closes the connection as a daemon that ends does. */
export function events(...parts: [kind: string, data: unknown, id?: string][]): Answer {
  return (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const [kind, data, id] of parts) {
      response.write(`event: ${kind}\n${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`);
    }
    // The end of the response is written first.
    response.write(": cut off", () => response.destroy());
  };
}

/** A piece of output as the daemon sends it. */
export function chunk(text: string, offset: number): unknown {
  return { data: text, encoding: "utf8", offset, read_at: null };
}
