// Facts as text: numbers, times, options and states for people. No document, no state.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export const STATES = {
  bad: { rank: 0, word: "Not serving", icon: "bad" },
  warn: { rank: 1, word: "Needs attention", icon: "warn" },
  busy: { rank: 2, word: "Changing", icon: "busy" },
  ok: { rank: 3, word: "Serving", icon: "ok" },
};

export const HEALTH = {
  up: { word: "up", icon: "ok" },
  unknown: { word: "not checked yet", icon: "unknown" },
  unchecked: { word: "unchecked", icon: "unknown" },
  failing: { word: "failing", icon: "bad" },
  down: { word: "down", icon: "bad" },
  draining: { word: "draining", icon: "drain" },
};

export const SEVERITY = {
  error: { word: "Error", icon: "bad" },
  warning: { word: "Warning", icon: "warn" },
  info: { word: "Note", icon: "info" },
};

export const CONDITIONS = [
  { type: "landfall.dev/Accepted", word: "Accepted", means: "the newest version is valid" },
  { type: "landfall.dev/Addressed", word: "Addressed", means: "it has an address" },
  { type: "landfall.dev/Programmed", word: "Programmed", means: "traffic flows" },
];

export const ALGORITHMS = {
  ROUND_ROBIN: "Round robin",
  LEAST_CONNECTIONS: "Least connections",
  SOURCE_IP: "By client address",
  SOURCE_IP_PORT: "By client address and port",
};

/** How a listener treats the bytes; a stream is only called by its protocol. */
export const MODES = { tls: "TLS", http: "HTTP", https: "HTTPS" };

/** 1 Service, 2 Services. */
export function count(number, one) {
  return `${whole(number)} ${number === 1 ? one : `${one}s`}`;
}

/** A whole number: exact while that helps, else its magnitude. */
export function whole(number) {
  if (number >= 2 ** 40) return `about 2^${Math.round(Math.log2(number))}`;
  return number.toLocaleString("en");
}

