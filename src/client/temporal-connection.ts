import { Client, Connection } from "@temporalio/client";
import type { ConnectionOptions } from "@temporalio/client";
import { DomainError } from "../domain/errors.ts";

export interface TemporalTarget {
  readonly address: string;
  readonly namespace: string;
  readonly connectionOptions: ConnectionOptions;
}

export interface TemporalConnection {
  readonly client: Client;
  /** Call it when no call is under way: closing under a pending retry kills the process (agent-tempo#624). */
  readonly close: () => Promise<void>;
}

/**
 * Connects, and finds out within five seconds that nobody is there.
 * @throws DomainError `temporal_unreachable`
 */
export async function connectTemporal(target: TemporalTarget): Promise<TemporalConnection> {
  try {
    const connection = await Connection.connect({
      ...target.connectionOptions,
      address: target.address,
      connectTimeout: CONNECT_TIMEOUT_MS,
    });
    const client = new Client({ connection, namespace: target.namespace });
    return {
      client,
      close: async () => {
        await connection.close();
      },
    };
  } catch (error) {
    throw new DomainError(
      "temporal_unreachable",
      `expected a Temporal server at ${target.address}, found none that answers`,
      { cause: error },
    );
  }
}

const CONNECT_TIMEOUT_MS = 5_000;
