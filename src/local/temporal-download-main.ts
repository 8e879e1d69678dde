import { TestWorkflowEnvironment } from "@temporalio/testing";

/** Makes Temporal's SDK download its dev server into the folder named as the argument. */

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error("usage: temporal-download-main.ts <folder>");
const environment = await TestWorkflowEnvironment.createLocal({
  server: { executable: { type: "cached-download", downloadDir: directory } },
});
await environment.teardown();
