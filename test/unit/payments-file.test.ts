import { appendFileSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FileLine } from "../../src/client/file-text.ts";
import { openPaymentsFile } from "../../src/client/payments-file.ts";
import { DomainError } from "../../src/domain/errors.ts";

const HEADER = "key,from,to,amount,currency";

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "remit-file-"));
});

afterEach(() => {
  rmSync(folder, { recursive: true });
});

function fileOf(name: string, content: string | Buffer): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

async function listOf<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const list: Item[] = [];
  for await (const item of items) list.push(item);
  return list;
}

async function linesOf(name: string, content: string | Buffer): Promise<FileLine[]> {
  const file = await openPaymentsFile(fileOf(name, content));
  try {
    const lines = await listOf(file.lines());
    expect(lines).toHaveLength(file.lineCount);
    return lines;
  } finally {
    await file.close();
  }
}

async function refusalOf(path: string): Promise<string> {
  try {
    await openPaymentsFile(path);
  } catch (error) {
    if (error instanceof DomainError) return `${error.code}: ${error.message.replace(folder, "")}`;
    throw error;
  }
  throw new Error("it was not refused");
}

const K1 = { key: "k1", from: "a", to: "b", amount: "1.00", currency: "EUR" };
const K2 = { key: "k2", from: "a", to: "b", amount: "2.00", currency: "EUR" };

describe("a CSV file", () => {
  test.each([
    ["plain", `${HEADER}\nk1,a,b,1.00,EUR\nk2,a,b,2.00,EUR\n`],
    ["with CRLF", `${HEADER}\r\nk1,a,b,1.00,EUR\r\nk2,a,b,2.00,EUR\r\n`],
    ["with a byte order mark", `\ufeff${HEADER}\nk1,a,b,1.00,EUR\nk2,a,b,2.00,EUR\n`],
    ["without a last newline", `${HEADER}\nk1,a,b,1.00,EUR\nk2,a,b,2.00,EUR`],
    ["with quotes", `${HEADER}\n"k1","a","b","1.00","EUR"\nk2,a,b,2.00,EUR`],
  ])("is read %s", async (_how, content) => {
    expect(await linesOf("p.csv", content)).toEqual([
      { line: 2, request: K1 },
      { line: 3, request: K2 },
    ]);
  });

  test("takes its columns in any order, and an empty cell as absent", async () => {
    const content = "currency,amountMinor,amount,to,from,key,description\nEUR,,1.00,b,a,k1,\n";
    expect(await linesOf("p.csv", content)).toEqual([{ line: 2, request: K1 }]);
  });

  test("names a record by its first line, past quoted newlines and blank lines", async () => {
    const content = `${HEADER},description\nk1,a,b,1.00,EUR,"x\ny"\n\nk2,a,b,2.00,EUR,z\n`;
    const lines = await linesOf("p.csv", content);
    expect(lines.map(({ line }) => line)).toEqual([2, 5]);
  });

  test("leaves bad values to each line's own answer", async () => {
    const lines = await linesOf("p.csv", `${HEADER}\n,a,a,-1,XXX\n`);
    expect(lines[0]?.request).toEqual({ from: "a", to: "a", amount: "-1", currency: "XXX" });
  });

  test.each([
    ["an empty file", "", "file_invalid: /p.csv is empty"],
    ["only a header", `${HEADER}\n`, "file_invalid: /p.csv holds no payment"],
    ["no header", "k1,a,b,1.00,EUR\n", "line 1: expected the columns"],
    ["an unknown column", `${HEADER},curency\nk1,a,b,1,EUR,x\n`, 'line 1.*unknown "curency"'],
    ["a column twice", `${HEADER},key\nk1,a,b,1,EUR,k\n`, "line 1.*two key"],
    ["no amount", "key,from,to,currency\nk1,a,b,EUR\n", "line 1.*no amount"],
    ["too few cells", `${HEADER}\nk1,a,b,1.00,EUR\nk2,a,b\n`, "line 3: expected as many cells"],
    ["too many cells", `${HEADER}\nk1,a,b,1,00,EUR\n`, "line 2: expected as many cells"],
    ["an open quote", `${HEADER}\nk1,a,b,1.00,"EUR\n`, "quote"],
    ["a very long line", `${HEADER}\n${"x".repeat(100_000)},a,b,1,EUR\n`, "line 2: .* at most"],
    ["Latin-1 letters", Buffer.from(`${HEADER}\nk1,ä,b,1,EUR\n`, "latin1"), "UTF-8"],
  ])("with %s is refused as a whole", async (_what, content, expected) => {
    expect(await refusalOf(fileOf("p.csv", content))).toMatch(
      new RegExp(`^file_invalid: .*${expected.replace("file_invalid: ", "")}`),
    );
  });
});

