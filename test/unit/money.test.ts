import fc from "fast-check";
import { CURRENCY_EXPONENTS } from "../../src/domain/currencies.ts";
import { DomainError } from "../../src/domain/errors.ts";
import {
  AMOUNT_MINOR_MAX,
  assertCurrency,
  formatMajor,
  parseAmount,
} from "../../src/domain/money.ts";
import type { AmountInput } from "../../src/domain/money.ts";

function codeOf(input: AmountInput): string {
  try {
    return parseAmount(input).toString();
  } catch (error) {
    if (error instanceof DomainError) return error.code;
    throw error;
  }
}

describe("parseAmount", () => {
  test.each([
    ["12.50", "EUR", 1_250n],
    ["12.5", "EUR", 1_250n],
    ["12", "EUR", 1_200n],
    ["1.0", "EUR", 100n],
    ["0.01", "EUR", 1n],
    ["10000", "JPY", 10_000n],
    ["1", "CLP", 1n],
    ["1", "UGX", 1n],
    ["1.234", "KWD", 1_234n],
    ["0.0001", "CLF", 1n],
    ["24155500.00", "EUR", 2_415_550_000n],
    ["90071992547409.93", "EUR", 9_007_199_254_740_993n],
    ["9999999999999999.99", "EUR", AMOUNT_MINOR_MAX],
  ])("reads %s %s in its minor unit", (amount, currency, expected) => {
    expect(parseAmount({ amount, currency })).toBe(expected);
  });

  test.each(
    [
      ["0", "-1", "-0", "+1", "1e3", "0x10", " 1", "1 ", "1.0", "01", "NaN", "１００", "", "99.9"],
      [null, true, [], {}, 1, 1n, 0.1],
    ].flat(),
  )("refuses %p as amountMinor", (amountMinor) => {
    expect(codeOf({ amountMinor, currency: "EUR" })).toBe("amount_invalid");
  });

  test.each(
    [
      [
        "0",
        "0.00",
        "-1",
        "+1",
        "1e3",
        "0x10",
        " 1",
        "01",
        "00.1",
        ".5",
        "1.",
        "1.234",
        "1,5",
        "12abc",
      ],
      ["NaN", "Infinity", "１", "", "1 000", "1_000", "1.2.3", "\n1", "1\n"],
      [null, true, [], {}, 1, 12.5, 1n],
    ].flat(),
  )("refuses %p as amount in EUR", (amount) => {
    expect(codeOf({ amount, currency: "EUR" })).toBe("amount_invalid");
  });

  test("refuses decimals in a currency that has none", () => {
    expect(codeOf({ amount: "100.0", currency: "JPY" })).toBe("amount_invalid");
  });

  test("refuses 10^18 minor units and what is longer, in either spelling", () => {
    const codes = [
      codeOf({ amountMinor: "1000000000000000000", currency: "EUR" }),
      codeOf({ amount: "10000000000000000", currency: "EUR" }),
      codeOf({ amountMinor: "9".repeat(1_000_000), currency: "EUR" }),
    ];
    expect(codes).toEqual(["amount_too_large", "amount_too_large", "amount_too_large"]);
  });

  test("wants exactly one of the two spellings", () => {
    expect(codeOf({ currency: "EUR" })).toBe("amount_invalid");
    expect(codeOf({ amount: "1", amountMinor: "100", currency: "EUR" })).toBe("amount_invalid");
  });

  test("names the line, the field and what was found, and repeats no megabyte of it", () => {
    const long = { amount: "x".repeat(1_000_000), currency: "EUR", path: "line 7" };
    expect(() => parseAmount(long)).toThrow(/^line 7: amount: expected .{1,200}$/);
  });

  test("reads back what formatMajor writes, for every currency and amount", () => {
    const currencies = fc.constantFrom(...CURRENCY_EXPONENTS.keys());
    const amounts = fc.bigInt({ min: 1n, max: AMOUNT_MINOR_MAX });
    fc.assert(
      fc.property(amounts, currencies, (amountMinor, currency) => {
        const amount = formatMajor(amountMinor, currency);
        expect(parseAmount({ amount, currency })).toBe(amountMinor);
        expect(parseAmount({ amountMinor: amountMinor.toString(), currency })).toBe(amountMinor);
      }),
    );
  });
});

describe("formatMajor", () => {
  test.each([
    [1_250n, "EUR", "12.50"],
    [5n, "EUR", "0.05"],
    [0n, "EUR", "0.00"],
    [-1_250n, "EUR", "-12.50"],
    [-5n, "EUR", "-0.05"],
    [100n, "JPY", "100"],
    [1n, "KWD", "0.001"],
    [12_345n, "UYW", "1.2345"],
  ])("writes %p %s as %s", (amountMinor, currency, expected) => {
    expect(formatMajor(amountMinor, currency)).toBe(expected);
  });

  test.each([
    [1_250n, "ZZZ", "1250 minor units"],
    [-5n, "eur", "-5 minor units"],
  ])("shows %p of a currency that isn't known, %s, as %s", (amountMinor, currency, expected) => {
    expect(formatMajor(amountMinor, currency)).toBe(expected);
  });
});

describe("the currency table", () => {
  test("has each current ISO 4217 code with its exponent, and no other", () => {
    const expected = new Map<string, number>();
    for (const [exponent, codes] of Object.entries(ISO_4217)) {
      for (const code of codes.match(/.{3}/g) ?? []) expected.set(code, Number(exponent));
    }
    expect(Object.fromEntries(CURRENCY_EXPONENTS)).toEqual(Object.fromEntries(expected));
  });

  test.each([
    "XAU",
    "XAG",
    "XPT",
    "XPD",
    "XXX",
    "XTS",
    "XDR",
    "XSU",
    "XUA",
    "XBA",
    "eur",
    "EU",
    "",
    "DEM",
  ])("refuses %p", (code) => {
    expect(() => assertCurrency(code, "currency")).toThrow(/ISO 4217/);
    expect(codeOf({ amount: "1", currency: code })).toBe("currency_unknown");
  });
});

/** Written apart from the table under test, by first letter, on 2026-12-01. */
const ISO_4217 = {
  0: "BIFCLPDJFGNFISKJPYKMFKRWPYGRWFUGXUYIVNDVUVXAFXOFXPF",
  2: [
    "AEDAFNALLAMDAOAARSAUDAWGAZN",
    "BAMBBDBDTBGNBMDBNDBOBBOVBRLBSDBTNBWPBYNBZD",
    "CADCDFCHECHFCHWCNYCOPCOUCRCCUPCVECZK",
    "DKKDOPDZDEGPERNETBEURFJDFKP",
    "GBPGELGHSGIPGMDGTQGYDHKDHNLHTGHUF",
    "IDRILSINRIRRJMDKESKGSKHRKPWKYDKZT",
    "LAKLBPLKRLRDLSL",
    "MADMDLMGAMKDMMKMNTMOPMRUMURMVRMWKMXNMXVMYRMZN",
    "NADNGNNIONOKNPRNZDPABPENPGKPHPPKRPLNQAR",
    "RONRSDRUBSARSBDSCRSDGSEKSGDSHPSLESOSSRDSSPSTNSVCSYPSZL",
    "THBTJSTMTTOPTRYTTDTWDTZSUAHUSDUSNUYUUZS",
    "VEDVESWSTXADXCDXCGYERZARZMWZWG",
  ].join(""),
  3: "BHDIQDJODKWDLYDOMRTND",
  4: "CLFUYW",
};
