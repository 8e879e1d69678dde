import type { Command } from "commander";
import { Option } from "commander";
import type { PaymentRequest } from "../client/parameters.ts";
import { parsePaymentRequest } from "../client/parameters.ts";
import { documentOfAnswer } from "../client/payment-document.ts";
import type { PaymentClient } from "../client/payment-client.ts";
import type { PaymentDocument } from "../client/payment-document.ts";
import { CONCURRENCY, runPaymentsFile } from "../client/run-payments-file.ts";
import type { Books } from "../client/run-payments-file.ts";
import type { Database } from "../database/database.ts";
import { DomainError } from "../domain/errors.ts";
import { CAPTURE_MODES } from "../domain/payment.ts";
import type { CaptureMode } from "../domain/payment.ts";
import { contextOf, withDatabase, withTemporal } from "./context.ts";
import type { CommandContext } from "./context.ts";
import { addCommand, integerBetween, parseDurationMs } from "./options.ts";
import { hasPayment, paymentText, refreshDocument } from "./payment-view.ts";

interface PayOptions {
  readonly from?: string;
  readonly to?: string;
  readonly amount?: string;
  readonly amountMinor?: string;
  readonly currency?: string;
  readonly key?: string;
  readonly merchant?: string;
  readonly description?: string;
  readonly capture?: CaptureMode;
  readonly expires?: string;
  /** `true` is `--wait` without a time. */
  readonly wait?: number | true;
  readonly endAtReceipt?: true;
  readonly file?: string;
  readonly concurrency?: number;
}

/** `remit pay`: one payment, or a file of them. */
export function registerPay(program: Command): void {
  addCommand(program, {
    name: "pay",
    about: "pay, once and only once per key; returns when the payment is recorded",
    examples: [
      "remit pay --from alice --to shop --amount 12.50 --currency EUR --key order-1 --wait",
      "remit pay --from world:EUR --to alice --amount-minor 100000 --currency EUR --key fund-1",
      "remit pay --from alice --to shop --amount 100 --currency EUR --key rent-1 --capture manual --expires 3d",
      "remit pay --file examples/payments.csv --concurrency 12 --json",
    ],
  })
    .option("--from <account>", "debited; world:EUR brings money in")
    .option("--to <account>", "credited")
    .option("--amount <decimal>", "in major units: 12.50")
    .option("--amount-minor <digits>", "in minor units: 1250")
    .option("--currency <code>", "ISO 4217 code")
    .option("--key <key>", "idempotency key: the same key never pays twice")
    .option("--merchant <merchant>", "whose key it is (default: default)")
    .option("--description <text>", "up to 500 characters")
    .addOption(new Option("--capture <mode>", "when the money moves").choices(CAPTURE_MODES))
    .option(
      "--expires <duration>",
      "with --capture manual: when what isn't captured goes back (7d)",
    )
    .option(
      "--wait [duration]",
      "wait until it is settled or failed (30s); authorized with --capture manual",
      parseDurationMs,
    )
    .option(
      "--end-at-receipt",
      "the payment's workflow ends when it is recorded: fewer Temporal events, and only PostgreSQL says how it ended",
    )
    .option("--file <path>", "a .csv or .jsonl of payments; waits for each")
    .option("--concurrency <n>", `with --file: at a time (${CONCURRENCY})`, integerBetween(1, 999))
    .action(async (options: PayOptions, command: Command) => {
      const context = contextOf(command);
      if (options.file === undefined) await payOne(context, requestOf(options), options);
      else process.exitCode = await payFile(context, options, options.file);
    });
}

const WAIT_MS = 30_000;

function waitMsOf({ wait, endAtReceipt }: PayOptions): number | null {
  if (wait === undefined) return null;
  if (endAtReceipt === true) {
    throw new DomainError(
      "usage",
      "--wait and --end-at-receipt: what is to be waited for needs a run",
    );
  }
  return wait === true ? WAIT_MS : wait;
}

