// One Service as a card: a line that is always there, and behind it the path its traffic takes
// (address -> listener -> pool -> members) with everything there is to say. The inside is made when
// the card is opened for the first time and only kept up to date while it is open.

import { draw, icon, list, make, put, set, show, texts } from "/assets/dom.js";
import * as words from "/assets/words.js";

/** So many members of a pool are shown before the reader asks for more. */
const FEW_MEMBERS = 12;

/** The list entry of a Service. */
export function card(service, open) {
  const el = make("li", "card");
  const details = make("details");
  const line = headline();
  details.append(line.el);
  el.append(details);
  let latest = service;
  let inside = null;
  const fill = () => {
    if (!details.open) return;
    if (!inside) {
      inside = body();
      details.append(inside.el);
    }
    inside.update(latest);
  };
  details.addEventListener("toggle", fill);
  details.open = open;
  const update = (service) => {
    latest = service;
    set(el, "data-state", service.state);
    set(el, "data-key", service.key);
    line.update(service);
    fill();
  };
  return { el, details, update };
}

/** The line that is always there: state, name, the path in short, traffic. */
function headline() {
  const mark = icon("ok");
  const state = make("span", "state");
  const word = make("span");
  state.append(mark, word);
  const namespace = make("span", "namespace user");
  const name = make("span", "name user");
  const title = make("h3", "", namespace, "/", name);
  const why = make("span", "why user");
  const addresses = make("span", "mono addresses");
  const ports = make("span", "mono ports");
  const pips = make("span", "pips");
  const healthy = make("span");
  const onward = make("span", "onward", arrow(), ports, arrow(), make("span", "healthy", pips, healthy));
  const path = make("span", "short", addresses, onward);
  const traffic = make("span", "rate");
  const el = make("summary", "", state, title, path, traffic, why);
  const update = (service) => {
    const at = service.key.indexOf("/");
    put(namespace, service.key.slice(0, at));
    put(name, service.key.slice(at + 1));
    const { word: text, icon: drawing } = words.STATES[service.state];
    put(word, text);
    draw(mark, drawing);
    put(why, words.why(service, service.state));
    put(addresses, held(service).join(" ") || "no address");
    const keys = service.listeners.map((one) => `${one.key.port}/${one.key.protocol}`);
    put(ports, keys.slice(0, 3).join(" ") + (keys.length > 3 ? ` +${keys.length - 3}` : "") || "no listener");
    show(onward, keys.length > 0);
    const members = service.listeners.flatMap((one) => one.members);
    list(pips, [...members.slice(0, 10).entries()], ([at]) => at, () => {
      const el = make("i");
      return { el, update: ([, member]) => set(el, "data-health", member.health) };
    });
    put(healthy, members.length ? `${serving(members)}/${members.length} members` : "no member");
    put(traffic, service.listeners.length ? words.traffic(service) : "");
  };
  return { el, update };
}

/** Everything about a Service. */
function body() {
  const steps = make("ol", "conditions");
  const reasons = make("ul", "reasons");
  const flow = tree();
  const pending = section("Next steps", "ol", step);
  const leftOut = section("Endpoints that get no traffic", "ul", left);
  const facts = make("p", "muted user");
  const el = make("div", "inside", reasons, flow.el, pending.el, leftOut.el, make("div", "foot", steps, facts));
  const update = (service) => {
    list(steps, words.CONDITIONS, (one) => one.type, condition).forEach((row) => row.show(service));
    list(reasons, service.reasons, reasonKey, reason);
    show(reasons, service.reasons.length > 0);
    flow.update(service);
    pending.update(service.pending);
    leftOut.update(service.leftOut);
    put(facts, words.facts(service));
  };
  return { el, update };
}

/** A titled list that is only there when it has something in it. */
function section(title, tag, build) {
  const rows = make(tag, "pairs");
  const el = make("section", "", make("h4", "", title), rows);
  const update = (items) => {
    list(rows, [...items.entries()], ([at]) => at, () => {
      const row = build();
      return { el: row.el, update: ([, item]) => row.update(item) };
    });
    show(el, items.length > 0);
  };
  return { el, update };
}

/** One of Accepted, Addressed, Programmed. */
function condition() {
  const mark = icon("unknown");
  const word = make("strong");
  const text = make("span", "muted");
  const el = make("li", "", mark, word, text);
  let kind = null;
  return {
    el,
    update: (one) => {
      kind = one;
      put(word, one.word);
    },
    show: (service) => {
      const found = service.status.conditions.find((one) => one.type === kind.type);
      const met = found?.status === "True";
      set(el, "data-met", found && (met ? "yes" : "no"));
      draw(mark, found ? (met ? "ok" : "bad") : "unknown");
      const since = found ? ` · ${words.since(found.lastTransitionTime)}` : "";
      put(text, found ? (met ? kind.means : found.reason) + since : "not known yet");
      set(el, "title", found ? `${found.message} (since ${found.lastTransitionTime})` : null);
    },
  };
}

