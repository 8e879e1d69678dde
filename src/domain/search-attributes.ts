/** Temporal search attributes, all Keyword: an Int attribute would lose digits of an amount. */
export const SEARCH_ATTRIBUTES = [
  "RemitPaymentId",
  "RemitMerchant",
  "RemitCurrency",
  "RemitMessageId",
  "RemitStatus",
] as const;
