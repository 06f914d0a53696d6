import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';

export interface Options {
  /**
   * Route of a request, called when its answer was sent; by default that of Express, or empty. Do
   * not return the path: each distinct route is a series.
   */
  route?: (request: IncomingMessage) => string;
}

/** Middleware of Connect and Express. */
export function middleware(options?: Options):
  (request: IncomingMessage, response: ServerResponse, next: () => void) => void;
/** A listener of `http.Server` around another one. */
export function measured(listener: RequestListener, options?: Options): RequestListener;
