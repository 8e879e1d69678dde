import { eventually } from "../support/eventually.ts";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { Browser } from "playwright-core";
import { processesOf, stackOf, startedDev, waitUntil } from "../support/dev-stack.ts";
import type { DevRun } from "../support/dev-stack.ts";
import { findChromium, launchChromium } from "./chromium.ts";
import { openWebUi } from "./web-ui.ts";
import type { WebUi } from "./web-ui.ts";

/** What a person reads in Temporal's Web UI, in a real browser, of a real stack. */

jest.setTimeout(60_000);

const REMIT = join(import.meta.dirname, "..", "..", "bin", "remit.mjs");
const UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";

let parent: string;
let dataDir: string;
let dev: DevRun | undefined;
let browser: Browser | undefined;
let ui: WebUi;
let paymentId: string;
let messageId: string;
const ours = new Set<number>();

beforeAll(async () => {
  parent = mkdtempSync(join(tmpdir(), "remit-browser-"));
  dataDir = join(parent, "data");
  browser = await launchChromium();
  dev = await startedDev(dataDir);
  const stack = stackOf(dataDir);
  for (const { pid } of stack.processes) ours.add(pid);
  paymentId = String((await pay("order-1", "12.50"))["paymentId"]);
  ui = await openWebUi(browser, {
    uiUrl: stack.temporalUiUrl,
    namespace: stack.temporalNamespace,
  });
}, 150_000);

afterAll(async () => {
  await browser?.close();
  dev?.child.kill("SIGTERM");
  await dev?.exitCode;
  await waitUntil(
    "no process of the stack is left",
    () => processesOf(dataDir, [...ours]).length === 0,
  );
  rmSync(parent, { recursive: true, force: true });
}, 60_000);

/** The payment of the README's first screen, and others like it; returns what the command prints. */
async function pay(
  key: string,
  amount: string,
  ...more: string[]
): Promise<Record<string, unknown>> {
  const words = ["pay", "--from", "alice", "--to", "shop", "--amount", amount, "--currency", "EUR"];
  return await remit(...words, "--key", key, "--description", "two coffees", "--wait", ...more);
}

