// The page: asks the instance again and again, works out rates, and hands the facts to the cards.
// A stream of change numbers says when to ask at once; without it the page asks every two seconds.

import { list, make, put, set, show, sparkline } from "/assets/dom.js";
import { card, fill, held, reason, reasonKey, serving } from "/assets/card.js";
import { router, withRoutes } from "/assets/routers.js";
import * as words from "/assets/words.js";

const PAUSE = 2000;
const TIMEOUT = 8000;
const STREAM_AGAIN = 30000;
/** A rate over a shorter time says more about the clock than about the traffic. */
const SHORTEST_RATE = 1000;
const HISTORY = 60;
/** With so few Services, all of them are open from the start. */
const FEW_SERVICES = 6;
/** So many Services are in the document before the reader asks for more. */
const PAGE = 100;

/** The elements of the page by their id. */
const page = new Proxy({}, { get: (_, id) => document.getElementById(id) });

let view = null;
let cards = new Map();
let limit = PAGE;
/** Keys of the Services that the reader has opened or closed, and which of the two. */
const opened = new Map();
let timer = 0;
let loading = false;
let again = false;
let stream = null;
let lastGood = 0;
let sifting = 0;
let counted = { at: 0, traffic: new Map(), rates: new Map() };
const history = [];

// --- asking ---

async function load() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  clearTimeout(timer);
  const began = performance.now();
  try {
    const answer = await fetch("/api/v1/instance", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const next = await answer.json();
    rate(next, performance.now());
    lastGood = Date.now();
    render(next);
    connected(true);
  } catch {
    connected(false);
  }
  loading = false;
  // A view that takes long to get or show is requested less often.
  const pause = Math.max(PAUSE, 10 * (performance.now() - began));
  const soon = again;
  again = false;
  if (!document.hidden) timer = setTimeout(load, soon ? 100 : pause);
}

/** Only visible pages hold a stream: browsers allow few connections to one place. */
function listen() {
  if (document.hidden || stream) return;
  stream = new EventSource("/api/v1/events");
  stream.addEventListener("change", load);
  stream.addEventListener("error", () => {
    if (stream?.readyState === EventSource.CLOSED) {
      hush();
      setTimeout(listen, STREAM_AGAIN);
    }
    load();
  });
}

function hush() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hush();
    clearTimeout(timer);
  } else {
    listen();
    load();
  }
});

function connected(live) {
  set(page.link, "data-state", live ? "live" : "lost");
  put(page.link, live ? "Live" : "Connection lost");
  const seen = lastGood ? `The connection to this instance is lost: this was true at ${words.clock(lastGood)}.` : "This instance does not answer.";
  put(page.lost, live ? "" : `${seen} Retrying every two seconds.`);
  show(page.lost, !live);
}

// --- rates ---

/** Puts `rate` beside every traffic count, from the counts of some moments ago. */
function rate(next, now) {
  const span = now - counted.at;
  const fresh = counted.at === 0 || span >= SHORTEST_RATE;
  const traffic = new Map();
  const rates = fresh ? new Map() : counted.rates;
  const visit = (key, count) => {
    traffic.set(key, count);
    const old = counted.traffic.get(key);
    if (fresh && old) {
      const per = (field) => Math.max(0, count[field] - old[field]) / (span / 1000);
      const measured = { connections: per("connections"), in: per("bytesIn"), out: per("bytesOut") };
      const before = counted.rates.get(key) ?? measured;
      for (const field in measured) {
        const value = 0.6 * measured[field] + 0.4 * before[field];
        measured[field] = value < 0.05 ? 0 : value;
      }
      rates.set(key, measured);
    }
    count.rate = rates.get(key);
  };
  for (const service of next.services) {
    for (const listener of service.listeners) {
      const key = `${service.key} ${listener.key.port}/${listener.key.protocol}`;
      visit(key, listener.traffic);
      listener.rate = listener.traffic.rate;
      for (const member of listener.members) visit(`${key} ${member.address}`, member.traffic);
    }
    Object.assign(service, sum(service.listeners.map((listener) => listener.traffic)));
  }
  next.total = sum(next.services);
  if (fresh) {
    counted = { at: now, traffic, rates };
    if (next.total.rate) {
      history.push(next.total.rate.in + next.total.rate.out);
      if (history.length > HISTORY) history.shift();
    }
  }
}

function sum(parts) {
  const rated = parts.filter((part) => part.rate);
  const add = (field) => rated.reduce((total, part) => total + part.rate[field], 0);
  return {
    open: parts.reduce((total, part) => total + part.open, 0),
    rate: rated.length ? { connections: add("connections"), in: add("in"), out: add("out") } : undefined,
  };
}

// --- showing ---

