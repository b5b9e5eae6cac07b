/** Several ways from one state: a sandbox is forked, each fork tries another fix, and the best one stays. */
import { Sandbox } from "e2b";

const TEST = "from mean import mean\nassert mean([1, 2, 3]) == 2\nassert mean([]) == 0\nprint('passed')\n";
const FIXES = [
  "def mean(values): return sum(values) / 2",
  "def mean(values): return sum(values) / len(values)",
  "def mean(values): return sum(values) / len(values) if values else 0",
];

async function passes(sandbox: Sandbox, fix: string): Promise<boolean> {
  await sandbox.files.write("mean.py", `${fix}\n`);
  try {
    return (await sandbox.commands.run("python3 test_mean.py")).stdout === "passed\n";
  } catch {
    return false;
  }
}

const source = await Sandbox.create({ timeoutMs: 300_000 });
await source.files.write("test_mean.py", TEST);
const forks = (await source.fork({ timeoutMs: 300_000, count: FIXES.length })).filter(
  (fork) => fork instanceof Sandbox,
);
try {
  const results = await Promise.all(forks.map((fork, number) => passes(fork, FIXES[number]!)));
  console.log("passed:", results.join(", "));
  const chosen = forks[results.indexOf(true)]!;
  console.log("chosen:", (await chosen.files.read("mean.py")).trim());
  console.log("the source has no fix:", !(await source.files.exists("mean.py")));
} finally {
  for (const sandbox of [source, ...forks]) await sandbox.kill();
}
