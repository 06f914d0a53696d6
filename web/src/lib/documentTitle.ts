/** The title of the browser's tab: what is shown, the view, and the program. */

import type { Route } from "./link";

/** A longer subject is cut: tabs and bookmarks show less. */
const MAX_SUBJECT = 60;

/** `ownSubject`: of a view whose subject is no setting. */
export function documentTitle({ settings }: Route, viewTitle: string, ownSubject = ""): string {
  const subject = ownSubject || subjectOf(settings, viewTitle);
  const short =
    subject.length > MAX_SUBJECT ? `${subject.slice(0, MAX_SUBJECT - 1).trimEnd()}…` : subject;
  return [short, viewTitle, "topdeck"].filter((part) => part !== "").join(" · ");
}

function subjectOf(settings: Record<string, string>, viewTitle: string): string {
  const { selector = "", language, query = "", dashboard = "", host = "", trace = "" } = settings;
  if (viewTitle === "Explore") return language ? query : selector;
  if (viewTitle === "Spectrum") return selector;
  if (viewTitle === "Dashboards") return dashboard;
  if (viewTitle === "Host") return host;
  if (viewTitle === "Trace") return trace;
  if (viewTitle !== "Compare") return "";
  const a = settings["a"] ?? selector;
  return settings["b"] ? `${a} and ${settings["b"]}` : a;
}
