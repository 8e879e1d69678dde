import type { Command } from "commander";
import { parseRoles, ROLES } from "../worker/roles.ts";
import type { Role } from "../worker/roles.ts";
import { contextOf } from "./context.ts";
import { addCommand } from "./options.ts";

/** `remit worker`: runs until SIGTERM or SIGINT, then drains. */
export function registerWorker(program: Command): void {
  addCommand(program, {
    name: "worker",
    about: "record payments, publish their events and book them",
    examples: ["remit worker", "remit worker --role relay,ledger"],
  })
    .option("--role <roles>", `some of ${ROLES.join(",")}`, parseRoles, [...ROLES])
    .action(async ({ role }: { role: Role[] }, command: Command) => {
      const settings = contextOf(command).settings(["database", "broker"]);
      const stopping = new AbortController();
      for (const signal of ["SIGTERM", "SIGINT"] as const) {
        process.once(signal, () => {
          stopping.abort();
        });
      }
      // Loaded only here: the worker's native part costs every other command half a second.
      const { runWorker } = await import("../worker/run-worker.ts");
      await runWorker(settings, role, { signal: stopping.signal });
    });
}