describe("a JSONL file", () => {
  test("is read past blank lines, CRLF and a byte order mark", async () => {
    const content = `\ufeff${JSON.stringify(K1)}\r\n\r\n${JSON.stringify(K2)}`;
    expect(await linesOf("p.jsonl", content)).toEqual([
      { line: 1, request: K1 },
      { line: 3, request: K2 },
    ]);
  });

  test("takes a text that only looks like fields as the text that it is", async () => {
    const description = '"amount": "1", "amount": "2" \\" {"amount": 1}';
    const request = { ...K1, description };
    expect(await linesOf("p.jsonl", JSON.stringify(request))).toEqual([{ line: 1, request }]);
  });

  test.each([
    ["broken JSON", `${JSON.stringify(K1)}\n{"key":`, "line 2: expected a JSON object"],
    ["an array", "[]", "line 1: expected a JSON object"],
    ["an unknown field", '{"curency":"EUR"}', 'line 1: expected the fields .*"curency"'],
    [
      "a field twice",
      '{"amount":"1.00","key":"k","amount":"9.00"}',
      'line 1: found the field "amount" twice',
    ],
    [
      "a field twice, once in escapes",
      String.raw`{"amountMinor":"100","key":"k","amount\u004dinor":"900"}`,
      'line 1: found the field "amountMinor" twice',
    ],
    [
      "a field twice, once in escapes alone and with spaces",
      String.raw`{"\u006b\u0065\u0079" : "k1", "from": "a", "key" : "k2"}`,
      'line 1: found the field "key" twice',
    ],
    [
      "a field twice, once an object that holds the name as well",
      '{"amount":{"amount":"1"},"key":"k","amount":"9.00"}',
      'line 1: found the field "amount" twice',
    ],
    [
      "a field twice, once a list of objects",
      '{"amount":"9.00","key":"k","amount":[{"amount":"1"},["]"]]}',
      'line 1: found the field "amount" twice',
    ],
    ["a very long line", `{"key":"${"x".repeat(200_000)}"}`, "line 1: expected at most"],
    ["blank lines alone", "\n\n", "holds no payment"],
  ])("with %s is refused as a whole", async (_what, content, expected) => {
    expect(await refusalOf(fileOf("p.jsonl", content))).toMatch(new RegExp(expected));
  });
});

describe("any file", () => {
  test("that isn't there, is a folder or has another name is refused", async () => {
    expect(await refusalOf(join(folder, "absent.csv"))).toMatch(/doesn't exist/);
    expect(await refusalOf(fileOf("p.txt", HEADER))).toMatch(/ends in .csv or .jsonl/);
    expect(await refusalOf(folder)).toMatch(/ends in .csv or .jsonl/);
    expect(await refusalOf("/dev/null/x.csv")).toMatch(/can't be opened/);
  });

  test("ends where it ended when it was opened, however it grows", async () => {
    const path = fileOf("p.csv", `${HEADER}\nk1,a,b,1.00,EUR\n`);
    const file = await openPaymentsFile(path);
    appendFileSync(path, "k2,a,b,2.00,EUR\nbroken");
    expect(await listOf(file.lines())).toEqual([{ line: 2, request: K1 }]);
    await file.close();
  });

  const LINES_MANY = 20_000;
  const editedNearItsEnd = (text: string): string => {
    const at = text.lastIndexOf("125.00");
    return `${text.slice(0, at)}9${text.slice(at + 1)}`;
  };
  const csv = (nth: number, amount: string): string => `k${nth},a,b,${amount},EUR`;
  const json = (nth: number, amount: string): string =>
    JSON.stringify({ key: `k${nth}`, from: "a", to: "b", amount, currency: "EUR" });
  test.each([
    ["cut short", "p.csv", [HEADER], csv, (text: string) => text.slice(0, text.length / 2)],
    ["cut short", "p.jsonl", [], json, (text: string) => text.slice(0, text.length / 2)],
    ["edited", "p.csv", [HEADER], csv, editedNearItsEnd],
    ["edited", "p.jsonl", [], json, editedNearItsEnd],
  ])(
    "that is %s in place while it is paid ends before the change: %s",
    async (_how, name, head, lineOf, change) => {
      const rows = Array.from({ length: LINES_MANY }, (_row, nth) => lineOf(nth, "125.00"));
      const text = `${[...head, ...rows].join("\n")}\n`;
      const path = fileOf(name, text);
      const file = await openPaymentsFile(path);
      const amounts = new Set<unknown>();
      const reading = (async () => {
        for await (const { request } of file.lines()) {
          if (amounts.size === 0) writeFileSync(path, change(text), { flag: "r+" });
          if (amounts.size === 0) truncateSync(path, change(text).length);
          amounts.add(request["amount"]);
        }
      })();
      await expect(reading).rejects.toMatchObject({
        code: "outcome_unknown",
        message: expect.stringContaining("was changed while it was read") as string,
      });
      expect([...amounts]).toEqual(["125.00"]);
      await file.close();
    },
  );

  test("of 100,000 lines is read twice in bounded memory", async () => {
    const rows = Array.from({ length: 100_000 }, (_row, index) => `k${index},a,b,1.00,EUR`);
    const file = await openPaymentsFile(fileOf("p.csv", `${HEADER}\n${rows.join("\n")}\n`));
    let count = 0;
    for await (const { line } of file.lines()) {
      count++;
      expect(line).toBe(count + 1);
      if (count === 1_000) break;
    }
    expect(file.lineCount).toBe(100_000);
    await file.close();
  });
});
