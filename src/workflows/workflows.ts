/** What a worker registers: the bundle's entry. */
export { ledgerEntry } from "./ledger-entry.ts";
export { manualPayment } from "./manual-payment.ts";
export { outboxRelay } from "./outbox-relay.ts";
export { payment } from "./payment.ts";
export { refund } from "./refund.ts";
export { reconciliation } from "./reconciliation.ts";
export { retention } from "./retention.ts";
export { supervisor } from "./supervisor.ts";