function render(next) {
  for (const service of next.services) service.state = words.stateOf(service);
  next.services.sort((one, other) =>
    words.STATES[one.state].rank - words.STATES[other.state].rank || (one.key < other.key ? -1 : 1));
  announce(view, next);
  view = next;
  const ill = view.services.filter((service) => ["bad", "warn"].includes(service.state)).length + view.problems.length;
  document.title = ill ? `${words.count(ill, "problem")} · Landfall` : "Landfall";
  put(page.about, `${view.version} · up ${words.since(view.started)}`);
  show(page.starting, !view.ready);
  put(page.starting, view.ready ? "" : `Starting${view.waiting?.length ? `: waiting for ${view.waiting.join("; ")}` : ""}`);
  show(page.problems, view.problems.length > 0);
  list(page.problems.querySelector("ul"), view.problems, reasonKey, reason);
  figures();
  show(page.pools, view.pools.length > 0);
  list(page.pools.querySelector("ul"), view.pools, (pool) => pool.name, pool);
  const peers = withRoutes(view);
  show(page.routers, peers.length > 0);
  list(page.routers.querySelector("ul"), peers, (peer) => peer.name, router);
  sift();
}

/** A Service that is deleted and created again is another one. */
const keyOf = (service) => service.uid + service.key;

/** Announces changed Services to screen readers. */
function announce(before, next) {
  if (!before) return;
  const known = new Map(before.services.map((service) => [service.key, service.state]));
  const turned = next.services.filter((service) => known.get(service.key) !== service.state);
  const gone = known.size + turned.filter((service) => !known.has(service.key)).length - next.services.length;
  const parts = turned.length > 3
    ? [`${turned.length} Services changed`]
    : turned.map((service) => `${service.key}: ${words.STATES[service.state].word}`);
  if (gone > 0) parts.push(`${words.count(gone, "Service")} removed`);
  if (parts.length) put(page.said, parts.join(". "));
}

function figures() {
  const { services, total } = view;
  const members = services.flatMap((service) => service.listeners.flatMap((listener) => listener.members));
  const having = (health) => members.filter((member) => member.health === health).length;
  const states = Object.keys(words.STATES).reverse();
  const inState = (state) => services.filter((service) => service.state === state).length;
  const rest = ["down", "failing", "draining"].map((health) => [health, having(health)]).filter(([, number]) => number);
  const flow = total.rate;
  list(page.figures, [
    {
      name: "Services",
      value: words.whole(services.length),
      note: states.filter((state) => state !== "ok" && inState(state))
        .map((state) => `${inState(state)} ${words.STATES[state].word.toLowerCase()}`).join(", ") ||
        (services.length ? "all serving" : "none yet"),
      shares: states.map((state) => [state, inState(state)]),
    },
    {
      name: "Members that serve",
      value: `${words.whole(serving(members))} of ${words.whole(members.length)}`,
      note: rest.map(([word, number]) => `${number} ${word}`).join(", ") || (members.length ? "all of them" : "none yet"),
      shares: [["ok", serving(members)], ["busy", having("draining")], ["bad", having("down") + having("failing")]],
    },
    {
      name: "Open connections",
      value: words.whole(total.open),
      note: flow ? `${words.perSecond(flow.connections)} new` : "counting",
    },
    {
      name: "Traffic",
      value: flow ? `${words.bytes(flow.in + flow.out)}/s` : "counting",
      note: flow ? `${words.bytes(flow.in)}/s in, ${words.bytes(flow.out)}/s out` : "",
      line: history,
    },
  ], (one) => one.name, figure);
}

function figure(one) {
  const value = make("dd", "value");
  const note = make("dd", "note");
  const el = make("div", "figure", make("dt", "", one.name), value, note);
  const shares = one.shares && make("dd", "shares");
  const line = one.line && sparkline();
  if (shares) el.append(shares);
  if (line) el.append(make("dd", "", line.el));
  if (shares) set(shares, "aria-hidden", "true");
  return {
    el,
    update: (one) => {
      put(value, one.value);
      put(note, one.note);
      line?.update(one.line);
      if (!shares) return;
      list(shares, one.shares.filter(([, number]) => number), ([tone]) => tone, ([tone]) => {
        const el = make("i");
        set(el, "data-tone", tone);
        return { el, update: ([, number]) => { el.style.flexGrow = number; } };
      });
    },
  };
}

