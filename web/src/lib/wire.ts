/** Operations of other programs, from their packets (`[wire]`): services and their statements. */

import { getJson } from "./api";
import { Distribution, type Bracket } from "./distribution";
import { runQuery, type QueryResult } from "./query";
import { quoted } from "./selector";

/** A service in a range. */
export interface WireService {
  name: string;
  protocol: string;
  /** All operations but waits. */
  latency: Distribution;
  errors: number;
  waits: number;
  /** Requests that were not measured, by reason. */
  notMeasured: ReadonlyMap<string, number>;
  inFlight: number;
  /** Age of the oldest request in flight that does not wait by design, in seconds. */
  oldest: number;
}

export interface WireServices {
  unit: string;
  /** Those with the most time first. */
  services: WireService[];
  /** Packets that the kernel dropped from the capture. */
  droppedPackets: number;
}

/** A statement, route or command of a service in a range. */
export interface WireStatement {
  verb: string;
  statement: string;
  /** All statements without series of their own. */
  isOther: boolean;
  latency: Distribution;
  errors: number;
}

/** State of the server's own capture, field `wire` of `/v1/status`. */
export interface WireStatusJson {
  /** End of the last interval. */
  as_of_ns: number | null;
  /** The oldest ones. */
  in_flight: {
    service: string;
    protocol: string;
    verb: string;
    statement: string;
    wait: boolean;
    requests: number;
    oldest_ns: number;
  }[];
  services: {
    service: string;
    protocol: string;
    proposed_waits: {
      /** As the setting `waits` names it. */
      wait: string;
      timeout_ns: number;
      /** Of `long_operations`, those that took as long as the time-out. */
      operations: number;
      long_operations: number;
    }[];
  }[];
}

/** Requests of a statement in flight at the end of an interval. */
export interface InFlightStatement {
  name: string;
  isWait: boolean;
  requests: number;
  /** Age of the oldest one, in seconds. */
  age: number;
}

/** A statement whose operations end at a time-out. */
export type ProposedWait = WireStatusJson["services"][number]["proposed_waits"][number];

/** Orders of statements: `above` counts requests above the threshold. */
export const STATEMENT_ORDERS = { time: "total time", above: "above the threshold" } as const;
export type StatementOrder = keyof typeof STATEMENT_ORDERS;

/** Statements that are shown. */
const MAX_STATEMENTS = 50;

/** What identifies a service: the protocol is empty if the name says all. */
export type ServiceKey = Pick<WireService, "name" | "protocol">;

/** The key of a service: with the protocol only if services of other protocols have its name. */
export function serviceKey(
  { name, protocol }: ServiceKey,
  services: readonly ServiceKey[],
): ServiceKey {
  const isShared = services.some((one) => one.name === name && one.protocol !== protocol);
  return { name, protocol: isShared ? protocol : "" };
}

/** The service with a key; of several ones with its name, the first. */
export function findService(
  services: readonly WireService[],
  { name, protocol }: ServiceKey,
): WireService | undefined {
  return services.find((one) => one.name === name && (!protocol || one.protocol === protocol));
}

/** The selector of a service, or of a statement of it. */
export function latencySelector(service: ServiceKey, statement?: WireStatement): string {
  const matchers = [`service=${quoted(service.name)}`];
  if (service.protocol) matchers.push(`protocol=${quoted(service.protocol)}`);
  if (statement?.isOther) matchers.push('overflow="true"');
  else if (statement)
    matchers.push(`verb=${quoted(statement.verb)}`, `statement=${quoted(statement.statement)}`);
  return `wire_latency{${matchers.join(", ")}}`;
}

/** What identifies a statement in the address. Only that of the other statements has no space. */
export function statementKey({ verb, statement, isOther }: WireStatement): string {
  return isOther ? "other" : `${encodeURIComponent(verb)} ${statement}`;
}

/** What the page shows of a statement. */
export function statementName({ verb, statement, isOther }: WireStatement): string {
  return isOther ? "other statements" : `${verb} ${statement}`.trim();
}

