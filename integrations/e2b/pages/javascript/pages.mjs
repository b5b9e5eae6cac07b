/** What the programs of the pages share: each example is a function that checks what the page promises. */
import { readFileSync } from "node:fs";
import { request } from "node:https";

const examples = [];

/** Names an example of the page. */
export const example = (title, run) => examples.push([title, run]);

/** Waits for a true result, for at most a minute. */
export async function until(check) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const result = await check();
    if (result) return result;
    if (Date.now() > deadline) throw new Error("this did not happen within a minute");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Opens `https://HOST`, also where names that end in localhost are not known. */
export function visit(host, headers = {}) {
  const { hostname, port } = new URL(process.env.E2B_API_URL);
  const ca = readFileSync(process.env.E2B_CASES_CA);
  return new Promise((resolve, reject) => {
    const options = { host: hostname, port, servername: host.split(":")[0], ca, headers: { Host: host, ...headers } };
    const sent = request(options, (answer) => {
      let text = "";
      answer.on("data", (chunk) => (text += chunk));
      answer.on("end", () => resolve({ status: answer.statusCode, text }));
    });
    sent.on("error", reject);
    sent.end();
  });
}

/** Runs all examples, and prints the result of each as a line of JSON. */
export async function main() {
  for (const [title, run] of examples) {
    let result = "as promised";
    try {
      await run();
    } catch (error) {
      process.exitCode = 1;
      result = `${error.name}: ${error.message}`;
      console.error(error);
    }
    console.log(JSON.stringify({ example: title, result }));
  }
}
