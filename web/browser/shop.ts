/** A web server that stalls once, and a client that sends on a fixed schedule. */

import { createServer, type Server as Http } from "node:http";
import { performance } from "node:perf_hooks";

/** Milliseconds. */
export interface StallSchedule {
  length: number;
  every: number;
  stallAt: number;
  stall: number;
}

/** Latencies from the scheduled time of each request, passed on about twice a second. */
export async function shop(
  { length, every, stallAt, stall }: StallSchedule,
  onLatencies: (latencies: number[]) => Promise<void>,
): Promise<void> {
  const start = performance.now();
  const http: Http = createServer((_, response) => {
    const at = performance.now() - start;
    const rest = at >= stallAt && at < stallAt + stall ? stallAt + stall - at : 3;
    setTimeout(() => response.end("ok"), rest);
  });
  await new Promise<void>((done) => http.listen(0, "127.0.0.1", done));
  const address = http.address();
  const port = address && typeof address === "object" ? address.port : 0;
  let latencies: number[] = [];
  const open: Promise<void>[] = [];
  for (let intended = 0; intended < length; intended += every) {
    const early = start + intended - performance.now();
    if (early > 0) await new Promise((done) => setTimeout(done, early));
    const request = async () => {
      await (await fetch(`http://127.0.0.1:${port}/`)).text();
      latencies.push(performance.now() - start - intended);
    };
    open.push(request());
    if (latencies.length > 500 / every) await onLatencies(latencies.splice(0));
  }
  await Promise.all(open);
  await onLatencies(latencies);
  latencies = [];
  http.close();
}
