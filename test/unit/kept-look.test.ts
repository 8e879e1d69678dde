import { setTimeout as delay } from "node:timers/promises";
import { keptLook } from "../../src/observability/kept-look.ts";

const SOON = { restMsMin: 0, waitMsMax: 1_000 };

describe("a kept look", () => {
  test("is taken once for all who ask at a time, and not again before its rest", async () => {
    let looks = 0;
    const ask = keptLook(async () => await Promise.resolve((looks += 1)), {
      restMsMin: 60_000,
      waitMsMax: 1_000,
    });
    const answers = await Promise.all(Array.from({ length: 20 }, ask));
    expect(answers.map(({ found }) => found)).toEqual(Array.from({ length: 20 }, () => 1));
    expect((await ask()).found).toBe(1);
    expect(looks).toBe(1);
  });

  test("rests ten times as long as it took, so that a slow one costs little", async () => {
    let looks = 0;
    const ask = keptLook(async () => {
      looks += 1;
      await delay(200);
    }, SOON);
    await ask();
    await delay(400);
    await ask();
    expect(looks).toBe(1);
  });

  test("keeps nobody waiting: what was found before is told while a slower one runs", async () => {
    const slow = Promise.withResolvers<string>();
    const answers = [Promise.resolve("first"), slow.promise];
    const ask = keptLook(async () => await (answers.shift() ?? Promise.resolve("none")), {
      restMsMin: 0,
      waitMsMax: 20,
    });
    expect((await ask()).found).toBe("first");
    await delay(50);
    expect((await ask()).found).toBe("first");
    slow.resolve("second");
    await delay(0);
    expect((await ask()).found).toBe("second");
  });

  test("that fails leaves nothing to tell, and the next one is told again", async () => {
    const answers = [async () => "well", async () => await Promise.reject(new Error("away"))];
    const ask = keptLook(async () => await (answers.shift() ?? (async () => "back"))(), SOON);
    const found = async (): Promise<string | null> => {
      await delay(30);
      return (await ask()).found;
    };
    expect([await found(), await found(), await found()]).toEqual(["well", null, "back"]);
  });
});
