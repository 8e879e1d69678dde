import type { Command } from "commander";
import { InvalidArgumentError } from "commander";
import { contextOf } from "./context.ts";
import { addCommand } from "./options.ts";

/** The parts of a worker; together in one process unless said. */
export const WORKER_ROLES = ["payments", "relay", "ledger"] as const;
export type WorkerRole = (typeof WORKER_ROLES)[number];

/** `remit worker`: runs until SIGTERM or SIGINT, which it answers itself by draining. */
export function registerWorker(program: Command): void {
  addCommand(program, {
    name: "worker",
    about: "record payments, publish their events and book them",
    examples: ["remit worker", "remit worker --role relay"],
  })
    .option("--role <roles>", `some of ${WORKER_ROLES.join(",")}`, parseRoles, [...WORKER_ROLES])
    .action(async ({ role }: { role: WorkerRole[] }, command: Command) => {
      const settings = contextOf(command).settings(["database", "broker"]);
      // Loaded only here: the worker's native part costs every other command half a second.
      const { runWorker } = await import("../worker/run-worker.ts");
      await runWorker(settings, role);
    });
}

function parseRoles(text: string): WorkerRole[] {
  const roles = WORKER_ROLES.filter((role) => text.split(",").includes(role));
  if (text.split(",").every((word) => WORKER_ROLES.some((role) => role === word))) return roles;
  throw new InvalidArgumentError(`expected some of ${WORKER_ROLES.join(",")}`);
}
