/** A proxy before the daemon under test that breaks connections. */

import { type AddressInfo, connect, createServer, type Socket } from "node:net";

import { onTestFinished } from "vitest";

import { Dormouse } from "@dormouse/sdk";

/** How many bytes of the answer to a request are passed on before its connection is cut; undefined for all. */
export type Limit = (request: string) => number | undefined;

/** Returns a client that reaches the daemon through a proxy, and the number of connections that were cut. */
export async function throughProxy(limit: Limit): Promise<{ dormouse: Dormouse; cuts: () => number }> {
  const daemon = new URL(process.env["DORM_SERVER"]!);
  const sockets = new Set<Socket>();
  let cuts = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(daemon.port), daemon.hostname);
    let rest = Infinity;
    client.on("data", (bytes) => {
      const text = bytes.toString("latin1");
      // A connection can carry several requests.
      if (/^(GET|POST|PUT|PATCH|DELETE) /.test(text)) rest = limit(text.slice(0, text.indexOf("\r\n"))) ?? Infinity;
      upstream.write(bytes);
    });
    upstream.on("data", (bytes) => {
      rest -= bytes.length;
      if (rest >= 0) return void client.write(bytes);
      cuts++;
      upstream.destroy();
      client.write(bytes.subarray(0, bytes.length + rest), () => client.destroy());
    });
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket);
      socket.on("error", () => other.destroy());
      socket.on("close", () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { dormouse: new Dormouse({ server: `http://127.0.0.1:${port}` }), cuts: () => cuts };
}
