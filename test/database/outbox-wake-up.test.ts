import { createOutboxListener, createOutboxNotifier } from "../../src/database/outbox-wake-up.ts";
import type { OutboxListener } from "../../src/database/outbox-wake-up.ts";
import { useDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";

const database = useDatabase();
const LONG_MS = 30_000;
let listener: OutboxListener;
let states: boolean[];

beforeEach(async () => {
  states = [];
  listener = createOutboxListener({
    databaseUrl: database().url,
    onStateChange: ({ alive }) => states.push(alive),
  });
  await eventually(() => {
    if (!listener.isAlive()) throw new Error("the listener does not hear");
  });
});
afterEach(async () => {
  await listener.close();
});

/** Resolves to true where the wait was cut short by a notification, since nothing else ends it in time. */
async function wakes(wait: Promise<void>): Promise<boolean> {
  await wait;
  return true;
}

describe("createOutboxListener", () => {
  const { signal } = new AbortController();

  test("a notification ends the wait", async () => {
    const waiting = wakes(listener.watch().wait(LONG_MS, signal));
    createOutboxNotifier(database().app.pool).notify();
    expect(await waiting).toBe(true);
  });

  test("what is announced between the look and the wait isn't lost", async () => {
    const watch = listener.watch();
    const other = wakes(listener.watch().wait(LONG_MS, signal));
    createOutboxNotifier(database().app.pool).notify();
    await other;
    expect(await wakes(watch.wait(LONG_MS, signal))).toBe(true);
  });

  test("many commits at once are announced by few notifications, the last one included", async () => {
    const notifier = createOutboxNotifier(database().app.pool);
    for (let commit = 0; commit < 1_000; commit += 1) notifier.notify();
    expect(await wakes(listener.watch().wait(LONG_MS, signal))).toBe(true);
  });

  test("a session killed by the server comes back, wakes who waits and hears again", async () => {
    const waiting = wakes(listener.watch().wait(LONG_MS, signal));
    await database().admin(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'remit-listen' AND datname = current_database()",
    );
    expect(await waiting).toBe(true);
    await eventually(() => expect(states).toEqual([true, false, true]));
    const again = wakes(listener.watch().wait(LONG_MS, signal));
    createOutboxNotifier(database().app.pool).notify();
    expect(await again).toBe(true);
  });

  test("the signal ends the wait", async () => {
    const stop = new AbortController();
    const waiting = wakes(listener.watch().wait(LONG_MS, stop.signal));
    stop.abort();
    expect(await waiting).toBe(true);
  });
});
