import { HorizonWatch } from "../../src/worker/horizon-watch.ts";

/** What a watch says at each look, in seconds; the looks are ten seconds apart. */
function heldAt(looks: readonly { xid: string | null; age: number }[]): number[] {
  let nowMs = 0;
  const watch = new HorizonWatch(() => nowMs);
  return looks.map((look) => {
    const [held] = watch.heldSeconds({ horizons: [{ holder: "session", ...look }] });
    nowMs += 10_000;
    return held?.value ?? Number.NaN;
  });
}

describe("a held transaction", () => {
  test("is timed from the first look that saw it", () => {
    const looks = [1, 5, 9].map((age) => ({ xid: "700", age }));
    expect(heldAt(looks)).toEqual([0, 10, 20]);
  });

  test("is timed anew where another one is the oldest, and is over where none is", () => {
    const looks = [
      { xid: "700", age: 3 },
      { xid: "700", age: 4 },
      { xid: "703", age: 2 },
      { xid: "703", age: 3 },
      { xid: null, age: 0 },
    ];
    expect(heldAt(looks)).toEqual([0, 10, 0, 10, 0]);
  });

  test("is none in an idle database, where every snapshot shows the same xid and nothing came after it", () => {
    expect(heldAt([0, 0, 0].map((age) => ({ xid: "700", age })))).toEqual([0, 0, 0]);
  });
});
