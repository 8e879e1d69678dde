import { recordPayment } from "../../src/activities/record-payment.ts";
import { readDatabaseFigures } from "../../src/database/metrics-queries.ts";
import type { DatabaseFigures } from "../../src/database/metrics-queries.ts";
import { inTransaction } from "../../src/database/database.ts";
import { aPair, aPayment, useDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aroundStatements } from "../support/statements.ts";

const database = useDatabase();

async function figures(overdueAfterSeconds = 300): Promise<DatabaseFigures> {
  return await readDatabaseFigures(database().app, { overdueAfterSeconds });
}

/** Past the rules, as time passes. */
async function age(table: string, where: string): Promise<void> {
  const columns = table === "outbox" ? ["created_at"] : ["created_at", "updated_at"];
  const set = columns.map((column) => `${column} = ${column} - interval '10 minutes'`).join(", ");
  await database().admin(
    `SET session_replication_role = replica; UPDATE remit.${table} SET ${set} WHERE ${where}; SET session_replication_role = origin`,
  );
}

async function aPending(): Promise<string> {
  const [source, destination] = await aPair(database());
  const input = aPayment({ source, destination });
  await recordPayment(database().app, input);
  return input.paymentId;
}

describe("the database's figures", () => {
  test("count what waits and is dead, and tell the age of the oldest that waits", async () => {
    const before = await figures();
    const paymentId = await aPending();
    await age("outbox", `aggregate_id = '${paymentId}'`);
    const after = await figures();
    expect(after.pending).toBeGreaterThan(before.pending);
    expect(after.oldestPendingAgeSeconds).toBeGreaterThanOrEqual(600);
    await database().admin(
      "UPDATE remit.outbox SET status = 'DEAD', last_error = 'refused' WHERE aggregate_id = $1",
      [paymentId],
    );
    expect(await figures()).toMatchObject({ dead: before.dead + 1, pending: after.pending - 1 });
  });

  test("tell which payments are stuck: unchanged for as long as the supervisor waits", async () => {
    const before = await figures();
    const paymentId = await aPending();
    expect((await figures()).stuck).toEqual(before.stuck);
    await age("payments", `id = '${paymentId}'`);
    expect((await figures()).stuck.payment).toBe(before.stuck.payment + 1);
    expect((await figures(3_600)).stuck.payment).toBe(before.stuck.payment);
  });

  test("don't take an authorization that may still wait for stuck, nor a captured payment for its far expiry", async () => {
    const [source, destination] = await aPair(database());
    const input = aPayment({ source, destination, capture: "manual", expiresInSeconds: 86_400 });
    await recordPayment(database().app, input);
    const before = await figures();
    await age("payments", `id = '${input.paymentId}'`);
    expect((await figures()).stuck.payment).toBe(before.stuck.payment);
    const past = `SET session_replication_role = replica; UPDATE remit.payments SET $ WHERE id = '${input.paymentId}'; SET session_replication_role = origin`;
    await database().admin(past.replace("$", "status = 'captured'"));
    expect((await figures()).stuck.payment).toBe(before.stuck.payment + 1);
    await database().admin(
      past.replace("$", "status = 'authorized', expires_at = now() - interval '10 minutes'"),
    );
    expect((await figures()).stuck.payment).toBe(before.stuck.payment + 1);
  });

  test("see another login's open transaction without more rights than the application has", async () => {
    await inTransaction(database().app, async (tx) => {
      await tx.run({ name: "held", text: "SELECT pg_current_xact_id()" }, []);
      // Later transactions, so that the held one is behind.
      await database().admin("SELECT pg_current_xact_id()");
      await database().admin("SELECT pg_current_xact_id()");
      const session = (await figures()).horizons.find(({ holder }) => holder === "session");
      expect(session?.xid).toMatch(/^\d+$/);
      expect(session?.age).toBeGreaterThanOrEqual(2);
    });
  });

  test("have dead rows and size of each table", async () => {
    await aPending();
    await database().admin("UPDATE remit.inbox SET deliveries = deliveries + 1");
    await eventually(async () => {
      const inbox = (await figures()).tables.find(({ table }) => table === "inbox");
      expect(inbox?.deadTuples).toBeGreaterThan(0);
      expect(inbox?.bytes).toBeGreaterThan(0);
    });
  });

  test("read open rows by their partial indexes alone, also where statistics say that all of the outbox waits", async () => {
    const texts: string[] = [];
    const watched = aroundStatements(database().app, async ({ name, text }, send) => {
      if (name.startsWith("metrics_")) texts.push(text);
      return await send();
    });
    await readDatabaseFigures(watched, { overdueAfterSeconds: 300 });
    await database().admin(
      "UPDATE pg_class SET reltuples = 1e6, relpages = 10 WHERE oid = 'remit.outbox'::regclass",
    );
    const [setting = "", ...queries] = texts;
    const plan = await inTransaction(database().app, async (tx) => {
      await tx.run({ name: "no_seqscan", text: setting }, []);
      const lines: Record<string, string>[] = [];
      for (const [index, text] of queries.entries()) {
        const explain = `EXPLAIN ${text.replaceAll("$1", "300")}`;
        lines.push(...(await tx.run({ name: `explain_${index}`, text: explain }, [])));
      }
      return lines.map((line) => line["QUERY PLAN"]).join("\n");
    });
    expect(plan).not.toContain("Seq Scan");
    const ours = plan.match(/\b(outbox|payments|captures|refunds)_\w+/g);
    expect(new Set(ours)).toEqual(
      new Set([
        "outbox_open_idx",
        "payments_open_idx",
        "captures_one_open_key",
        "refunds_open_idx",
      ]),
    );
  });
});
