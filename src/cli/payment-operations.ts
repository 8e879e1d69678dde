import type { Command } from "commander";
import type { PaymentClient } from "../client/payment-client.ts";
import type { PaymentHandle } from "../client/workflow-starts.ts";
import type { Settings } from "../config/settings.ts";
import type { Database } from "../database/database.ts";
import { getCapture, getRefund } from "../database/part-queries.ts";
import type { PartView } from "../database/part-queries.ts";
import type { PaymentView } from "../database/payment-queries.ts";
import { DomainError } from "../domain/errors.ts";
import { assertIdempotencyKey } from "../domain/ids.ts";
import { formatMajor, parseAmount } from "../domain/money.ts";
import type { CaptureMode } from "../domain/payment.ts";
import { assertText } from "../domain/text.ts";
import { contextOf, withDatabase, withTemporal } from "./context.ts";
import type { CommandContext } from "./context.ts";
import { addCommand, parseDurationMs } from "./options.ts";
import { currentDocument, paymentText, requirePayment } from "./payment-view.ts";

/** `remit payment capture|void|refund|cancel`: each through the payment's workflow, its end read from PostgreSQL. */
export function registerPaymentOperations(payment: Command): void {
  registerCapture(payment);
  registerVoid(payment);
  registerRefund(payment);
  registerCancel(payment);
}

interface PartOptions {
  readonly amount?: string;
  readonly amountMinor?: string;
  readonly currency?: string;
  readonly key: string;
  /** `true` is `--wait` without a time. */
  readonly wait?: number | true;
}

function registerCapture(payment: Command): void {
  withPart(
    addCommand(payment, {
      name: "capture <id>",
      about: "book all or a part of an authorized payment; nothing said: what is left",
      examples: [
        "remit payment capture 0193a1f2-… --key capture-1 --wait",
        "remit payment capture 0193a1f2-… --amount 40.00 --final --key capture-1",
      ],
    }),
  )
    .option("--final", "give what is left after it back to the source at once")
    .action(async (id: string, options: PartOptions & { final?: boolean }, command: Command) => {
      const { final = false, ...request } = options;
      await operate(command, { id, key: options.key, request }, async (at) => {
        const { handle, payments, database } = at;
        const answer = await payments.capture(handle, { ...request, final });
        const { captureId } = answer;
        const waitMs = waitMsOf(options);
        const read = async (): Promise<PartView> =>
          (await getCapture(database, captureId)) ?? forgotten(at, `capture ${captureId}`);
        let part = await read();
        if (part.status === "pending" && waitMs !== null) {
          await payments.waitForCapture(handle, captureId, { timeoutMs: waitMs });
          part = await read();
        }
        printPart(at, "capture", {
          id: captureId,
          replayed: answer.replayed,
          part,
          waited: waitMs !== null,
        });
      });
    });
}

function registerRefund(payment: Command): void {
  withPart(
    addCommand(payment, {
      name: "refund <id>",
      about: "give money that was booked back to the source; nothing said: what is left",
      examples: [
        "remit payment refund 0193a1f2-… --key refund-1 --wait",
        "remit payment refund 0193a1f2-… --amount 5.00 --reason 'one shoe missing' --key refund-1",
      ],
    }),
  )
    .option("--reason <text>", "up to 500 characters")
    .action(async (id: string, options: PartOptions & { reason?: string }, command: Command) => {
      if (options.reason !== undefined) assertText(options.reason, "--reason");
      await operate(command, { id, key: options.key, request: options }, async (at) => {
        const { handle, payments, database } = at;
        const answer = await payments.refund(handle, options);
        const { refundId, replayed } = answer;
        const waitMs = waitMsOf(options);
        const read = async (): Promise<PartView> =>
          (await getRefund(database, refundId)) ?? forgotten(at, `refund ${refundId}`);
        // What isn't there would be waited for in vain.
        await read();
        if (waitMs !== null) await payments.waitForRefund(answer, { timeoutMs: waitMs });
        printPart(at, "refund", {
          id: refundId,
          replayed,
          part: await read(),
          waited: waitMs !== null,
        });
      });
    });
}

function registerVoid(payment: Command): void {
  withWait(
    addCommand(payment, {
      name: "void <id>",
      about: "give what is not captured of an authorized payment back to the source",
      examples: ["remit payment void 0193a1f2-… --key void-1"],
    }),
  )
    .requiredOption("--key <key>", "idempotency key")
    .action(async (id: string, options: PartOptions, command: Command) => {
      await operate(command, { id, key: options.key, request: {} }, async (at) => {
        const { replayed } = await at.payments.void(at.handle, { key: options.key });
        // Whatever a void was answered with, the payment isn't authorized any more.
        const { status } = await requirePayment(at.database, at.handle.paymentId);
        if (status === "authorized") forgotten(at, `the void of payment ${at.handle.paymentId}`);
        await waitIfAsked(at, options);
        await printPayment(at, { replayed });
      });
    });
}

