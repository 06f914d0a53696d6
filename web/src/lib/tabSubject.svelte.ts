/** The subject of the browser's tab, if the view has one that is not in the URL. */

class TabSubject {
  /** The view sets it, and clears it at its end. */
  text = $state("");
}

export const tabSubject = new TabSubject();