/** A reason may appear more than once; its place distinguishes it. */
export function reasonKey(reason) {
  const { code, field = "", value = "", message, origin } = reason;
  return JSON.stringify([code, field, value, message, origin ?? null]);
}

/** A reason in plain words: what is the matter, where, and what to do. */
export function reason() {
  const mark = icon("info");
  const severity = make("span", "unseen");
  const message = make("span", "message user");
  const code = make("code", "code");
  const place = make("span", "place mono user");
  const remedy = make("span", "remedy user");
  const el = make("li", "reason", mark, make("div", "", severity, message, " ", code, remedy, place));
  const update = (one) => {
    const { word, icon: drawing } = words.SEVERITY[one.severity];
    set(el, "data-severity", one.severity);
    draw(mark, drawing);
    put(severity, `${word}: `);
    put(message, one.message);
    put(code, one.code);
    put(remedy, one.remedy ? `What to do: ${one.remedy}` : "");
    const where = [];
    if (one.origin) where.push(`${one.origin.file}:${one.origin.line}`);
    if (one.field) where.push(one.field + (one.value === undefined ? "" : ` = ${JSON.stringify(one.value)}`));
    put(place, where.join("  "));
    show(remedy, Boolean(one.remedy));
    show(place, where.length > 0);
  };
  return { el, update };
}

/** Something, and why: `words(item)` gives both. */
function pair(words) {
  return () => {
    const what = make("span", "user");
    const because = make("span", "muted user");
    return {
      el: make("li", "", what, " ", because),
      update: (item) => words(item).forEach((text, at) => put([what, because][at], text)),
    };
  };
}

const step = pair((one) => [one.step, one.because && `because ${one.because}`]);
const left = pair(({ name, endpoint, reason }) =>
  [[name, endpoint].filter(Boolean).join(" "), [reason.message, reason.remedy].filter(Boolean).join("; ")]);

/** The path: address, then a branch per listener, its pool, and a branch per member. */
function tree() {
  const label = make("span", "label", "Address");
  const addresses = make("ul", "values mono");
  const note = make("span", "muted user");
  const node = make("div", "node address", label, addresses, note);
  const branch = make("ul", "branch");
  const el = make("div", "flow hop", node, branch);
  const update = (service) => {
    const found = held(service);
    texts(addresses, found.length ? found : ["none yet"]);
    set(node, "data-tone", found.length ? null : "bad");
    put(note, found.length || !service.address ? "" : `requests: ${words.request(service.address)}`);
    show(note, note.textContent !== "");
    const { listeners } = service;
    const most = Math.max(0, ...listeners.map((one) => one.addresses.length));
    for (const one of listeners) one.apart = one.addresses.length && one.addresses.length < most;
    list(branch, listeners.length ? listeners : [null], (one) => (one ? `${one.key.port}/${one.key.protocol}` : "none"),
      (one) => (one ? listenerHop() : nothing("no listener")));
  };
  return { el, update };
}

/** A branch that leads nowhere. */
function nothing(text) {
  const el = make("li", "", make("div", "node void", text));
  set(el, "data-tone", "bad");
  return { el, update: () => {} };
}

function listenerHop() {
  const front = listenerNode();
  const pool = poolNode();
  const members = make("ul", "branch members");
  const more = make("button", "more");
  more.type = "button";
  let all = false;
  let latest = null;
  more.addEventListener("click", () => {
    all = !all;
    update(latest);
  });
  const onward = make("li", "", make("div", "hop", pool.el, members));
  const hop = make("div", "hop", front.el, make("ul", "branch single", onward));
  const el = make("li", "", hop);
  const update = (listener) => {
    latest = listener;
    const busy = Boolean(listener.rate && listener.rate.in + listener.rate.out > 0);
    const dead = listener.problem || serving(listener.members) === 0;
    set(el, "data-tone", listener.problem ? "bad" : null);
    set(el, "data-busy", busy && !listener.problem);
    set(onward, "data-tone", dead ? "bad" : null);
    set(onward, "data-busy", busy && !dead);
    front.update(listener);
    pool.update(listener);
    const rest = listener.members.length - FEW_MEMBERS;
    const first = all || rest <= 0 ? listener.members : few(listener.members);
    list(members, first.length ? first : [null], (one) => one?.address ?? "none", (one) => (one ? memberNode() : nothing("no member")));
    if (rest > 0) {
      put(more, all ? "Show fewer members" : `Show all ${listener.members.length} members`);
      members.after(more);
    } else more.remove();
  };
  return { el, update };
}

