import { findExecutable } from "../support/executables.ts";

const GET_IT = [
  "install Prometheus (Debian, Ubuntu: apt-get install prometheus, which also starts one; macOS: brew install prometheus),",
  "or only unpack it as .ci/run does: apt-get download prometheus && dpkg-deb --extract prometheus_*.deb .",
].join("\n");

/** The server, which evaluates the rules as an operator's does. */
export function findPrometheus(env: NodeJS.ProcessEnv): string {
  return findExecutable(env, {
    variable: "PROMETHEUS_PATH",
    names: ["prometheus"],
    missing: `this test runs a real Prometheus and found no prometheus on PATH:\n${GET_IT}\nor set PROMETHEUS_PATH to the executable`,
  });
}

export function findPromtool(env: NodeJS.ProcessEnv): string {
  return findExecutable(env, {
    variable: "PROMTOOL_PATH",
    names: ["promtool"],
    missing: `this test runs the unit tests of the alert rules and found no promtool on PATH:\n${GET_IT}\nor set PROMTOOL_PATH to the executable`,
  });
}
