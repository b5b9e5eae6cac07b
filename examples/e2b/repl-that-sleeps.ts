/**
 * A Python interpreter that sleeps between questions, with its variables.
 *
 * The client is E2B's; the sandbox is paused after each answer, and a question wakes it.
 */
import { Sandbox } from "@e2b/code-interpreter";

const QUESTIONS = ["data = [3, 1, 2]", "data.sort(); data", "sum(data) / len(data)"];

const sandbox = await Sandbox.create({ timeoutMs: 300_000, lifecycle: { onTimeout: "pause", autoResume: true } });
try {
  for (const question of QUESTIONS) {
    const answer = await sandbox.runCode(question);
    console.log(`>>> ${question}`);
    if (answer.text !== undefined) console.log(answer.text);
    await sandbox.pause();
    console.log(`    (${(await sandbox.getInfo()).state})`);
  }
} finally {
  await sandbox.kill();
}