function requestOf(options: PayOptions): PaymentRequest {
  if (options.concurrency !== undefined) {
    throw new DomainError("usage", "--concurrency goes with --file");
  }
  const missing = (["from", "to", "currency", "key"] as const).filter(
    (name) => options[name] === undefined,
  );
  if (missing.length > 0) {
    throw new DomainError("usage", `missing: ${missing.map((name) => `--${name}`).join(", ")}`);
  }
  const { from = "", to = "", currency = "", key = "" } = options;
  const { amount, amountMinor, merchant, description, capture, expires } = options;
  const request = {
    key,
    merchant,
    from,
    to,
    amount,
    amountMinor,
    currency,
    description,
    capture,
    expires,
  };
  // Before any connection: what is wrong by its shape must leave nothing behind, whatever runs or doesn't.
  parsePaymentRequest(request);
  return request;
}

async function payOne(
  context: CommandContext,
  request: PaymentRequest,
  options: PayOptions,
): Promise<void> {
  const waitMs = waitMsOf(options);
  const endsAtReceipt = options.endAtReceipt === true;
  const settings = context.settings(["database"]);
  const current = await withDatabase(settings, async (database) => {
    const { isRecorded, refresh } = booksOf(database);
    const document = await withTemporal(
      settings,
      async ({ payments }) => await payAndWait(payments, request, { endsAtReceipt, waitMs }),
      { isRecorded },
    );
    return await refresh(document);
  });
  if (waitMs !== null && ENDED_WITHOUT_MONEY.has(current.status)) throw paymentFailed(current);
  if (waitMs !== null && current.status === "pending") throw notEnded(current);
  context.print({ json: current, text: paymentText(current) });
}

async function payAndWait(
  payments: PaymentClient,
  request: PaymentRequest,
  { endsAtReceipt, waitMs }: { endsAtReceipt: boolean; waitMs: number | null },
): Promise<PaymentDocument> {
  const answer = await payments.pay(request, { endsAtReceipt });
  // An authorization is an answer; its end may be days away.
  if (waitMs === null || answer.parameters.capture === "manual") return documentOfAnswer(answer);
  return documentOfAnswer(answer, await payments.waitForEnd(answer, { timeoutMs: waitMs }));
}

const ENDED_WITHOUT_MONEY: ReadonlySet<string> = new Set([
  "failed",
  "cancelled",
  "expired",
  "voided",
]);

function paymentFailed(document: PaymentDocument): DomainError {
  const { paymentId, status, failureCode } = document;
  const reason = failureCode === null ? "" : `: ${failureCode}`;
  return new DomainError("payment_failed", `payment ${paymentId} is ${status}${reason}`, {
    details: { ...document },
  });
}

/** A run can be ended by hand with any word; only what PostgreSQL says is printed as an end. */
function notEnded(document: PaymentDocument): DomainError {
  const { paymentId, workflowId } = document;
  return new DomainError(
    "wait_timeout",
    `the run ${workflowId} has ended and payment ${paymentId} is still pending: ` +
      `the supervisor gives it another run, look with remit payment explain ${paymentId}`,
    { details: { ...document } },
  );
}

function booksOf(database: Database): Books {
  return {
    isRecorded: async (paymentId) => await hasPayment(database, paymentId),
    refresh: async (document) => await refreshDocument(database, document),
  };
}

async function payFile(
  context: CommandContext,
  options: PayOptions,
  path: string,
): Promise<number> {
  const others = (["from", "to", "amount", "amountMinor", "currency", "key"] as const).filter(
    (name) => options[name] !== undefined,
  );
  if (others.length > 0) {
    throw new DomainError("usage", `--file stands alone, found ${others.join(", ")} beside it`);
  }
  const settings = context.settings(["database"]);
  return await withDatabase(
    settings,
    async (database) =>
      await runPaymentsFile({
        path,
        settings,
        ...(options.concurrency === undefined ? {} : { concurrency: options.concurrency }),
        endsAtReceipt: options.endAtReceipt === true,
        isJson: context.isJson,
        output: context.output,
        books: booksOf(database),
      }),
  );
}
