import type { Command } from "commander";
import { workflowUrlOf } from "../client/payment-client.ts";
import type { Settings } from "../config/settings.ts";
import { readKeyFact, readPaymentFacts } from "../database/payment-facts.ts";
import type { KeyFact } from "../database/payment-facts.ts";
import type { Database } from "../database/database.ts";
import { DomainError } from "../domain/errors.ts";
import { DEFAULT_MERCHANT } from "../domain/ids.ts";
import { contextOf, withDatabase } from "./context.ts";
import { refusalText, storyText, tellPayment } from "./explain-text.ts";
import type { PaymentStory } from "./explain-text.ts";
import { addCommand } from "./options.ts";

interface ExplainOptions {
  readonly key?: string;
  readonly merchant?: string;
}

/** `remit payment explain`: from PostgreSQL alone, so that it answers when Temporal is away or has forgotten. */
export function registerExplain(payment: Command): void {
  addCommand(payment, {
    name: "explain [id]",
    about: "what happened to a payment, what happens next, and what to do if it is stuck",
    examples: [
      "remit payment explain 0193a1f2-…",
      "remit payment explain --key order-1              also a request that was refused",
      "remit payment explain --key capture-1 --merchant acme --json",
    ],
  })
    .option("--key <key>", "instead of the id: of a payment, a capture, a void or a refund")
    .option("--merchant <merchant>", `whose key it is (${DEFAULT_MERCHANT})`)
    .action(async (id: string | undefined, options: ExplainOptions, command: Command) => {
      const context = contextOf(command);
      assertOneOf(id, options);
      const settings = context.settings(["database"]);
      context.print(
        await withDatabase(settings, async (database) =>
          options.key === undefined
            ? paymentResult(await story(database, { settings, paymentId: id ?? "" }))
            : await explainKey(database, { settings, options, key: options.key }),
        ),
      );
    });
}

function assertOneOf(id: string | undefined, { key, merchant }: ExplainOptions): void {
  if ((id === undefined) === (key === undefined)) {
    const found = id === undefined ? "neither" : "both";
    throw new DomainError("usage", `expected one of the payment's id and --key, found ${found}`);
  }
  if (key === undefined && merchant !== undefined) {
    throw new DomainError("usage", "--merchant says whose --key it is; an id needs none");
  }
}

/**
 * The story of one payment.
 * @throws DomainError `payment_not_found`
 */
export async function story(
  database: Database,
  { settings, paymentId }: { settings: Settings; paymentId: string },
): Promise<PaymentStory> {
  // What isn't a UUID can't be the id of a payment; PostgreSQL would call it a syntax error.
  const facts = UUID_PATTERN.test(paymentId) ? await readPaymentFacts(database, paymentId) : null;
  if (facts === null) {
    throw new DomainError("payment_not_found", `there is no payment ${JSON.stringify(paymentId)}`);
  }
  const { namespace, uiUrl } = settings.temporal;
  return tellPayment(facts, (workflowId) => workflowUrlOf(workflowId, { uiUrl, namespace }));
}

async function explainKey(
  database: Database,
  { settings, options, key }: { settings: Settings; options: ExplainOptions; key: string },
): Promise<{ json: unknown; text: string }> {
  const merchant = options.merchant ?? DEFAULT_MERCHANT;
  const fact = await readKeyFact(database, { merchant, key });
  if (fact === null) {
    throw new DomainError(
      "payment_not_found",
      `merchant ${merchant} has never used the key ${key}`,
    );
  }
  if (fact.refusal !== null || fact.paymentId === null) {
    return { json: { key: fact }, text: refusalText(fact) };
  }
  const told = paymentResult(await story(database, { settings, paymentId: fact.paymentId }));
  return { json: { key: fact, ...told.json }, text: `${keyText(fact)}\n\n${told.text}` };
}

function keyText({ key, merchant, operation, createdAt, paymentId }: KeyFact): string {
  const what = operation === "pay" ? "the payment itself" : `a ${operation}`;
  return `key ${key} of merchant ${merchant} is ${what}, accepted at ${createdAt.toISOString()}, of payment ${paymentId}`;
}

function paymentResult(told: PaymentStory): { json: PaymentStory; text: string } {
  return { json: told, text: storyText(told) };
}

const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
