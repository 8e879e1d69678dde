import { fingerprintOf } from "../../src/domain/fingerprint.ts";
import { parsePaymentRequest } from "../../src/client/parameters.ts";
import { DomainError } from "../../src/domain/errors.ts";

const REQUEST = { key: "order-1", from: "alice", to: "shop", amount: "12.50", currency: "EUR" };

function refusalOf(input: unknown): [code: string, path: unknown, prefix: string | undefined] {
  try {
    parsePaymentRequest(input, "line 3");
  } catch (error) {
    if (error instanceof DomainError) {
      return [error.code, error.details["path"], /^line 3: /.exec(error.message)?.[0]];
    }
    throw error;
  }
  throw new Error("it was not refused");
}

describe("parsePaymentRequest", () => {
  test("fills in what wasn't said", () => {
    expect(parsePaymentRequest(REQUEST)).toEqual({
      merchant: "default",
      idempotencyKey: "order-1",
      source: "alice",
      destination: "shop",
      amountMinor: "1250",
      currency: "EUR",
      capture: "automatic",
      description: null,
    });
  });

  test.each([
    [{ key: "a b" }, "key_invalid", "key"],
    [{ key: undefined }, "key_invalid", "key"],
    [{ key: 7 }, "key_invalid", "key"],
    [{ merchant: "A" }, "merchant_invalid", "merchant"],
    [{ from: "" }, "account_invalid", "from"],
    [{ from: null }, "account_invalid", "from"],
    [{ to: "alice" }, "same_account", "to"],
    [{ amount: "0" }, "amount_invalid", "amount"],
    [{ amount: 12.5 }, "amount_invalid", "amount"],
    [{ amountMinor: "1250" }, "amount_invalid", "amountMinor"],
    [{ amount: undefined }, "amount_invalid", "amount"],
    [{ amount: "10000000000000000" }, "amount_too_large", "amount"],
    [{ currency: "XAU" }, "currency_unknown", "currency"],
    [{ currency: undefined }, "currency_unknown", "currency"],
    [{ description: "\u0000" }, "text_invalid", "description"],
    [{ capture: "later" }, "usage", "capture"],
    [{ curency: "EUR" }, "usage", "curency"],
  ])("refuses %j with %s at %s", (change, code, path) => {
    expect(refusalOf({ ...REQUEST, ...change })).toEqual([code, path, "line 3: "]);
  });

  test.each([null, undefined, "x", 1, []])("refuses %p, which is no object", (input) => {
    expect(refusalOf(input)[0]).toBe("usage");
  });
});

describe("fingerprintOf", () => {
  const fingerprint = (change: object): string =>
    fingerprintOf(parsePaymentRequest({ ...REQUEST, ...change }));

  test("stays what it was in every release", () => {
    expect(fingerprint({})).toBe(
      "f94d44aa6037473704c48ece96459b6fa76a817a38281f530a9714c15f729190",
    );
  });

  test("is one for all spellings of one request", () => {
    const spellings = [
      fingerprint({ amount: "12.5" }),
      fingerprint({ amount: undefined, amountMinor: "1250" }),
      fingerprint({ description: null }),
      fingerprint({ description: undefined }),
      fingerprint({ capture: "automatic" }),
      fingerprint({ merchant: "default" }),
    ];
    expect(new Set([fingerprint({}), ...spellings]).size).toBe(1);
  });

  test("differs with every parameter", () => {
    const changes = [
      {},
      { from: "bob" },
      { to: "bob" },
      { from: "shop", to: "alice" },
      { amount: "12.51" },
      { currency: "USD" },
      { description: "" },
      { description: "x" },
    ];
    expect(new Set(changes.map(fingerprint)).size).toBe(changes.length);
  });
});
