import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { EVENT_TYPES, eventSchema, newEvent } from "../../src/domain/events.ts";

const file = (type: string): string => resolve("docs/events", `${type}.schema.json`);

describe("events", () => {
  test.each(EVENT_TYPES)(
    "docs/events has the JSON Schema of %s (REMIT_UPDATE_DOCS=1 writes it)",
    (type) => {
      const generated = `${JSON.stringify(z.toJSONSchema(eventSchema(type)), null, 2)}\n`;
      if (process.env["REMIT_UPDATE_DOCS"] === "1") writeFileSync(file(type), generated);
      expect(existsSync(file(type)) ? readFileSync(file(type), "utf8") : "").toBe(generated);
    },
  );

  test("a message is a CloudEvents document that its schema accepts, and the same input gives the same bytes", () => {
    const input = {
      messageId: "01a22f9c-e7a3-749f-9fb1-a5375548064b",
      type: "payment.created" as const,
      aggregateVersion: 1,
      time: new Date("2026-12-01T00:00:00Z"),
      traceparent: null,
      data: {
        paymentId: "01a22f9c-e76e-76c9-b249-186963a5a6bd",
        merchant: "default",
        idempotencyKey: "k",
        source: "alice",
        destination: "shop",
        amountMinor: "999999999999999999",
        currency: "EUR",
        capture: "automatic" as const,
      },
    };
    const event = newEvent(input);
    expect(newEvent(input)).toEqual(event);
    expect(eventSchema("payment.created").safeParse(JSON.parse(event.payload)).success).toBe(true);
    expect(event.payload).toContain('"amountMinor":"999999999999999999"');
  });
});
