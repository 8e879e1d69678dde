import type { Settings } from "../../config/settings.ts";

/** As it is typed; credentials come from the environment or the profile, as ours do. */
export function temporalCommand({ temporal }: Settings, command: string, options: string): string {
  const { address, namespace } = temporal;
  return `temporal ${command} --address ${address} --namespace ${namespace} ${options}`;
}
