// The place within the page, as the part of the address after "#": "#/label/cal_..." is ["label", "cal_..."].
import { useEffect, useState } from "preact/hooks";

export type Place = { path: string[]; query: URLSearchParams };

function here(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean), query: new URLSearchParams(query) };
}

/** Return the present place, and render again when it changes. */
export function usePlace(): Place {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    const changed = () => setPlace(here());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}

/** Go to a place ("/label/cal_..."). */
export const go = (place: string): void => {
  location.hash = place;
};
