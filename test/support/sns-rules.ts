/** What SNS refuses of a PublishBatch, and how it says so, as recorded from AWS; the emulator lets most of it through. */

export interface BatchEntry {
  /** Its number in the call. */
  readonly member: number;
  readonly id: string;
  readonly message: string;
  readonly attributes: readonly { name: string; type: string; value: string }[];
  readonly groupId: string | null;
  readonly deduplicationId: string | null;
}

const BATCH_BYTES_MAX = 262_144;
const ENTRIES_MAX = 10;
const ATTRIBUTES_MAX = 10;

export function entriesOf(form: URLSearchParams): BatchEntry[] {
  const entries: BatchEntry[] = [];
  for (let member = 1; form.has(`PublishBatchRequestEntries.member.${member}.Id`); member += 1) {
    const at = `PublishBatchRequestEntries.member.${member}.`;
    entries.push({
      member,
      id: form.get(`${at}Id`) ?? "",
      message: form.get(`${at}Message`) ?? "",
      attributes: attributesOf(form, at),
      groupId: form.get(`${at}MessageGroupId`),
      deduplicationId: form.get(`${at}MessageDeduplicationId`),
    });
  }
  return entries;
}

function attributesOf(form: URLSearchParams, at: string): BatchEntry["attributes"] {
  const attributes: { name: string; type: string; value: string }[] = [];
  for (let nth = 1; form.has(`${at}MessageAttributes.entry.${nth}.Name`); nth += 1) {
    const entry = `${at}MessageAttributes.entry.${nth}.`;
    attributes.push({
      name: form.get(`${entry}Name`) ?? "",
      type: form.get(`${entry}Value.DataType`) ?? "",
      value: form.get(`${entry}Value.StringValue`) ?? "",
    });
  }
  return attributes;
}

/** The code by which the whole call fails: one entry at fault is enough. Null where AWS takes it. */
export function refusalOf(form: URLSearchParams, entries: readonly BatchEntry[]): string | null {
  if (form.get("Action") !== "PublishBatch") return null;
  const isFifo = form.get("TopicArn")?.endsWith(".fifo") === true;
  const ids = entries.map(({ id }) => id);
  if (entries.length === 0) return "EmptyBatchRequest";
  if (entries.length > ENTRIES_MAX) return "TooManyEntriesInBatchRequest";
  if (ids.some((id) => !/^[A-Za-z0-9_-]{1,80}$/.test(id))) return "InvalidBatchEntryId";
  if (new Set(ids).size < ids.length) return "BatchEntryIdsNotDistinct";
  if (entries.reduce((sum, entry) => sum + bytesOf(entry), 0) > BATCH_BYTES_MAX) {
    return "BatchRequestTooLong";
  }
  return (
    entries.map((entry) => refusalOfEntry(entry, isFifo)).find((code) => code !== null) ?? null
  );
}

function refusalOfEntry(
  { message, attributes, groupId, deduplicationId }: BatchEntry,
  isFifo: boolean,
): string | null {
  if (message === "" || !isXmlText(message)) return "InvalidParameter";
  if (isFifo !== (groupId !== null) || isFifo !== (deduplicationId !== null)) {
    return "InvalidParameter";
  }
  if (attributes.length > ATTRIBUTES_MAX) return "InvalidParameter";
  const names = attributes.map(({ name }) => name);
  if (new Set(names).size < names.length) return "InvalidParameter";
  const isWellFormed = attributes.every(
    ({ name, type, value }) =>
      /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,255}$/.test(name) &&
      /^(String|Number|Binary|String\.Array)$/.test(type) &&
      value !== "" &&
      isXmlText(value),
  );
  return isWellFormed ? null : "ParameterValueInvalid";
}

/** Body, and of each attribute name, type and value; bytes, not characters. */
function bytesOf({ message, attributes }: BatchEntry): number {
  const texts = attributes.map(({ name, type, value }) => `${name}${type}${value}`);
  return Buffer.byteLength(message) + Buffer.byteLength(texts.join(""));
}

function isXmlText(text: string): boolean {
  // eslint-disable-next-line no-control-regex
  return /^[\u0009\u000a\u000d\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]*$/u.test(text);
}