/** All services that were observed in a range. */
export async function fetchServices(
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<WireServices> {
  const length = Math.max(Math.round(to - from), 1);
  const at = (query: string) => runQuery(query, "promql", [from, from + length], length, signal);
  const increase = (metric: string, by: string) =>
    at(`sum by (${by}) (exact_increase(${metric}[${length}ms]))`);
  const [latencies, waits, notMeasured, dropped, inFlight, oldest] = await Promise.all([
    increase("wire_latency", "service, protocol, outcome"),
    increase("wire_waits_total", "service, protocol"),
    increase("wire_not_measured_requests_total", "service, protocol, reason"),
    increase("wire_dropped_packets_total", "job"),
    at("sum by (service, protocol) (wire_in_flight)"),
    at('max by (service, protocol) (wire_in_flight_oldest_seconds{wait="false"})'),
  ]);
  const services = new Map<string, WireService>();
  const serviceOf = (labels: Record<string, string>): WireService => {
    const [name, protocol] = [labels["service"] ?? "", labels["protocol"] ?? ""];
    const key = JSON.stringify([name, protocol]);
    const known = services.get(key) ?? {
      name,
      protocol,
      latency: Distribution.EMPTY,
      errors: 0,
      waits: 0,
      notMeasured: new Map(),
      inFlight: 0,
      oldest: 0,
    };
    services.set(key, known);
    return known;
  };
  for (const [labels, value] of lastValues(latencies)) {
    if (!(value instanceof Distribution)) continue;
    const service = serviceOf(labels);
    service.latency = Distribution.merged([service.latency, value]);
    if (labels["outcome"] === "error") service.errors += value.count;
  }
  for (const [labels, count] of lastNumbers(waits)) serviceOf(labels).waits = count;
  for (const [labels, count] of lastNumbers(inFlight)) serviceOf(labels).inFlight = count;
  for (const [labels, age] of lastNumbers(oldest)) serviceOf(labels).oldest = age;
  for (const [labels, count] of lastNumbers(notMeasured)) {
    const service = serviceOf(labels);
    if (count > 0)
      service.notMeasured = new Map([...service.notMeasured, [labels["reason"] ?? "", count]]);
  }
  const droppedPackets = lastNumbers(dropped).reduce((sum, [, count]) => sum + count, 0);
  const sorted = [...services.values()].sort(
    (a, b) => b.latency.sum.estimate - a.latency.sum.estimate || a.name.localeCompare(b.name),
  );
  return { unit: latencies.unit, services: sorted, droppedPackets };
}

/** State of the server's own capture; null if it captures nothing. */
export async function fetchWireStatus(signal: AbortSignal): Promise<WireStatusJson | null> {
  const status = await getJson<{ wire?: WireStatusJson | null }>("/v1/status", {}, signal);
  return status.wire ?? null;
}

/** Requests of a service in flight, oldest first. */
export function inFlightOf(
  status: WireStatusJson | null,
  service: ServiceKey,
): InFlightStatement[] {
  const asOf = status?.as_of_ns ?? 0;
  return (status?.in_flight ?? [])
    .filter((one) => isOf(one, service))
    .map((one) => ({
      name: `${one.verb} ${one.statement}`.trim(),
      isWait: one.wait,
      requests: one.requests,
      age: Math.max((asOf - one.oldest_ns) / 1e9, 0),
    }));
}

/** Statements of a service that are proposed as waits. */
export function proposedWaitsOf(
  status: WireStatusJson | null,
  service: ServiceKey,
): ProposedWait[] {
  return (status?.services ?? [])
    .filter((one) => isOf(one, service))
    .flatMap((one) => one.proposed_waits);
}

/** The setting in the table of the capture that accepts proposals. */
export function waitsSetting(proposed: ProposedWait[]): string {
  return `waits = [${proposed.map((one) => JSON.stringify(one.wait)).join(", ")}]`;
}

function isOf(one: { service: string; protocol: string }, service: ServiceKey): boolean {
  return one.service === service.name && (!service.protocol || one.protocol === service.protocol);
}

/** The statements of a service in a range. */
export async function fetchStatements(
  service: ServiceKey,
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<WireStatement[]> {
  const length = Math.max(Math.round(to - from), 1);
  const increase = `exact_increase(${latencySelector(service)}[${length}ms])`;
  const query = `sum by (verb, statement, overflow, outcome) (${increase})`;
  const result = await runQuery(query, "promql", [from, from + length], length, signal);
  return toStatements(result);
}

/** Statements of series by verb, statement, overflow and outcome. */
export function toStatements(result: Pick<QueryResult, "series">): WireStatement[] {
  const statements = new Map<string, WireStatement>();
  for (const [labels, value] of lastValues(result)) {
    if (!(value instanceof Distribution) || value.isEmpty) continue;
    const found: WireStatement = {
      verb: labels["verb"] ?? "",
      statement: labels["statement"] ?? "",
      isOther: labels["overflow"] === "true",
      latency: Distribution.EMPTY,
      errors: 0,
    };
    const statement = statements.get(statementKey(found)) ?? found;
    statements.set(statementKey(found), statement);
    statement.latency = Distribution.merged([statement.latency, value]);
    if (labels["outcome"] === "error") statement.errors += value.count;
  }
  return [...statements.values()];
}

/** The first statements in an order; `threshold` in the unit of the distributions. */
export function sortStatements(
  statements: readonly WireStatement[],
  order: StatementOrder,
  threshold: number | null,
): WireStatement[] {
  const weight = ({ latency }: WireStatement) =>
    order === "above" && threshold !== null
      ? latency.countAbove(threshold).estimate
      : latency.sum.estimate;
  const sorted = [...statements].sort(
    (a, b) => weight(b) - weight(a) || b.latency.sum.estimate - a.latency.sum.estimate,
  );
  return sorted.slice(0, MAX_STATEMENTS);
}

/** Number of requests that were not measured. */
export function countNotMeasured({ notMeasured }: WireService): number {
  return [...notMeasured.values()].reduce((sum, count) => sum + count, 0);
}

/**
 * The number of operations of a service, or of a statement of it: each request that was not
 * measured may be one of them.
 */
export function countBounds(measured: number, notMeasured: number): Bracket {
  return { lower: measured, estimate: measured, upper: measured + notMeasured };
}

type LastValue = [Record<string, string>, QueryResult["series"][number]["points"][number]["value"]];

function lastValues({ series }: Pick<QueryResult, "series">): LastValue[] {
  return series.map(({ labels, points }) => [labels, points.at(-1)?.value ?? null]);
}

function lastNumbers(result: QueryResult): [Record<string, string>, number][] {
  return lastValues(result).flatMap(([labels, value]) =>
    value && "estimate" in value ? [[labels, value.estimate] as [typeof labels, number]] : [],
  );
}
