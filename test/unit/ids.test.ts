import {
  assertAccountId,
  assertIdempotencyKey,
  assertMerchant,
  workflowIds,
  worldAccountCurrency,
} from "../../src/domain/ids.ts";

describe("ids", () => {
  test("a merchant and a key can't be mistaken for another pair", () => {
    expect(workflowIds.payment({ merchant: "a", key: "b:c" })).toBe("payment:a:b:c");
    expect(() => assertMerchant("a:b", "merchant")).toThrow(/merchant: expected/);
  });

  test.each(["alice", "A.b_c:d-9", "x".repeat(64)])("%p is an account id", (id) => {
    expect(() => assertAccountId(id, "from")).not.toThrow();
  });

  test.each(["", "x".repeat(65), "a b", "a/b", "ä", "a\n"])("%p is no account id", (id) => {
    expect(() => assertAccountId(id, "from")).toThrow(/from: expected/);
  });

  test.each(["", "a b", "ä", "a\n", "\u0000", "x".repeat(256)])("%p is no key", (key) => {
    expect(() => assertIdempotencyKey(key, "key")).toThrow(/key: expected/);
  });

  test("only world:<CUR> is a world account", () => {
    const ids = ["world:EUR", "world:eur", "world:EURO", "my:world:EUR"];
    expect(ids.map(worldAccountCurrency)).toEqual(["EUR", null, null, null]);
  });
});
