/** What SQS refuses, and how it says so, as recorded from AWS and documented; the emulator lets most of it through. */

export interface SqsRefusal {
  /** As the SDK names the error. */
  readonly code: string;
  /** As the query protocol named it before, which AWS sends along in a header. */
  readonly queryCode: string;
}

/** An entry of a batch that SQS refuses alone, with HTTP 200 for the call: unlike SNS, it doesn't fail the others. */
export interface RefusedEntry {
  readonly Id: string;
  readonly Code: string;
  readonly Message: string;
  readonly SenderFault: true;
}

interface SqsMessage {
  readonly Id?: string;
  readonly MessageBody?: string;
  readonly MessageAttributes?: Readonly<Record<string, SqsAttribute>>;
  readonly MessageGroupId?: string;
}

interface SqsAttribute {
  readonly DataType?: string;
  readonly StringValue?: string;
  readonly BinaryValue?: string;
}

export interface SqsRequest extends SqsMessage {
  readonly QueueUrl?: string;
  readonly Entries?: readonly (SqsMessage & { readonly VisibilityTimeout?: number })[];
  readonly MaxNumberOfMessages?: number;
  readonly WaitTimeSeconds?: number;
  readonly VisibilityTimeout?: number;
}

const MESSAGE_BYTES_MAX = 1_048_576;
const ENTRIES_MAX = 10;
const ATTRIBUTES_MAX = 10;
const VISIBILITY_SECONDS_MAX = 12 * 3_600;
const INVALID_PARAMETER = refusal("InvalidParameterValue", "InvalidParameterValue");

/** Why the whole call fails; null where AWS takes it. */
export function refusalOfSqs(action: string, request: SqsRequest): SqsRefusal | null {
  const seconds = [request.VisibilityTimeout, ...(request.Entries ?? []).map(visibilityOf)];
  if (!seconds.every((value) => isBetween(value, 0, VISIBILITY_SECONDS_MAX))) {
    return INVALID_PARAMETER;
  }
  if (action === "ReceiveMessage") {
    const { MaxNumberOfMessages, WaitTimeSeconds } = request;
    return isBetween(MaxNumberOfMessages, 1, 10) && isBetween(WaitTimeSeconds, 0, 20)
      ? null
      : INVALID_PARAMETER;
  }
  if (action === "SendMessage") return refusalOfMessage(request, isFifo(request));
  return action.endsWith("Batch") ? refusalOfBatch(action, request) : null;
}

function refusalOfBatch(action: string, { Entries = [] }: SqsRequest): SqsRefusal | null {
  const ids = Entries.map(({ Id = "" }) => Id);
  if (ids.length === 0) return refusal("EmptyBatchRequest", queryCode("EmptyBatchRequest"));
  if (ids.length > ENTRIES_MAX) return batchRefusal("TooManyEntriesInBatchRequest");
  if (ids.some((id) => !/^[A-Za-z0-9_-]{1,80}$/.test(id))) {
    return batchRefusal("InvalidBatchEntryId");
  }
  if (new Set(ids).size < ids.length) return batchRefusal("BatchEntryIdsNotDistinct");
  const bytes = Entries.reduce((sum, entry) => sum + bytesOf(entry), 0);
  return action === "SendMessageBatch" && bytes > MESSAGE_BYTES_MAX
    ? batchRefusal("BatchRequestTooLong")
    : null;
}

/** Of a SendMessageBatch that is taken as a whole: what AWS refuses entry by entry. */
export function refusedEntriesOf(action: string, request: SqsRequest): RefusedEntry[] {
  if (action !== "SendMessageBatch") return [];
  return (request.Entries ?? []).flatMap((entry) => {
    const refused = refusalOfMessage(entry, isFifo(request));
    return refused === null
      ? []
      : [{ Id: entry.Id ?? "", Code: refused.code, Message: "refused", SenderFault: true }];
  });
}

function refusalOfMessage(message: SqsMessage, toFifo: boolean): SqsRefusal | null {
  const { MessageBody = "", MessageAttributes = {}, MessageGroupId } = message;
  const attributes = Object.entries(MessageAttributes);
  if (MessageBody === "" || bytesOf(message) > MESSAGE_BYTES_MAX) return INVALID_PARAMETER;
  if (toFifo && MessageGroupId === undefined) {
    return refusal("MissingRequiredParameterException", "MissingParameter");
  }
  const texts = [MessageBody, ...attributes.map(([, { StringValue = "" }]) => StringValue)];
  if (!texts.every(isXmlText)) return refusal("InvalidMessageContents", "InvalidMessageContents");
  const isWellFormed = attributes.every(
    ([name, { DataType = "", StringValue, BinaryValue }]) =>
      isAttributeName(name) &&
      isAttributeType(DataType) &&
      (StringValue ?? BinaryValue ?? "") !== "",
  );
  return attributes.length <= ATTRIBUTES_MAX && isWellFormed ? null : INVALID_PARAMETER;
}

/** 1 to 256 of A-Z, a-z, 0-9, "_", "-" and ".", the last one neither at an end nor twice in a row. */
export function isAttributeName(name: string): boolean {
  return /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/.test(name) && name.length <= 256;
}

/** A type may carry a label of the sender's own, as in `Number.int`. */
function isAttributeType(type: string): boolean {
  return /^(String|Number|Binary)(\.[^\s]{1,249})?$/.test(type);
}

/** XML 1.0: what no queue carries is not in it. */
function isXmlText(text: string): boolean {
  // eslint-disable-next-line no-control-regex
  return /^[\u0009\u000a\u000d\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]*$/u.test(text);
}

/** Body, and of each attribute name, type and value; bytes, not characters. */
function bytesOf({ MessageBody = "", MessageAttributes = {} }: SqsMessage): number {
  const texts = Object.entries(MessageAttributes).map(
    ([name, { DataType = "", StringValue = "" }]) => `${name}${DataType}${StringValue}`,
  );
  return Buffer.byteLength(MessageBody) + Buffer.byteLength(texts.join(""));
}

function isFifo({ QueueUrl = "" }: SqsRequest): boolean {
  return QueueUrl.endsWith(".fifo");
}

function visibilityOf({ VisibilityTimeout }: { VisibilityTimeout?: number }): number | undefined {
  return VisibilityTimeout;
}

/** What isn't given is the queue's own, and fine. */
function isBetween(value: number | undefined, min: number, max: number): boolean {
  return value === undefined || (value >= min && value <= max);
}

function batchRefusal(name: string): SqsRefusal {
  return refusal(name, queryCode(name));
}

function queryCode(name: string): string {
  return `AWS.SimpleQueueService.${name}`;
}

function refusal(code: string, query: string): SqsRefusal {
  return { code, queryCode: query };
}
