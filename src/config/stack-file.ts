import { readFileSync } from "node:fs";
import { z } from "zod";
import { DomainError } from "../domain/errors.ts";

const stackFileSchema = z.object({
  databaseUrl: z.string().min(1),
  /** May change the schema; only `remit migrate` uses it. */
  adminDatabaseUrl: z.string().min(1),
  temporalAddress: z.string().min(1),
  temporalNamespace: z.string().min(1),
  temporalUiUrl: z.string().min(1),
  awsEndpointUrl: z.string().min(1),
  awsRegion: z.string().min(1),
  topicArn: z.string().min(1),
  ledgerQueueUrl: z.string().min(1),
  ledgerDlqUrl: z.string().min(1),
  pid: z.int().positive(),
  processes: z.array(z.object({ name: z.string(), pid: z.int().positive() })),
});

/** `.remit/stack.json`: where the embedded stack listens and which processes it is. */
export type StackFile = z.infer<typeof stackFileSchema>;

/**
 * Reads a stack file, or null where there is none.
 * @throws DomainError `usage` where it can't be understood
 */
export function readStackFile(path: string): StackFile | null {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new DomainError("usage", `${path} can't be read`, { cause: error });
  }
  try {
    return stackFileSchema.parse(JSON.parse(text));
  } catch (error) {
    throw new DomainError("usage", `${path} is damaged: remove it and run npm start`, {
      cause: error,
    });
  }
}

/** Whether a process with this id exists; one that belongs to somebody else (EPERM) does. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