function pool() {
  const name = make("h3", "user");
  const ranges = make("span", "mono muted user");
  const usage = make("ul", "usage");
  const el = make("li", "", make("div", "pool-name", name, ranges), usage);
  return {
    el,
    update: (pool) => {
      put(name, pool.name);
      put(ranges, pool.addresses.join(", "));
      const families = [
        { family: "IPv4", used: pool.assignedIpv4, left: pool.availableIpv4 },
        { family: "IPv6", used: pool.assignedIpv6, left: pool.availableIpv6 },
      ].filter((one) => one.used + one.left > 0);
      list(usage, families, (one) => one.family, (one) => {
        const text = make("span");
        const meter = make("i", "meter");
        set(meter, "role", "meter");
        set(meter, "aria-valuemin", 0);
        set(meter, "aria-valuemax", 100);
        set(meter, "aria-label", `${one.family} addresses in use`);
        const el = make("li", "", text, meter);
        return {
          el,
          update: ({ family, used, left }) => {
            const share = used / (used + left);
            const full = left === 0 ? ": full" : "";
            put(text, `${words.whole(used)} of ${words.whole(used + left)} ${family} addresses in use${full}`);
            set(el, "data-tone", left === 0 ? "bad" : share >= 0.9 ? "warn" : null);
            set(meter, "aria-valuenow", Math.round(share * 100));
            fill(meter, share && Math.max(share, 0.01));
          },
        };
      });
    },
  };
}

// --- finding ---

/** All text of a Service that the filter searches. */
function hay(service) {
  const members = service.listeners.flatMap((listener) => listener.members);
  return [
    service.key, service.class, ...held(service), words.STATES[service.state].word,
    ...service.listeners.flatMap((one) => [`${one.key.port}/${one.key.protocol}`, one.name, one.mode, one.problem?.message]),
    ...members.flatMap((member) => [member.address, member.name, member.node, member.health]),
    ...service.reasons.flatMap((reason) => [reason.code, reason.message, reason.field]),
    ...service.leftOut.flatMap((one) => [one.endpoint, one.name]),
    service.origin?.file,
  ].filter(Boolean).join("\n").toLowerCase();
}

/** Puts the Services that the reader wants to see into the document, a page of them at first. */
function sift() {
  if (!view) return;
  const terms = page.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const only = page.tools.elements.show.value === "problems";
  const all = view.services.length;
  const few = all <= FEW_SERVICES;
  const wanted = view.services.filter((service) => {
    if (only && service.state === "ok") return false;
    const text = terms.length ? hay(service) : "";
    return terms.every((term) => text.includes(term));
  });
  const shown = wanted.slice(0, limit);
  cards = list(page.list, shown, keyOf, (service) => card(service, opened.get(keyOf(service)) ?? few));
  put(page.count, wanted.length === all ? "" : `${wanted.length} of ${words.count(all, "Service")}`);
  show(page.empty, wanted.length === 0);
  if (wanted.length === 0) put(page.empty, nothingText(all, only, terms));
  show(page.more, shown.length < wanted.length);
  put(page.more, `Show ${Math.min(PAGE, wanted.length - shown.length)} more of ${words.whole(wanted.length - shown.length)}`);
  offerToggle();
}

/** Offers to open what is shown, or to close it where all of it is open. */
function offerToggle() {
  const rows = [...cards.values()];
  put(page.toggle, rows.length && rows.every(({ details }) => details.open) ? "Close all" : "Open all");
  page.toggle.disabled = rows.length === 0;
}

function nothingText(all, only, terms) {
  if (all === 0) return view.ready ? "No Service of type LoadBalancer yet. Add a manifest, and it shows up here." : "Nothing yet.";
  if (terms.length) return `No Service matches “${page.filter.value.trim()}”.`;
  return only ? "No problems. Everything serves." : "";
}

function remember() {
  const query = new URLSearchParams();
  if (page.filter.value) query.set("q", page.filter.value);
  if (page.tools.elements.show.value !== "all") query.set("show", page.tools.elements.show.value);
  window.history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

page.tools.addEventListener("submit", (event) => event.preventDefault());
page.tools.addEventListener("input", () => {
  limit = PAGE;
  sift();
  remember();
});
page.more.addEventListener("click", () => {
  const next = page.list.children.length;
  limit += PAGE;
  sift();
  // The button may be gone now: the reader goes on at the first entry that came.
  page.list.children[next]?.querySelector("summary")?.focus();
});
page.toggle.addEventListener("click", () => {
  const open = page.toggle.textContent === "Open all";
  for (const { details } of cards.values()) details.open = open;
  offerToggle();
});
page.list.addEventListener("toggle", ({ target }) => {
  for (const [key, { details }] of cards) if (details === target) opened.set(key, details.open);
  cancelAnimationFrame(sifting);
  sifting = requestAnimationFrame(offerToggle);
}, true);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target !== page.filter && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    page.filter.focus();
    page.filter.select();
  }
});

const query = new URLSearchParams(location.search);
page.filter.value = query.get("q") ?? "";
if (query.get("show") === "problems") page.tools.elements.show.value = "problems";
listen();
load();