function registerCancel(payment: Command): void {
  withWait(
    addCommand(payment, {
      name: "cancel <id>",
      about: "end a payment that is not booked yet; a repeat changes nothing",
      examples: ["remit payment cancel 0193a1f2-…"],
    }),
  ).action(async (id: string, options: Pick<PartOptions, "wait">, command: Command) => {
    await operate(command, { id, key: null, request: {} }, async (at) => {
      const { changed } = await at.payments.cancel(at.handle);
      await waitIfAsked(at, options);
      await printPayment(at, { replayed: !changed });
    });
  });
}

/** A part that was captured before may still be on its way to the ledger. */
async function waitIfAsked(
  { payments, handle }: Operation,
  options: Pick<PartOptions, "wait">,
): Promise<void> {
  const waitMs = waitMsOf(options);
  if (waitMs !== null) await payments.waitForPayment(handle, { timeoutMs: waitMs });
}

function withPart(command: Command): Command {
  return withWait(command)
    .requiredOption("--key <key>", "idempotency key: the same key never does it twice")
    .option("--amount <decimal>", "in major units: 12.50")
    .option("--amount-minor <digits>", "in minor units: 1250")
    .option("--currency <code>", "refused where it isn't the payment's");
}

function withWait(command: Command): Command {
  return command.option(
    "--wait [duration]",
    "wait until it is booked or refused (30s)",
    parseDurationMs,
  );
}

const WAIT_MS = 30_000;

function waitMsOf({ wait }: Pick<PartOptions, "wait">): number | null {
  if (wait === undefined) return null;
  return wait === true ? WAIT_MS : wait;
}

/** What an operation works with. */
interface Operation {
  readonly context: CommandContext;
  readonly settings: Settings;
  readonly database: Database;
  readonly payments: PaymentClient;
  readonly view: PaymentView;
  readonly handle: PaymentHandle;
}

async function operate(
  command: Command,
  {
    id,
    key,
    request,
  }: { id: string; key: string | null; request: Pick<PartOptions, "amount" | "amountMinor"> },
  work: (operation: Operation) => Promise<void>,
): Promise<void> {
  // Before any connection: what is wrong by its shape must leave nothing behind, whatever runs or doesn't.
  if (key !== null) assertIdempotencyKey(key, "--key");
  const context = contextOf(command);
  const settings = context.settings(["database"]);
  await withDatabase(settings, async (database) => {
    const view = await requirePayment(database, id);
    if (request.amount !== undefined || request.amountMinor !== undefined) {
      parseAmount({ ...request, currency: view.currency });
    }
    const { paymentId, merchant, idempotencyKey, currency } = view;
    const capture = view.capture as CaptureMode;
    const handle = { paymentId, merchant, idempotencyKey, currency, capture };
    await withTemporal(settings, async ({ payments }) => {
      await work({ context, settings, database, payments, view, handle });
    });
  });
}

/** A run remembers what a failover or a restore made PostgreSQL forget, and answers its key so for as long as it is kept. */
function forgotten({ handle: { paymentId } }: Operation, what: string): never {
  throw new DomainError(
    "outcome_unknown",
    `Temporal answers for ${what}, which PostgreSQL doesn't have: a failover or a restore has forgotten it, so it isn't done`,
    {
      details: {
        paymentId,
        fix: "do it with a new key instead of this one, whose old answer Temporal repeats",
      },
    },
  );
}

function printPart(
  { context, view: { paymentId, currency } }: Operation,
  what: "capture" | "refund",
  {
    id,
    replayed,
    part,
    waited,
  }: { id: string; replayed: boolean; part: PartView; waited: boolean },
): void {
  const { amountMinor, status, failureCode } = part;
  const amount = formatMajor(amountMinor, currency);
  const document = {
    [`${what}Id`]: id,
    paymentId,
    status,
    amountMinor: amountMinor.toString(),
    amount,
    currency,
    failureCode,
    replayed,
  };
  if (waited && status === "failed") {
    throw new DomainError("payment_failed", `${what} ${id} failed: ${failureCode}`, {
      details: document,
    });
  }
  const again = replayed ? " (replayed)" : "";
  context.print({
    json: document,
    text: `${what} ${id}: ${status}${again}\n  ${amount} ${currency} of payment ${paymentId}`,
  });
}

async function printPayment(
  { context, settings, database, view }: Operation,
  { replayed }: { replayed: boolean },
): Promise<void> {
  const now = await requirePayment(database, view.paymentId);
  const document = { ...currentDocument(now, settings), replayed };
  context.print({ json: document, text: paymentText(document) });
}
