import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { parsePaymentRequest } from "../../src/client/parameters.ts";
import { openPaymentsFile } from "../../src/client/payments-file.ts";
import { DomainError, ERROR_CODES } from "../../src/domain/errors.ts";
import { parseMessage } from "../../src/messaging/envelope.ts";
import { SEED, counterexample, oddText } from "./fuzz.ts";

/** What comes from outside is taken as it is meant or refused with a code: no parser throws anything else, or guesses. */

jest.setTimeout(1_800_000);

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "remit-fuzz-"));
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const anyJson = fc.json({ stringUnit: "binary", maxDepth: 5 });
const document = fc.record(
  {
    specversion: fc.constantFrom<unknown>("1.0", "0.3", 1, null),
    id: fc.oneof(fc.uuid(), oddText, fc.integer()),
    type: fc.oneof(fc.constant("payment.created"), oddText),
    data: fc.oneof(fc.dictionary(oddText, fc.jsonValue()), fc.jsonValue()),
    Type: fc.constant("Notification"),
    TopicArn: oddText,
    Message: oddText,
  },
  { requiredKeys: ["specversion", "id", "type", "data"] },
);
const bodies = fc.oneof(
  oddText,
  anyJson,
  document.map((value) => JSON.stringify(value)),
  fc.tuple(document, fc.nat({ max: 400 })).map(([value, at]) => JSON.stringify(value).slice(0, at)),
  fc.nat({ max: 20_000 }).map((depth) => "[".repeat(depth)),
  fc.nat({ max: 20_000 }).map((depth) => `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`),
);

test(`a body from the queue is a message that the inbox can keep, or has a reason (REMIT_FUZZ_SEED=${SEED})`, async () => {
  expect(await counterexample(bodies, checkMessage)).toBe("");
});

function checkMessage(body: string): void {
  const parsed = parseMessage(body);
  if (!parsed.ok) {
    assert.notEqual(parsed.reason, "");
    return;
  }
  const { messageId, type, payload } = parsed.message;
  assert.match(messageId, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i);
  assert.notEqual(type, "");
  assert.ok(!payload.includes("\0"));
  const document = JSON.parse(payload) as { id: unknown; type: unknown };
  assert.deepEqual([document.id, document.type], [messageId, type]);
  const wrapped = { Type: "Notification", TopicArn: "arn", Message: body };
  if (payload === body) assert.deepEqual(parseMessage(JSON.stringify(wrapped)), parsed);
}

const cell = fc.oneof(
  oddText,
  fc.constantFrom(
    "k",
    "alice",
    "shop",
    "1.00",
    "-1",
    "1,00",
    "100000000000000000000",
    "EUR",
    "JPY",
    "automatic",
    "manual",
  ),
);
const csv = fc
  .tuple(
    fc.constantFrom(
      "key,from,to,amount,currency",
      "key,from,to,amountMinor,currency,capture",
      "key;from",
      "",
      "\ufeffkey,from,to,amount,currency",
    ),
    fc.array(fc.array(cell, { maxLength: 7 }), { maxLength: 5 }),
    fc.constantFrom("\n", "\r\n", "\r"),
  )
  .map(([header, rows, end]) => [header, ...rows.map((row) => row.join(","))].join(end));
const jsonl = fc
  .array(
    fc.oneof(
      anyJson,
      fc
        .dictionary(
          fc.oneof(fc.constantFrom("key", "from", "to", "amount", "currency"), oddText),
          cell,
        )
        .map((value) => JSON.stringify(value)),
      oddText,
    ),
    { maxLength: 5 },
  )
  .map((lines) => lines.join("\n"));
const files = fc.oneof(
  csv.map((content) => ({ name: "a.csv", content: Buffer.from(content) })),
  jsonl.map((content) => ({ name: "a.jsonl", content: Buffer.from(content) })),
  fc
    .tuple(fc.constantFrom("a.csv", "a.jsonl"), fc.uint8Array({ maxLength: 300 }))
    .map(([name, bytes]) => ({ name, content: Buffer.from(bytes) })),
);

test(`a file is refused as a whole, or each of its lines is a request or a refusal of its own (REMIT_FUZZ_SEED=${SEED})`, async () => {
  expect(await counterexample(files, checkFile)).toBe("");
});

async function checkFile({ name, content }: { name: string; content: Buffer }): Promise<void> {
  const path = join(folder, name);
  writeFileSync(path, content);
  const file = await openPaymentsFile(path).catch((error: unknown) => {
    assert.equal((error as DomainError).code, "file_invalid");
    return null;
  });
  if (file === null) return;
  let count = 0;
  for await (const { line, request } of file.lines()) {
    count += 1;
    assert.ok(line > 0);
    checkRequest(request);
  }
  await file.close();
  assert.equal(count, file.lineCount);
}

const requests = fc.oneof(
  fc.anything(),
  fc.record(
    {
      key: cell,
      merchant: cell,
      from: cell,
      to: cell,
      amount: fc.oneof(cell, fc.double(), fc.integer()),
      amountMinor: fc.oneof(cell, fc.bigInt()),
      currency: cell,
      description: fc.option(cell),
      capture: cell,
      expires: cell,
    },
    { requiredKeys: ["key", "from", "to", "currency"] },
  ),
);

test(`a request is canonical parameters or a refusal of exit 2 (REMIT_FUZZ_SEED=${SEED})`, async () => {
  expect(await counterexample<unknown>(requests, checkRequest)).toBe("");
});

function checkRequest(request: unknown): void {
  try {
    const { amountMinor, currency, source, destination } = parsePaymentRequest(request);
    assert.match(amountMinor, /^[1-9][0-9]{0,17}$/);
    assert.match(currency, /^[A-Z]{3}$/);
    assert.notEqual(source, destination);
  } catch (error) {
    if (!(error instanceof DomainError)) throw error;
    assert.equal(ERROR_CODES[error.code].exit, 2);
  }
}
