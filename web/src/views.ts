/**
 * Views of the page, in the order of the navigation. A view is added by its file and its row. The
 * browser loads the code of a view when it is first opened.
 */

import type { Component } from "svelte";

const loadAlerts = () => import("./views/Alerts.svelte");
const loadChecks = () => import("./views/Checks.svelte");
const loadCompare = () => import("./views/Compare.svelte");
const loadDashboards = () => import("./views/Dashboards.svelte");
const loadExplore = () => import("./views/Explore.svelte");
const loadHost = () => import("./views/Host.svelte");
const loadLoadRuns = () => import("./views/LoadRuns.svelte");
const loadLossAudit = () => import("./views/LossAudit.svelte");
const loadOverview = () => import("./views/Overview.svelte");
const loadSlos = () => import("./views/Slos.svelte");
const loadSources = () => import("./views/Sources.svelte");
const loadSpectrum = () => import("./views/Spectrum.svelte");
const loadStatus = () => import("./views/Status.svelte");
const loadTrace = () => import("./views/Trace.svelte");
const loadWire = () => import("./views/Wire.svelte");

/** `name` is the view's path in the address, `title` its text in the navigation. */
interface ViewRow {
  name: string;
  title: string;
  load: () => Promise<{ default: Component }>;
  /** Opened from another view, not in the navigation. */
  isLinked?: true;
}

/** The first view is the default. */
export const VIEWS: readonly [ViewRow, ...ViewRow[]] = [
  { name: "overview", title: "Overview", load: loadOverview },
  { name: "explore", title: "Explore", load: loadExplore },
  { name: "spectrum", title: "Spectrum", load: loadSpectrum },
  { name: "compare", title: "Compare", load: loadCompare },
  { name: "host", title: "Host", load: loadHost },
  { name: "wire", title: "Wire", load: loadWire },
  { name: "dashboards", title: "Dashboards", load: loadDashboards },
  { name: "alerts", title: "Alerts", load: loadAlerts },
  { name: "slos", title: "SLOs", load: loadSlos },
  { name: "checks", title: "Checks", load: loadChecks },
  { name: "load", title: "Load runs", load: loadLoadRuns },
  { name: "sources", title: "Sources", load: loadSources },
  { name: "audit", title: "Loss audit", load: loadLossAudit },
  { name: "status", title: "Status", load: loadStatus },
  { name: "trace", title: "Trace", load: loadTrace, isLinked: true },
];

/** The row of a view; the default view's if the name is unknown. */
export function findView(name: string): ViewRow {
  return VIEWS.find((view) => view.name === name) ?? VIEWS[0];
}
