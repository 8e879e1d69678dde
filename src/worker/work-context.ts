import type { NativeConnection } from "@temporalio/worker";
import type { SupervisorActivities } from "../activities/supervise.ts";
import type { Settings } from "../config/settings.ts";
import type { Database } from "../database/database.ts";
import type { Logger } from "../observability/logger.ts";
import type { WorkerHealth } from "./health-checks.ts";
import type { OpenParts } from "./open-parts.ts";
import type { Role } from "./roles.ts";
import type { TemporalStarts } from "./temporal-starts.ts";
import type { WorkerMetrics } from "./worker-metrics.ts";

/** What the steps of a worker's start share. */
export interface WorkContext {
  readonly settings: Settings;
  readonly roles: readonly Role[];
  readonly logger: Logger;
  readonly parts: OpenParts;
  readonly health: WorkerHealth;
  readonly measured: WorkerMetrics;
  readonly signal: AbortSignal;
}

/** The same once its connections are open. */
export interface WorkerParts extends WorkContext {
  readonly database: Database;
  readonly connection: NativeConnection;
  readonly starts: TemporalStarts;
  readonly supervision: SupervisorActivities;
}
