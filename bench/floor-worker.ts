import { fileURLToPath } from "node:url";
import { NativeConnection, Worker } from "@temporalio/worker";

/** The floor's worker, in a process of its own as Remit's is; ends with the process that started it. */
const FLOOR_TASK_QUEUE = "bench-floor";
const connection = await NativeConnection.connect({
  address: process.env["TEMPORAL_ADDRESS"] ?? "",
});
const worker = await Worker.create({
  connection,
  taskQueue: FLOOR_TASK_QUEUE,
  workflowsPath: fileURLToPath(new URL("./floor-workflows.ts", import.meta.url)),
  activities: { nothing: async () => await Promise.resolve() },
});
process.once("disconnect", () => process.exit(0));
const running = worker.run();
process.send?.({ type: "ready" });
await running;
