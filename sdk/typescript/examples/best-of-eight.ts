/**
 * Eight attempts from one moment: a sandbox is prepared once and forked, each fork tries another idea, and the parent
 * continues as the best of them. The others end, and leave nothing.
 */

import { Dormouse, type Sandbox } from "@dormouse/sdk";

const PREPARE = `
words = [a + b + c for a in "bdfglmnprst" for b in "aeiou" for c in "bdfglmnprst"]
open("/work/words", "w").write("\\n".join(words))
`;

/** Counts the collisions of a hash function with this multiplier, and writes it to a file. */
const ATTEMPT = `
import sys
multiplier = int(sys.argv[1])
slots = set()
collisions = 0
for word in open("/work/words").read().split():
    slot = 0
    for letter in word:
        slot = (slot * multiplier + ord(letter)) % 1024
    collisions += slot in slots
    slots.add(slot)
open("/work/best.py", "w").write(f"MULTIPLIER = {multiplier}\\n")
print(collisions)
`;

const MULTIPLIERS = [2, 4, 7, 16, 31, 32, 33, 37];

const dormouse = new Dormouse();
await using parent = await dormouse.sandboxes.create({
  image: "base",
  name: `best-${crypto.randomUUID().slice(0, 8)}`,
  resources: { memoryBytes: 128 << 20 },
});

await parent.files.mkdir("/work");
await parent.exec(["python3", "-c", PREPARE], { check: true });
console.log(`prepared ${(await parent.exec("wc -w < /work/words")).stdout.trim()} words once`);

async function attempt(
  child: Sandbox,
  multiplier: number,
): Promise<{ child: Sandbox; multiplier: number; collisions: number }> {
  const { stdout } = await child.exec(["python3", "-c", ATTEMPT, String(multiplier)], { check: true });
  return { child, multiplier, collisions: Number(stdout) };
}

const children = await parent.fork(MULTIPLIERS.length);
const attempts = await Promise.all(children.map((child, at) => attempt(child, MULTIPLIERS[at]!)));
for (const { multiplier, collisions } of attempts) {
  console.log(`multiplier ${String(multiplier).padStart(2)}: ${collisions} collisions`);
}

const best = attempts.reduce((a, b) => (b.collisions < a.collisions ? b : a));
const { future } = await best.child.promote();
console.log(`promoted the fork with ${best.multiplier}`);
console.log(`the parent now has: ${(await parent.files.readText("/work/best.py")).trim()}`);

await Promise.all(attempts.map(({ child }) => child.terminate()));
if (future !== undefined) await dormouse.snapshots.delete(future, { whenFree: true });