async function remit(...words: string[]): Promise<Record<string, unknown>> {
  const child = spawn(process.execPath, [REMIT, ...words, "--json", "--data-dir", dataDir], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.on("data", (text) => (output += String(text)));
  await new Promise((resolve) => child.once("close", resolve));
  return JSON.parse(output) as Record<string, unknown>;
}

describe("Temporal's Web UI", () => {
  test("finds a payment and its booking by RemitPaymentId", async () => {
    const found = await ui.search(`RemitPaymentId = "${paymentId}"`);

    const [, id] = new RegExp(`^ledger:(${UUID})$`).exec(found.toSorted()[0] ?? "") ?? [];
    messageId = id ?? "";
    expect(found.toSorted()).toEqual([`ledger:${messageId}`, "payment:default:order-1"]);
    await ui.picture("payment-list");
  });

  test("says of a payment who pays whom how much, and how it ended", async () => {
    await ui.search(`RemitPaymentId = "${paymentId}"`);
    await ui.open("payment:default:order-1");

    const { summary, details, currentDetails } = await ui.metadata();
    await ui.picture("payment");

    expect(summary).toBe("12.50 EUR alice → shop");
    expect(details).toMatch(/^12\.50 EUR from alice to shop, .*key order-1 .*merchant default/i);
    expect(details).toContain("two coffees");
    expect(currentDetails).toMatch(/^settled\b.*\.$/i);
    expect(currentDetails).toContain(paymentId);
    expect(await ui.searchAttributes()).toMatchObject({
      RemitPaymentId: paymentId,
      RemitMerchant: "default",
      RemitCurrency: "EUR",
    });
  });

  test("shows a payment's steps: accepted, recorded in one commit, told by the ledger", async () => {
    await ui.search(`RemitPaymentId = "${paymentId}"`);
    await ui.open("payment:default:order-1");

    const history = await ui.history();
    await ui.picture("payment-history", "table");

    const found = (words: RegExp): number => history.findIndex((row) => words.test(row));
    const steps = [
      found(/Workflow Execution Started .* Summary 12\.50 EUR alice → shop$/),
      found(/Update Accepted Name accept$/),
      found(
        /Local Activity .*recordPayment Summary key \+ payment \+ hold \+ outbox row, in one commit$/,
      ),
      found(/Workflow Execution Signaled .* ledgerDecision$/),
      found(/Workflow Execution Completed /),
    ];
    expect(steps).not.toContain(-1);
    expect(steps).toEqual(steps.toSorted((one, other) => one - other));
  });

  test("says of a refused request why, and that no money moved", async () => {
    await pay("order-2", "5000.00");

    const found = await ui.search('RemitStatus = "refused" AND RemitMerchant = "default"');
    await ui.open("payment:default:order-2");
    const { summary, currentDetails } = await ui.metadata();

    expect(found).toContain("payment:default:order-2");
    expect(summary).toBe("5000.00 EUR alice → shop");
    expect(currentDetails).toMatch(
      /^Refused: .*alice.*5000\.00.*insufficient_funds.*No money moved\.$/,
    );
  });

  test("says of an authorization until when its money is held, and what its timer waits for", async () => {
    // Whoever pays could otherwise put a bold word or a link of his own into what an operator reads.
    const forged = "**Settled** [rent](http://127.0.0.1:9/x) <b>now</b>";
    const terms = ["--capture", "manual", "--expires", "7d", "--description", forged];
    const payment = await pay("rent-1", "40.00", ...terms);
    const id = String(payment["paymentId"]);

    await ui.search(`RemitPaymentId = "${id}"`);
    await ui.open("payment:default:rent-1");
    const { summary, details, currentDetails } = await ui.metadata();

    expect(details).toContain(forged);
    expect(summary).toBe("40.00 EUR alice → shop");
    expect(currentDetails).toMatch(
      new RegExp(
        `^Authorized as ${id}: .*held until .*captured or voided, .*expires at 20\\d\\d-.*\\.$`,
      ),
    );
    expect(await ui.history()).toContainEqual(
      expect.stringMatching(/Timer Started .*Summary the authorization expires/),
    );
  });

  test("finds a booking by RemitMessageId, and says what it wrote", async () => {
    expect(await ui.search(`RemitMessageId = "${messageId}"`)).toEqual([`ledger:${messageId}`]);
    await ui.open(`ledger:${messageId}`);

    const { summary, currentDetails } = await ui.metadata();
    await ui.picture("ledger-entry");

    expect(summary).toContain("payment.created");
    expect(currentDetails).toMatch(
      new RegExp(`^Booked payment ${paymentId} as ledger transaction ${UUID}\\.$`),
    );
    expect(await ui.searchAttributes()).toMatchObject({
      RemitMessageId: messageId,
      RemitPaymentId: paymentId,
    });
    expect(await ui.history()).toContainEqual(
      expect.stringMatching(
        /applyLedgerEntries Summary inbox row \+ entries .*outbox row, in one commit$/,
      ),
    );
  });

  test("says how the relay stands, and what its activity does", async () => {
    await ui.search('WorkflowType = "outboxRelay" AND ExecutionStatus = "Running"');
    await ui.open("outbox-relay:0-63");

    const { summary, currentDetails } = await ui.metadata();
    await ui.picture("relay");

    expect(summary).toBe("publishes the outbox, shards 0 to 63");
    expect(currentDetails).toMatch(
      /^running since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\. Before this minute: (no|\d+) events published, no leases lost\. /,
    );
    // A window that has just begun reports by its first heartbeat, a second later.
    await eventually(async () =>
      expect(await ui.pendingActivities()).toMatch(/STARTED publishOutbox .*Heartbeat Details/),
    );
    expect(await ui.history()).toContainEqual(
      expect.stringMatching(/publishOutbox Summary claim → send → mark/),
    );
  });
});

describe("findChromium", () => {
  test("takes CHROMIUM_PATH, else a usual name on PATH", () => {
    const folder = join(dataDir, "no-browser-here");
    const PATH = [folder, process.env["PATH"]].join(delimiter);

    expect(findChromium({ CHROMIUM_PATH: process.execPath, PATH })).toBe(process.execPath);
    expect(findChromium({ PATH })).toMatch(/\/(chromium|chromium-browser|google-chrome)$/);
  });

  test("says how to get one where there is none", () => {
    expect(() => findChromium({ PATH: "/nowhere" })).toThrow(
      /apt-get install chromium.*\n.*CHROMIUM_PATH/,
    );
    expect(() => findChromium({ CHROMIUM_PATH: "/nowhere/chromium" })).toThrow("/nowhere/chromium");
  });
});