/** 1234567 as 1.2 MB. */
export function bytes(number) {
  let value = number;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 9.95 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** New connections per second. */
export function perSecond(rate) {
  if (rate === 0) return "0/s";
  return `${rate < 9.95 ? Math.max(rate, 0.1).toFixed(1) : whole(Math.round(rate))}/s`;
}

const SPANS = [[86400, "d"], [3600, "h"], [60, "min"]];

/** Seconds as 42 s, 3 min, 5 h, 2 d. */
export function seconds(number) {
  const [size, unit] = SPANS.find(([size]) => number >= size) ?? [1, "s"];
  return `${Math.max(0, Math.floor(number / size))} ${unit}`;
}

/** A duration as the API writes it, exactly. */
export function duration({ secs, nanos }) {
  const [size, unit] = SPANS.find(([size]) => secs && !nanos && secs % size === 0) ?? [1, "s"];
  return `${secs / size + nanos / 1e9} ${unit}`;
}

/** How long ago a time was. */
export function since(text) {
  const then = Date.parse(text);
  return Number.isNaN(then) ? "" : seconds((Date.now() - then) / 1000);
}

/** The time of day. */
export function clock(time) {
  return new Date(time).toLocaleTimeString("en-GB");
}

/** A monitor in one line. */
export function monitor(monitor) {
  if (!monitor) return "not checked: every member counts as up";
  const { check } = monitor;
  const port = monitor.port ? ` on port ${monitor.port}` : "";
  const what = {
    tcp: "TCP connect",
    http: `${check.method} ${check.path} gives ${check.codes}`,
    udpConnect: "UDP, no ICMP error",
  }[check.kind] ?? check.kind;
  return `${what}${port}, every ${duration(monitor.delay)}; down after ${monitor.maxRetriesDown} failed, up after ${monitor.maxRetries} successful`;
}

/** What is special about a listener: one short text each. */
export function limits(listener) {
  const found = [];
  const only = listener.allowed?.only;
  if (only) {
    const more = only.length > 2 ? ` and ${only.length - 2} more` : "";
    found.push(only.length ? `only from ${only.slice(0, 2).join(", ")}${more}` : "from no client");
  }
  if (listener.connectionLimit) found.push(`at most ${whole(listener.connectionLimit)} open`);
  return found;
}

/** What is special about a pool. */
export function habits(listener) {
  const found = [];
  if (listener.affinity) found.push(`clients stay ${duration(listener.affinity.timeout)}`);
  if (listener.proxyProtocol) found.push(`PROXY ${listener.proxyProtocol}`);
  return found;
}

/** What is special about a member. */
export function traits(member) {
  const found = [];
  if (member.backup) found.push("backup");
  if (member.weight !== 1) found.push(`weight ${member.weight}`);
  return found;
}

/** Open connections and what passes now. */
export function traffic({ open, rate }) {
  const parts = [`${whole(open)} open`];
  if (rate?.connections) parts.push(perSecond(rate.connections));
  if (rate?.in + rate?.out >= 1) parts.push(`${bytes(rate.in + rate.out)}/s`);
  return parts.join(" · ");
}

/** Counts by name, as words: 3 no member, 2 share. */
function named(counts) {
  const all = Object.entries(counts ?? {});
  return all.map(([name, number]) => `${whole(number)} ${name.replaceAll("_", " ")}`).join(", ");
}

/** What a listener refused, and shortages of this machine; empty if there are none. */
export function failures({ traffic, measured }) {
  const refused = named(measured?.refused);
  const here = named(measured?.localFailures);
  const failed = traffic.failed ? `${whole(traffic.failed)} failed` : "";
  const why = [failed, refused].filter(Boolean).join(": ");
  return [why, here && `short of ${here}`].filter(Boolean).join(" · ");
}

/** How many wait for a member that is at its limit. */
export function waiting({ measured }) {
  return measured?.waiting ? ` · ${whole(measured.waiting)} waiting` : "";
}

/** All that was counted, for the tooltip. */
export function totals(traffic) {
  return `${count(traffic.connections, "connection")} so far, ${whole(traffic.failed)} failed, ` +
    `${bytes(traffic.bytesIn)} in, ${bytes(traffic.bytesOut)} out`;
}

/** The requested address. */
export function request(address) {
  const what = address.requested.length
    ? address.requested.join(", ")
    : `any ${address.families.join(" and ")} address`;
  const from = address.pool ? ` from pool ${address.pool}` : "";
  const shared = address.sharingKey ? `, shared as ${address.sharingKey}` : "";
  return what + from + shared;
}

/** Origin, class and requested address of a Service. */
export function facts(service) {
  const { origin, address } = service;
  return [
    origin && `from ${origin.file}:${origin.line}`,
    service.class && `class ${service.class}`,
    address && `requests ${request(address)}`,
  ].filter(Boolean).join(" · ");
}

/** Where a browser reaches a listener. */
export function url(listener, address) {
  const host = address.includes(":") ? `[${address}]` : address;
  const standard = { http: 80, https: 443 }[listener.mode];
  const port = listener.key.port === standard ? "" : `:${listener.key.port}`;
  return `${listener.mode}://${host}${port}/`;
}

/** How a Service is: one of the keys of STATES. */
export function stateOf(service) {
  const condition = (type) => service.status.conditions.find((one) => one.type === type);
  const programmed = condition("landfall.dev/Programmed");
  const accepted = condition("landfall.dev/Accepted");
  const worst = service.reasons.some((reason) => reason.severity === "error");
  if (service.removing) return worst ? "warn" : "busy";
  if (!programmed || programmed.status !== "True") {
    const progressing = programmed?.reason === "Progressing";
    return (progressing || !programmed) && !worst ? "busy" : "bad";
  }
  const listeners = service.listeners;
  const ill = worst || accepted?.status === "False" ||
    service.reasons.some((reason) => reason.severity === "warning") ||
    listeners.some((one) => one.problem || one.members.some(isIll));
  if (ill) return "warn";
  return service.pending.length ? "busy" : "ok";
}

/** Whether a member can't serve, by its checks or by the connections to it. */
function isIll(member) {
  return member.health === "down" || member.health === "failing";
}

/** The sentence that explains the state of a Service that has a problem. */
export function why(service, state) {
  if (state === "ok") return "";
  const { reasons, listeners, pending } = service;
  const worst = reasons.find((one) => one.severity === "error") ?? reasons.find((one) => one.severity === "warning");
  const problem = worst ?? listeners.find((one) => one.problem)?.problem;
  if (problem) return problem.message;
  const ill = listeners.flatMap((one) => one.members).filter(isIll);
  if (ill.length) return `${count(ill.length, "member")} ${ill[0].health}: ${ill[0].detail || "see below"}`;
  if (pending.length) return `next: ${pending[0].step}`;
  return service.status.conditions.find((one) => one.status !== "True")?.message ?? "";
}
