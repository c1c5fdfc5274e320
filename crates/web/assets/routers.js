// The sessions of a speaker with routers, each with the prefixes that the router is sent.

import { draw, icon, list, make, put, set, show, texts } from "/assets/dom.js";
import * as words from "/assets/words.js";

/** So many prefixes of a router are shown; `landfall get routes` has all of them. */
const FEW_ROUTES = 20;

/** Peers with their routes. */
export function withRoutes(view) {
  const routes = Map.groupBy(view.routes ?? [], (route) => route.peer);
  return (view.peers ?? []).map((peer) => ({ ...peer, routes: routes.get(peer.name) ?? [] }));
}

/** The list entry of a router. */
export function router() {
  const name = make("h3", "user");
  const place = make("span", "mono muted user");
  const mark = icon("ok");
  const state = make("span");
  const session = make("p", "session", mark, state);
  const problem = make("p", "user");
  const routes = make("ul", "routes mono");
  const el = make("li", "", make("div", "pool-name", name, place), session, problem, routes);
  const update = (peer) => {
    const up = peer.state === "Established";
    const tone = up ? "ok" : peer.problem ? "bad" : "busy";
    put(name, peer.name);
    put(place, `${peer.address} AS ${peer.remoteAsn}`);
    set(session, "data-tone", tone);
    draw(mark, tone);
    put(state, sessionText(peer));
    put(problem, peer.problem ? `${peer.problem.message}. ${peer.problem.remedy}` : "");
    show(problem, Boolean(peer.problem));
    const more = peer.routes.length - FEW_ROUTES;
    const lines = peer.routes.slice(0, FEW_ROUTES).map(routeText);
    texts(routes, more > 0 ? [...lines, `and ${words.whole(more)} more`] : lines, "user");
  };
  return { el, update };
}

function sessionText(peer) {
  const bfd = peer.bfd ? ` · BFD ${peer.bfd.state}` : "";
  const sent = `${words.whole(peer.prefixesSent)} of ${words.count(peer.prefixesWanted, "prefix").replace(/xs$/, "xes")}`;
  return `${peer.state} for ${words.seconds(peer.stateSeconds)} · ${sent} sent${bfd}`;
}

function routeText(route) {
  const preference = route.localPreference === undefined ? [] : [`localpref ${route.localPreference}`];
  return [route.prefix, ...preference, ...(route.communities ?? []), ...route.services].join(" · ");
}
