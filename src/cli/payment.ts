import type { Command } from "commander";
import { Option } from "commander";
import { workflowUrlOf } from "../client/payment-client.ts";
import type { Settings } from "../config/settings.ts";
import { getPayment, listPayments } from "../database/payment-queries.ts";
import type { PaymentView } from "../database/payment-queries.ts";
import { DomainError } from "../domain/errors.ts";
import { PAYMENT_STATUSES } from "../domain/payment.ts";
import { contextOf, withDatabase } from "./context.ts";
import { registerExplain } from "./explain.ts";
import { addCommand, addGroup, integerBetween } from "./options.ts";
import { documentOfView, paymentText } from "./payment-view.ts";

/** `remit payment get|list`: from PostgreSQL alone. */
export function registerPayment(program: Command): void {
  const payment = addGroup(program, "payment", "look at payments");
  registerGet(payment);
  registerList(payment);
  registerExplain(payment);
}

function registerGet(payment: Command): void {
  addCommand(payment, {
    name: "get <id>",
    about: "a payment as it is now",
    examples: ["remit payment get 0193a1f2-… --json"],
  }).action(async (id: string, _options: unknown, command: Command) => {
    const context = contextOf(command);
    const settings = context.settings(["database"]);
    // What isn't a UUID can't be the id of a payment; PostgreSQL would call it a syntax error.
    const view = UUID_PATTERN.test(id)
      ? await withDatabase(settings, async (database) => await getPayment(database, id))
      : null;
    if (view === null) {
      throw new DomainError("payment_not_found", `there is no payment ${JSON.stringify(id)}`);
    }
    const document = currentDocument(view, settings);
    context.print({ json: document, text: paymentText(document) });
  });
}

interface ListOptions {
  readonly status?: string;
  readonly merchant?: string;
  readonly limit: number;
}

function registerList(payment: Command): void {
  addCommand(payment, {
    name: "list",
    about: "the newest payments",
    examples: ["remit payment list --status failed --limit 20"],
  })
    .addOption(new Option("--status <status>", "only these").choices(PAYMENT_STATUSES))
    .option("--merchant <merchant>", "only this merchant's")
    .option("--limit <n>", "at most so many", integerBetween(1, 10_000), 50)
    .action(async (options: ListOptions, command: Command) => {
      const context = contextOf(command);
      const settings = context.settings(["database"]);
      const { status, merchant, limit } = options;
      const views = await withDatabase(
        settings,
        async (database) =>
          await listPayments(database, {
            limit,
            ...(status === undefined ? {} : { status }),
            ...(merchant === undefined ? {} : { merchant }),
          }),
      );
      const payments = views.map((view) => currentDocument(view, settings));
      const text = payments.map(paymentText).join("\n") || "no payments";
      context.print({ json: { payments }, text });
    });
}

function currentDocument(view: PaymentView, { temporal }: Settings) {
  const { namespace, uiUrl } = temporal;
  return documentOfView(view, {
    replayed: false,
    urlOf: (workflowId) => workflowUrlOf(workflowId, { uiUrl, namespace }),
  });
}

const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
