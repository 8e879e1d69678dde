import { join } from "node:path";
import type { ConnectionOptions } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import type { Env, EnvReader, SettingSource } from "./env-reader.ts";

/** Where Temporal is, and how to be let in. */
export interface TemporalSettings {
  readonly address: string;
  readonly namespace: string;
  readonly uiUrl: string | null;
  /** TLS, API key and metadata; for `Connection.connect` and `NativeConnection.connect` alike. */
  readonly connectionOptions: TemporalConnectionOptions;
}

export type TemporalConnectionOptions = Pick<ConnectionOptions, "tls" | "metadata"> & {
  readonly apiKey?: string;
};

/** Reads Temporal's variables and profile as Temporal's own tools do; problems stay with the reader. */
export function readTemporal(reader: EnvReader, env: Env): TemporalSettings {
  const uiUrl = reader.url("REMIT_TEMPORAL_UI_URL", { protocols: ["http:", "https:"] });
  try {
    const entries = Object.entries(env).filter(([, value]) => value !== undefined && value !== "");
    const filled = Object.fromEntries(entries) as Record<string, string>;
    const { connectionOptions, namespace } = loadClientConnectConfig({ overrideEnvVars: filled });
    const { address, tls, metadata, apiKey } = connectionOptions;
    const found = new ProfileValues(reader, filled);
    return {
      address: found.text("TEMPORAL_ADDRESS", address, DEFAULT_ADDRESS),
      namespace: found.text("TEMPORAL_NAMESPACE", namespace, DEFAULT_NAMESPACE),
      uiUrl,
      connectionOptions: {
        ...(found.isOn("TEMPORAL_TLS", tls) ? { tls } : {}),
        ...(metadata === undefined ? {} : { metadata }),
        ...(found.isSecret("TEMPORAL_API_KEY", apiKey) ? { apiKey } : {}),
      },
    };
  } catch {
    // The reason may quote the file, which holds keys.
    reader.problem(
      "Temporal's profile can't be read (TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE, TEMPORAL_TLS_…)",
    );
    return {
      address: DEFAULT_ADDRESS,
      namespace: DEFAULT_NAMESPACE,
      uiUrl,
      connectionOptions: {},
    };
  }
}

const DEFAULT_ADDRESS = "localhost:7233";
const DEFAULT_NAMESPACE = "default";
const DEFAULT_PROFILE = "default";

/** Tells the reader for each value whether a variable, the profile, or nothing said it. */
class ProfileValues {
  readonly #reader: EnvReader;
  readonly #profile: SettingSource;

  constructor(reader: EnvReader, env: Env) {
    this.#reader = reader;
    const name = reader.text("TEMPORAL_PROFILE", { fallback: DEFAULT_PROFILE });
    const file = reader.text("TEMPORAL_CONFIG_FILE", { fallback: defaultFile(env) });
    this.#profile = { kind: "profile", where: `${file}#${name}` };
  }

  text(name: string, found: string | undefined, fallback: string): string {
    if (this.#reader.optional(name) === null) {
      if (found === undefined) return this.#reader.text(name, { fallback });
      this.#reader.resolved(name, found, this.#profile);
    }
    return found ?? fallback;
  }

  isOn<Tls>(name: string, found: Tls | undefined): found is Tls {
    const isOn = found !== undefined && found !== null && found !== false;
    if (this.#reader.optional(name) === null) {
      const source = isOn ? this.#tlsSource() : DEFAULT;
      this.#reader.resolved(name, isOn ? "on" : "off", source);
    }
    return found !== undefined;
  }

  isSecret(name: string, found: unknown): found is string {
    const isFound = typeof found === "string";
    if (!this.#reader.secret(name) && isFound) this.#reader.resolved(name, "set", this.#profile);
    return isFound;
  }

  /** An API key turns TLS on by itself. */
  #tlsSource(): SettingSource {
    return this.#reader.secret("TEMPORAL_API_KEY")
      ? { kind: "environment", where: "TEMPORAL_API_KEY" }
      : this.#profile;
  }
}

const DEFAULT: SettingSource = { kind: "default", where: null };

/** Where Temporal's library looks on this system; shown, and never read by us. */
function defaultFile(env: Env): string {
  const folder = env["XDG_CONFIG_HOME"] ?? join("~", ".config");
  return join(folder, "temporalio", "temporal.toml");
}