/** The first members, those that don't serve in any case. */
function few(members) {
  const isUsual = (member) => member.health === "up" || member.health === "unchecked";
  let places = FEW_MEMBERS - members.filter((member) => !isUsual(member)).length;
  return members.filter((member) => !isUsual(member) || places-- > 0);
}

function listenerNode() {
  const port = make("strong", "mono");
  const name = make("span", "user");
  const link = make("a", "open", "open");
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  const chips = make("ul", "chips");
  const own = make("span", "mono muted");
  const rate = make("span", "rate");
  const failed = make("span", "failed");
  const problem = make("ul", "reasons");
  const label = make("span", "label");
  const el = make("div", "node", label,
    make("div", "first", port, name, link), own, chips, make("div", "counts", rate, failed), problem);
  const update = (listener) => {
    put(label, `${words.MODES[listener.mode] || listener.key.protocol} listener`);
    put(port, `${listener.key.port}/${listener.key.protocol}`);
    put(name, listener.name);
    const { addresses } = listener;
    const web = listener.mode.startsWith("http") && addresses.length > 0 && !listener.problem;
    show(link, web);
    if (web) {
      const target = words.url(listener, addresses[0]);
      set(link, "href", target);
      set(link, "aria-label", `open ${target} in a new tab`);
    }
    put(own, listener.apart ? `only on ${addresses.join(" ")}` : "");
    show(own, Boolean(listener.apart));
    texts(chips, words.limits(listener), "chip user");
    put(rate, words.traffic(listener.traffic));
    set(rate, "title", words.totals(listener.traffic));
    put(failed, words.failures(listener));
    list(problem, listener.problem ? [listener.problem] : [], reasonKey, reason);
    show(problem, Boolean(listener.problem));
  };
  return { el, update };
}

function poolNode() {
  const algorithm = make("strong");
  const healthy = make("span");
  const meter = make("i", "meter");
  const chips = make("ul", "chips");
  const monitor = make("span", "muted user");
  const el = make("div", "node pool", make("span", "label", "Pool"),
    make("div", "first", algorithm), make("div", "", healthy, meter), chips, monitor);
  const update = (listener) => {
    const { members } = listener;
    put(algorithm, words.ALGORITHMS[listener.algorithm]);
    const up = serving(members);
    const some = `${up} of ${words.count(members.length, "member")}${words.waiting(listener)}`;
    put(healthy, members.length ? some : "no member");
    fill(meter, members.length ? up / members.length : 0);
    set(el, "data-tone", up === 0 ? "bad" : null);
    texts(chips, words.habits(listener), "chip user");
    put(monitor, words.monitor(listener.monitor));
  };
  return { el, update };
}

function memberNode() {
  const mark = icon("ok");
  const health = make("span", "health");
  const name = make("strong", "user");
  const address = make("span", "mono");
  const node = make("span", "user");
  const chips = make("ul", "chips");
  const detail = make("span", "detail user");
  const rate = make("span", "rate");
  const failed = make("span", "failed");
  const inner = make("div", "node member", make("div", "first", mark, name, health), chips, detail,
    make("div", "where muted", address, node, make("span", "counts", rate, failed)));
  const el = make("li", "", inner);
  const update = (member) => {
    const { word, icon: drawing } = words.HEALTH[member.health];
    set(el, "data-health", member.health);
    const { traffic } = member;
    set(el, "data-busy", Boolean(traffic.rate && traffic.rate.in + traffic.rate.out > 0));
    draw(mark, drawing);
    put(health, word);
    put(name, member.name ?? member.address);
    put(address, member.name ? member.address : "");
    put(node, member.node ? `on ${member.node}` : "");
    texts(chips, words.traits(member), "chip");
    put(detail, member.detail);
    show(detail, Boolean(member.detail));
    put(rate, words.traffic(traffic));
    set(rate, "title", words.totals(traffic));
    put(failed, traffic.failed ? `${words.whole(traffic.failed)} failed` : "");
  };
  return { el, update };
}

/** Sets how full a meter is drawn. */
export function fill(meter, share) {
  const width = `${(Math.min(1, Math.max(0, share)) * 100).toFixed(1)}%`;
  if (meter.style.getPropertyValue("--share") !== width) meter.style.setProperty("--share", width);
}

/** Members that get new connections. */
export function serving(members) {
  return members.filter((member) => ["up", "unknown", "unchecked"].includes(member.health)).length;
}

/** The addresses (and names) that are published for a Service. */
export function held(service) {
  const entries = service.status.ingress;
  return entries.flatMap((entry) => [entry.ip, entry.hostname].filter(Boolean));
}

function arrow() {
  const el = make("span", "arrow");
  set(el, "aria-hidden", "true");
  return el;
}
