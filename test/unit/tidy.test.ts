import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const files = execFileSync(
  "git",
  ["ls-files", "src", "test", "bench", "chaos", "bin", "migrations"],
  {
    encoding: "utf8",
  },
)
  .split("\n")
  .filter((file) => file !== "");
const code = files.filter((file) => /\.(ts|mjs)$/.test(file));

describe("the tree", () => {
  test("reads the environment in few places: the configuration, the local stack, what starts processes", () => {
    const readers = code.filter(
      (file) => file.startsWith("src/") && /\bprocess\.env\b/.test(readFileSync(file, "utf8")),
    );
    const allowed = /^src\/(config|local)\/|^src\/cli\/dev\.ts$/;
    expect(readers.filter((file) => !allowed.test(file))).toEqual([]);
  });

  test("has no file named for what it is not: utils, helpers, common, misc", () => {
    expect(
      files.filter((file) => /(^|[/-])(utils?|helpers?|common|misc|manager)[./-]/.test(file)),
    ).toEqual([]);
  });

  test("has no default export, no commented-out to-do and no skipped or focused test", () => {
    const own = code.filter((file) => file !== "test/unit/tidy.test.ts");
    const offending = own.filter((file) =>
      /^export default |\b(TODO|FIXME|XXX:)|\b(it|test|describe)\.(skip|only|todo)\b/m.test(
        readFileSync(file, "utf8"),
      ),
    );
    expect(offending).toEqual([]);
  });

  test("makes workflow ids in domain/ids.ts only", () => {
    const strays = code.filter(
      (file) =>
        file.startsWith("src/") &&
        file !== "src/domain/ids.ts" &&
        /workflowId: [`"']/.test(readFileSync(file, "utf8")),
    );
    expect(strays).toEqual([]);
  });

  test("opens a transaction in one place", () => {
    const openers = code.filter(
      (file) => file.startsWith("src/") && /["'`]BEGIN/.test(readFileSync(file, "utf8")),
    );
    expect(openers.toSorted()).toEqual(["src/database/database.ts", "src/database/invariants.ts"]);
  });
});
