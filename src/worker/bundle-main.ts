import { createLogger } from "../observability/logger.ts";
import { temporalLogger } from "./temporal-logger.ts";
import { keepWorkflowBundle } from "./workflow-bundle.ts";

/** Run when an image is built: bundles the workflow code, so that no worker does it when it starts. */
const logger = createLogger({ name: "remit-bundle", level: "warn" });
process.stdout.write(`${await keepWorkflowBundle(temporalLogger(logger))}\n`);
