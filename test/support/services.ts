/** What `test/run.ts` started, by the names of the variables in which jest's processes find it. */
export interface TestServices {
  /** The superuser's URL of the database `postgres`. */
  readonly REMIT_TEST_ADMIN_DATABASE_URL: string;
  /** A migrated database to clone: CREATE DATABASE … TEMPLATE …; nobody may be connected to it. */
  readonly REMIT_TEST_TEMPLATE: string;
  readonly REMIT_TEST_TEMPORAL_ADDRESS: string;
  readonly REMIT_TEST_TEMPORAL_BINARY: string;
  readonly REMIT_TEST_AWS_ENDPOINT_URL: string;
}

/** The services of this test run. */
export function testServices(): TestServices {
  return {
    REMIT_TEST_ADMIN_DATABASE_URL: required("REMIT_TEST_ADMIN_DATABASE_URL"),
    REMIT_TEST_TEMPLATE: required("REMIT_TEST_TEMPLATE"),
    REMIT_TEST_TEMPORAL_ADDRESS: required("REMIT_TEST_TEMPORAL_ADDRESS"),
    REMIT_TEST_TEMPORAL_BINARY: required("REMIT_TEST_TEMPORAL_BINARY"),
    REMIT_TEST_AWS_ENDPOINT_URL: required("REMIT_TEST_AWS_ENDPOINT_URL"),
  };
}

function required(name: keyof TestServices): string {
  const value = process.env[name];
  if (value !== undefined && value !== "") return value;
  throw new Error(
    `${name} is not set: tests with services run by \`npm test -- <path>\`, which starts them`,
  );
}
