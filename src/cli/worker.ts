import type { Command } from "commander";
import type { Settings } from "../config/settings.ts";
import { parseRoles, ROLES } from "../worker/roles.ts";
import type { Role } from "../worker/roles.ts";
import { stopSignals } from "../worker/stop-signals.ts";
import { contextOf } from "./context.ts";
import { addCommand, integerBetween } from "./options.ts";

/** `remit worker`: runs until SIGTERM or SIGINT, then drains; exits 1 where that took too long. */
export function registerWorker(program: Command): void {
  addCommand(program, {
    name: "worker",
    about: "record payments, publish their events and book them",
    examples: [
      "remit worker",
      "remit worker --role relay,ledger",
      "remit worker --health-port 8080",
    ],
  })
    .option("--role <roles>", `some of ${ROLES.join(",")}`, parseRoles, [...ROLES])
    .option(
      "--health-port <port>",
      "answer /livez, /readyz and /metrics there; 0: any free port (REMIT_HEALTH_PORT)",
      integerBetween(0, PORT_MAX),
    )
    .action(async (options: { role: Role[]; healthPort?: number }, command: Command) => {
      const settings = withHealthPort(
        contextOf(command).settings(["database", "broker"]),
        options.healthPort,
      );
      const { signal } = stopSignals();
      // Loaded only here: the worker's native part costs every other command half a second.
      const { runWorker } = await import("../worker/run-worker.ts");
      try {
        const { drained } = await runWorker(settings, options.role, { signal });
        if (!drained) process.exitCode = 1;
      } finally {
        // What didn't close keeps the process no longer than it takes to say so.
        setTimeout(() => process.exit(), LEFT_BEHIND_MS).unref();
      }
    });
}

const PORT_MAX = 65_535;
const LEFT_BEHIND_MS = 500;

function withHealthPort(settings: Settings, healthPort: number | undefined): Settings {
  if (healthPort === undefined) return settings;
  return { ...settings, worker: { ...settings.worker, healthPort } };
}
