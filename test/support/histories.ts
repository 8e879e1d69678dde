import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporal } from "@temporalio/proto";
import { DefaultLogger, Worker } from "@temporalio/worker";
import { workflowBundle } from "../../src/worker/workflow-bundle.ts";

export type NamedHistory = Parameters<typeof Worker.runReplayHistories>[1] extends
  AsyncIterable<infer Item> | Iterable<infer Item>
  ? Item
  : never;

/** `<version>/<what happened>.json`: what ran under a version that was released: `REMIT_UPDATE_HISTORIES=1` writes it. */
const RECORDED_DIR = "test/replay/histories";

const { History } = temporal.api.history.v1;
const AS_TEXT = { longs: String, enums: String, bytes: String };

/** What each history says to the code as it is: undefined where it agrees. */
export async function replayErrors(
  histories: readonly NamedHistory[],
): Promise<(string | undefined)[]> {
  const replays = Worker.runReplayHistories(
    { workflowBundle: await workflowBundle(new DefaultLogger("ERROR")) },
    histories,
  );
  const errors: (string | undefined)[] = [];
  for await (const { error } of replays) errors.push(error?.message);
  return errors;
}

export function recordedHistories(): string[] {
  return readdirSync(RECORDED_DIR, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".json"))
    .toSorted();
}

export function readRecorded(file: string): NamedHistory {
  const text = readFileSync(join(RECORDED_DIR, file), "utf8");
  const { workflowId, history } = JSON.parse(text) as { workflowId: string; history: unknown };
  return { workflowId, history: History.fromObject(history as object) };
}

/** Writes histories under the version of package.json, without the names and paths of where they ran. */
export function record(names: readonly string[], histories: readonly NamedHistory[]): void {
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  mkdirSync(join(RECORDED_DIR, version), { recursive: true });
  for (const [index, { workflowId, history }] of histories.entries()) {
    const plain = History.toObject(history as temporal.api.history.v1.History, AS_TEXT);
    const recorded = { workflowId, history: plain };
    writeFileSync(
      join(RECORDED_DIR, version, `${names[index]}.json`),
      `${JSON.stringify(recorded, withoutWhere, 1)}\n`,
    );
  }
}

function withoutWhere(key: string, value: unknown): unknown {
  if (key === "stackTrace") return "";
  return key === "identity" ? "recorded" : value;
}
