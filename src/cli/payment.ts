import type { Command } from "commander";
import { Option } from "commander";
import { listPayments } from "../database/payment-queries.ts";
import { PAYMENT_STATUSES } from "../domain/payment.ts";
import { contextOf, withDatabase } from "./context.ts";
import { registerExplain } from "./explain.ts";
import { addCommand, addGroup, integerBetween } from "./options.ts";
import { registerPaymentOperations } from "./payment-operations.ts";
import { currentDocument, paymentText, requirePayment } from "./payment-view.ts";

/** `remit payment get|list|explain`, from PostgreSQL alone, and what may be done to a payment. */
export function registerPayment(program: Command): void {
  const payment = addGroup(
    program,
    "payment",
    "look at payments, capture, void, refund and cancel them",
  );
  registerGet(payment);
  registerList(payment);
  registerExplain(payment);
  registerPaymentOperations(payment);
}

function registerGet(payment: Command): void {
  addCommand(payment, {
    name: "get <id>",
    about: "a payment as it is now",
    examples: ["remit payment get 0193a1f2-… --json"],
  }).action(async (id: string, _options: unknown, command: Command) => {
    const context = contextOf(command);
    const settings = context.settings(["database"]);
    const view = await withDatabase(
      settings,
      async (database) => await requirePayment(database, id),
    );
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
