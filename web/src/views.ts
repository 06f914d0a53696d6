/** Views of the page, in the order of the navigation. A view is added by its file and its row. */

import type { Component } from "svelte";

import Alerts from "./views/Alerts.svelte";
import Compare from "./views/Compare.svelte";
import Dashboards from "./views/Dashboards.svelte";
import Explore from "./views/Explore.svelte";
import Host from "./views/Host.svelte";
import Overview from "./views/Overview.svelte";
import Sources from "./views/Sources.svelte";
import Spectrum from "./views/Spectrum.svelte";
import Status from "./views/Status.svelte";

/** `name` is the view's path in the address, `title` its text in the navigation. */
interface ViewRow {
  name: string;
  title: string;
  component: Component;
}

/** The first view is the default. */
export const VIEWS: readonly [ViewRow, ...ViewRow[]] = [
  { name: "overview", title: "Overview", component: Overview },
  { name: "explore", title: "Explore", component: Explore },
  { name: "spectrum", title: "Spectrum", component: Spectrum },
  { name: "compare", title: "Compare", component: Compare },
  { name: "host", title: "Host", component: Host },
  { name: "dashboards", title: "Dashboards", component: Dashboards },
  { name: "alerts", title: "Alerts", component: Alerts },
  { name: "sources", title: "Sources", component: Sources },
  { name: "status", title: "Status", component: Status },
];

/** The row of a view; the default view's if the name is unknown. */
export function findView(name: string): ViewRow {
  return VIEWS.find((view) => view.name === name) ?? VIEWS[0];
}
