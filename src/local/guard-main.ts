import { rmSync } from "node:fs";
import { createInterface } from "node:readline";
import { endProcess, identityOf } from "./processes.ts";
import type { GuardMessage, GuardedProcess } from "./guard.ts";

/** Ends the processes it was told about as soon as its standard input closes, which happens however the parent dies. */

const GRACE_MS = 3_000;
const guarded = new Map<number, GuardedProcess>();
let orderly = false;

// Whoever signals a whole process group means the parent; the guard ends by its pipe.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => undefined);

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line) as GuardMessage;
  if ("add" in message) guarded.set(message.add.pid, message.add);
  else if ("remove" in message) guarded.delete(message.remove);
  else orderly = true;
}

if (!orderly) {
  const running = [...guarded.values()].filter(({ pid, identity }) => identityOf(pid) === identity);
  await Promise.all(
    running.map(async ({ pid, signal }) => await endProcess(pid, { signal, graceMs: GRACE_MS })),
  );
  const directory = process.argv[2];
  if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
}
