import { supervise } from "../../src/local/supervise.ts";
import type { Exit, Service } from "../../src/local/processes.ts";

interface FakeService extends Service {
  readonly die: () => void;
}

function fakeService(pid: number): FakeService {
  let end: (exit: Exit) => void = () => undefined;
  const exited = new Promise<Exit>((resolve) => (end = resolve));
  return {
    pid,
    exited,
    die: () => end({ code: null, signal: "SIGKILL" }),
    stop: async () => end({ code: 0, signal: null }),
  };
}

async function superviseFakes(starts: readonly (() => FakeService)[]) {
  const log: string[] = [];
  let next = 0;
  let restarted: () => void = () => undefined;
  const restart = new Promise<void>((resolve) => (restarted = resolve));
  const part = await supervise({
    name: "broker",
    start: async () => {
      const start = starts[next++];
      if (start === undefined) throw new Error("started once too often");
      return start();
    },
    log: (line) => void log.push(line),
    onRestart: () => restarted(),
  });
  return { part, log, restart, starts: () => next };
}

describe("supervise", () => {
  test("starts a service that died again and says so", async () => {
    const { part, log, restart } = await superviseFakes([
      () => fakeService(1),
      () => fakeService(2),
    ]);

    part.current().die();
    await restart;

    expect(part.current().pid).toBe(2);
    expect(log).toEqual([
      "broker (pid 1) ended with SIGKILL; starting it again",
      "broker runs again, pid 2",
    ]);
    await part.stop();
  });

  test("tries again when the start fails", async () => {
    const { part, log, restart } = await superviseFakes([
      () => fakeService(1),
      () => {
        throw new Error("port in use");
      },
      () => fakeService(3),
    ]);

    part.current().die();
    await restart;

    expect(log[1]).toBe("broker can't be started: port in use");
    expect(part.current().pid).toBe(3);
    await part.stop();
  });

  test("doesn't start again what was stopped", async () => {
    const { part, log, starts } = await superviseFakes([() => fakeService(1)]);

    await part.stop();

    expect(starts()).toBe(1);
    expect(log).toEqual([]);
  });

  test("fails when the first start fails", async () => {
    const failing = superviseFakes([
      () => {
        throw new Error("port in use");
      },
    ]);

    await expect(failing).rejects.toThrow("port in use");
  });
});
