import { randomBytes } from "node:crypto";
import { ensureTopology } from "../../src/messaging/topology.ts";
import { testServices } from "../support/services.ts";

test("topic, queues and filtered subscription are made once: a second call finds them and changes nothing", async () => {
  const target = {
    endpointUrl: testServices().REMIT_TEST_AWS_ENDPOINT_URL,
    region: "us-east-1",
    credentials: { accessKeyId: "local", secretAccessKey: "local" },
  };
  const prefix = `twice-${randomBytes(4).toString("hex")}`;
  const first = await ensureTopology(target, { prefix });
  expect(await ensureTopology(target, { prefix })).toEqual(first);
});
