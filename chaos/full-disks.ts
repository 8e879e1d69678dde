import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { withClient } from "../src/local/postgres.ts";
import type { Disks } from "./disks.ts";
import { lasting } from "./disturbances.ts";
import { pause } from "./pause.ts";
import type { Scenario, Stage } from "./scenarios.ts";

/** They need PostgreSQL on disks of its own. */
export function fullDisks(): Scenario[] {
  return [
    whileFull("tables", {
      name: "database:disk-full",
      about: "the disk of Remit's tables is full: what needs a new page fails",
    }),
    whileFull("cluster", {
      name: "database:log-disk-full",
      about: "the disk of the write-ahead log is full: PostgreSQL panics and can't start",
    }),
  ];
}

const NOTICED_MS_MAX = 30_000;
const LOOK_AGAIN_MS = 200;

function whileFull(which: keyof Disks, { name, about }: { name: string; about: string }): Scenario {
  const scenario = lasting(name, about, async (stage) => {
    const disk = stage.stack.disks?.[which];
    if (disk === undefined) throw new Error(`${name} needs disks of its own`);
    const log = join(stage.stack.directory, "logs", "postgres.log");
    const before = statSync(log).size;
    disk.fill();
    const isNoticed = (): boolean =>
      readFileSync(log).subarray(before).includes("No space left on device");
    for (const endsAt = Date.now() + NOTICED_MS_MAX; !isNoticed();) {
      if (Date.now() >= endsAt) {
        disk.free();
        throw new Error(`PostgreSQL didn't notice in ${NOTICED_MS_MAX / 1_000} s`);
      }
      if (which === "cluster") await useUpLog(stage);
      await pause(LOOK_AGAIN_MS, stage.signal);
    }
    return () => disk.free();
  });
  return { ...scenario, needsDisks: true };
}

/** A segment that has room, or an old one that is used again, needs none of the disk. */
async function useUpLog({ stack }: Stage): Promise<void> {
  await withClient(stack.adminDatabaseUrl, async (client) => {
    await client.query(
      "SELECT pg_logical_emit_message(true, 'chaos', 'a segment must not be empty')",
    );
    await client.query("SELECT pg_switch_wal()");
  }).catch(() => undefined);
}
