import { startLedgerIntake } from "../../src/worker/ledger-intake.ts";
import type { Intake, IntakeEvent } from "../../src/worker/ledger-intake.ts";
import type { ReceivedMessage, Receiver } from "../../src/messaging/sqs-receiver.ts";
import { eventually } from "../support/eventually.ts";

const BODY = JSON.stringify({
  specversion: "1.0",
  id: "01a22f9c-e7a3-749f-9fb1-a5375548064b",
  type: "payment.created",
  data: {},
});

/** A queue in memory that remembers what was asked of it. */
class Queue implements Receiver {
  waiting: ReceivedMessage[] = [];
  receives = 0;
  readonly deleted: string[] = [];
  readonly released: { handles: readonly string[]; afterSeconds: number }[] = [];

  readonly receive = async (max: number): Promise<ReceivedMessage[]> => {
    this.receives += 1;
    await new Promise((resolve) => setTimeout(resolve, 5));
    return this.waiting.splice(0, max);
  };
  readonly delete = async (handles: readonly string[]): Promise<void> => {
    this.deleted.push(...handles);
    await Promise.resolve();
  };
  readonly release = async (handles: readonly string[], afterSeconds: number): Promise<void> => {
    this.released.push({ handles, afterSeconds });
    await Promise.resolve();
  };
}

let queue: Queue;
let intake: Intake;
let started: string[];
let events: IntakeEvent["kind"][];
let temporalIsAway: boolean;
let counted: string[];

beforeEach(() => {
  [queue, started, counted, events, temporalIsAway] = [new Queue(), [], [], [], false];
  const answer = async (): Promise<void> => {
    await Promise.resolve();
    if (temporalIsAway) throw new Error("away");
  };
  intake = startLedgerIntake({
    receiver: queue,
    startLedgerEntry: async ({ messageId }) => {
      await answer();
      const isNew = !started.includes(messageId);
      started.push(messageId);
      return isNew;
    },
    countDelivery: async (messageId) => {
      await Promise.resolve();
      counted.push(messageId);
      throw new Error("the database is away");
    },
    probeTemporal: answer,
    report: ({ kind }) => events.push(kind),
  });
});
afterEach(async () => {
  await intake.stop();
});

function messages(count: number, body = BODY): ReceivedMessage[] {
  return Array.from({ length: count }, (_, index) => ({
    body,
    sqsMessageId: `m${index}`,
    receiptHandle: `h${index}`,
    receiveCount: 1,
  }));
}

describe("startLedgerIntake", () => {
  test("deletes a message once Temporal has its workflow, and not before", async () => {
    queue.waiting = messages(25);
    await eventually(() => expect(queue.deleted).toHaveLength(25));
    expect(started).toHaveLength(25);
    expect(queue.released).toEqual([]);
  });

  test("counts each delivery of a message that was decided before, and deletes it though the count gets lost", async () => {
    queue.waiting = messages(3);
    await eventually(() => expect(queue.deleted).toHaveLength(3));
    expect(counted).toHaveLength(2);
  });

  test("while Temporal is away it gives back with a pause, receives nothing more, and goes on by itself", async () => {
    temporalIsAway = true;
    queue.waiting = messages(3);
    await eventually(() => expect(intake.away()).toBe("temporal"));
    await eventually(() => expect(queue.released).toHaveLength(3));
    const receives = queue.receives;
    queue.waiting = messages(3);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(queue.receives - receives).toBeLessThanOrEqual(2);
    expect(queue.released.every(({ afterSeconds }) => afterSeconds >= 1)).toBe(true);
    expect(queue.deleted).toEqual([]);
    temporalIsAway = false;
    await eventually(() => expect(started.length).toBeGreaterThanOrEqual(3));
    expect(intake.away()).toBeNull();
  });

  test("leaves a malformed message to the redrive policy: neither deleted nor given back", async () => {
    queue.waiting = messages(1, "not json");
    await eventually(() => expect(events).toContain("malformed"));
    expect([queue.deleted, queue.released, started]).toEqual([[], [], []]);
  });

  test("stops only when what it has in hand is answered", async () => {
    queue.waiting = messages(10);
    await eventually(() => expect(queue.receives).toBeGreaterThan(0));
    await intake.stop();
    expect(queue.deleted.length + queue.waiting.length).toBe(10);
  });
});
