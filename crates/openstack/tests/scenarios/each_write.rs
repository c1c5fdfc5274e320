//! Changes of a Service of which one write is refused, whichever: what serves goes on serving and
//! following nodes, whatever else the cloud takes is done, and the rest once it is taken.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::{CallInfo, Fault};
use landfall_testkit::svc;
use serde_json::Value;

use crate::rig::stage::Stage;
use crate::rig::{Picture, Rig};
use crate::written::{refusal, short};

const CONF: &str = "create-monitor=true\nmanage-security-groups=true";
pub const SOON: Duration = Duration::from_secs(900);
pub const LONG: Duration = Duration::from_secs(3600);

/// How a Service is changed: a name, how many ports it has before, what becomes of it, and what
/// names the option.
type Edit = (&'static str, u16, fn(&str) -> ServiceBuilder, &'static str);

/// Ports 80, 81 and so on.
pub fn service(ports: std::ops::Range<u16>) -> ServiceBuilder {
    ports.fold(svc("web"), |service, number| {
        let port = service.named_port(&format!("p{number}"), 80 + number);
        port.node_port(30_080 + number)
    })
}

fn annotated(key: &str, value: &str) -> ServiceBuilder {
    service(0..2).annotated(&short(key), value)
}

const EDITS: [Edit; 13] = [
    (
        "proxy",
        2,
        |_| annotated("proxy-protocol", "v2"),
        "proxy-protocol",
    ),
    (
        "certificate",
        2,
        |secret| annotated("default-tls-container-ref", secret),
        "default-tls-container-ref",
    ),
    (
        "headers",
        2,
        |_| annotated("x-forwarded-for", "true"),
        "x-forwarded-for",
    ),
    (
        "number",
        2,
        |_| {
            let renumbered = svc("web").named_port("p0", 8080).node_port(30_080);
            renumbered.named_port("p1", 81).node_port(30_081)
        },
        "spec.ports",
    ),
    ("fewer", 3, |_| service(2..3), "spec.ports"),
    (
        "unmonitored",
        2,
        |_| annotated("enable-health-monitor", "false"),
        "enable-health-monitor",
    ),
    (
        "ranges",
        2,
        |_| service(0..2).source_range("192.0.2.0/24"),
        "spec.loadBalancerSourceRanges",
    ),
    (
        "times",
        2,
        |_| annotated("timeout-client-data", "1234"),
        "timeout-client-data",
    ),
    (
        "limit",
        2,
        |_| annotated("connection-limit", "7"),
        "connection-limit",
    ),
    (
        "listener tags",
        2,
        |_| annotated("listener-tags", "a"),
        "listener-tags",
    ),
    ("pool tags", 2, |_| annotated("pool-tags", "a"), "pool-tags"),
    (
        "balancer tags",
        2,
        |_| annotated("load-balancer-tags", "a"),
        "load-balancer-tags",
    ),
    (
        "checks",
        2,
        |_| annotated("health-monitor-delay", "17"),
        "health-monitor-delay",
    ),
];

/// What a cloud refuses writes with for good, and what it says.
pub const REFUSALS: [(u16, &str); 6] = [
    (403, "Quota has been met for resources"),
    (400, "Validation failure"),
    (404, "What it names was not found."),
    (409, "Another object is in the way."),
    (413, "The body is too large."),
    (422, "Unprocessable"),
];

/// What a request is refused by: its method and path, and what it is about where the path leaves
/// that open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    pub line: String,
    about: String,
}

// === impl Write ===

impl Write {
    fn new(line: &str, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let fields = body.as_object().and_then(|it| it.values().next());
        let word = |key: &str| fields.map_or(Value::Null, |it| it[key].clone());
        let about = match line.split(' ').next() {
            Some("POST") => format!("{} {}", word("name"), word("pool_id")),
            _ => String::new(),
        };
        Self {
            line: line.to_owned(),
            about,
        }
    }

    fn of(call: &CallInfo) -> Self {
        Self::new(&format!("{} {}", call.method, call.path), &call.body)
    }

    fn opens(&self, port: u16) -> bool {
        self.line.ends_with("/listeners")
            && self.about.contains(&format!("listener_{}_", port - 80))
            && !self.about.contains("tried_")
    }

    /// Whether what it sets is the option alone.
    fn is_of_option(&self) -> bool {
        let of = |kind: &str| self.line.contains(kind) && !self.line.starts_with("DELETE");
        self.line.starts_with("PUT") && (of("/listeners/") || of("/healthmonitors/"))
            || self.line.starts_with("POST") && of("/listeners")
            || of("/loadbalancers/")
    }

    fn is_of_members(&self) -> bool {
        self.line.ends_with("/members")
    }
}

/// The ports that clients are served at, with the members behind them.
pub fn served(picture: &Picture) -> Vec<(u16, Vec<String>)> {
    let in_use = |port: u16| !picture.listener_at(port).name.starts_with("tried_");
    let ports = picture.listeners.iter().map(|it| it.protocol_port);
    let ports: BTreeSet<u16> = ports.filter(|port| in_use(*port)).collect();
    let of = |port: u16| {
        let has_pool = picture.listener_at(port).default_pool_id.is_some();
        let members = if has_pool {
            picture.members_at(port)
        } else {
            Vec::new()
        };
        (port, members)
    };
    ports.into_iter().map(of).collect()
}

/// The world before a change, and the certificate that it may name.
async fn world(ports: u16) -> (Rig, String) {
    let stage = Stage::new();
    let secret = stage.add_secret();
    let mut rig = Rig::on(stage, CONF);
    rig.apply(service(0..ports)).await;
    rig.forget();
    (rig, secret)
}

/// The writes of a change that nothing disturbs; and what is served in the end.
async fn undisturbed(edit: Edit) -> (usize, Vec<(u16, Vec<String>)>) {
    let (mut rig, secret) = world(edit.1).await;
    rig.apply((edit.2)(&secret)).await;
    rig.settle().await;
    assert_eq!(refusal(&rig, "web"), "", "{}", edit.0);
    let writes = rig.sent().len();
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    (writes, served(&rig.picture().await))
}

/// From now on the n-th write from now is refused, and every like it; which that is.
pub fn refuse_nth(
    rig: &Rig,
    nth: usize,
    (code, why): (u16, &'static str),
) -> std::sync::Arc<std::sync::Mutex<Option<Write>>> {
    let refused = std::sync::Arc::new(std::sync::Mutex::new(None));
    let (chosen, mut count) = (refused.clone(), 0);
    rig.sim.on_call(move |call| {
        if !call.is_write() || call.path.contains("/auth/tokens") {
            return None;
        }
        let write = Write::of(call);
        // What is not there any more needs no deletion.
        let gone = code == 404 && write.line.starts_with("DELETE");
        let mut chosen = chosen.lock().unwrap();
        if chosen.is_none() && count == nth && !gone {
            *chosen = Some(write.clone());
        }
        count += 1;
        let hit = chosen.as_ref() == Some(&write);
        hit.then(|| Fault::status(call.service, code, why))
    });
    refused
}

/// Refuses one write of a change and all like it, and reads what becomes of the rest.
async fn attack(
    edit: Edit,
    nth: usize,
    with: (u16, &'static str),
    wanted: &[(u16, Vec<String>)],
) -> Option<String> {
    let (mut rig, secret) = world(edit.1).await;
    let refused = refuse_nth(&rig, nth, with);
    rig.apply((edit.2)(&secret)).await;
    rig.settle().await;
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    rig.wait(SOON).await;
    rig.settle().await;
    let write = refused.lock().unwrap().clone()?;
    let picture = rig.picture().await;
    let now = served(&picture);
    let reported = refusal(&rig, "web");
    let context = format!("{} {nth} {with:?} {write:?}: {now:?}; {reported}", edit.0);
    let new_node = |members: &[String]| members.iter().any(|it| it.starts_with("10.0.0.6:"));
    let mut faults = Vec::new();
    // Each port that was served and still is wanted is served, by nodes that are there; of the
    // members of one pool, changes may be refused.
    let spared = |port: u16| {
        let pool = picture.listener_at(port).default_pool_id.clone();
        let path = pool.map(|it| format!("/v2/lbaas/pools/{it}/members"));
        write.is_of_members() && path.is_some_and(|path| write.line.ends_with(&path))
    };
    for port in [80, 81, 82] {
        let there = now.iter().find(|(it, _)| *it == port);
        let is_wanted = wanted.iter().any(|(it, _)| *it == port);
        let elsewhere = now.iter().any(|(it, _)| *it == 8080);
        match there {
            Some((_, members))
                if is_wanted && (members.is_empty() || !(new_node(members) || spared(port))) =>
            {
                faults.push(format!("port {port} has {members:?}"));
            }
            // What takes its place was accepted elsewhere, and is refused now.
            None if is_wanted && write.opens(port) => {}
            None if is_wanted => faults.push(format!("port {port} is closed")),
            None if edit.0 == "number" && port == 80 && !elsewhere => {
                faults.push("the port is closed, and the next one not open".to_owned());
            }
            _ => {}
        }
    }
    // What the Service does not want any more goes, but for the one that can't.
    let surplus = now
        .iter()
        .filter(|(port, _)| !wanted.iter().any(|(it, _)| it == port));
    let surplus = surplus.count();
    if surplus > 1 {
        faults.push(format!("{surplus} ports are open that nothing asks for"));
    }
    if reported.is_empty() && !write.line.contains("security-group") && now != *wanted {
        faults.push("nothing is reported".to_owned());
    }
    let swaps = matches!(edit.0, "proxy" | "certificate" | "headers");
    let names = |option: &str| reported.contains(option);
    if write.is_of_option() && !reported.is_empty() && !swaps && !names(edit.3) {
        faults.push(format!("{} is not named", edit.3));
    }
    if write.line.contains("/lbaas/") && !reported.is_empty() {
        let some = [
            edit.3,
            "spec.ports",
            "node-selector",
            "enable-health-monitor",
        ];
        if !some.into_iter().any(names) {
            faults.push("no option is named".to_owned());
        }
    }
    // Once the cloud takes it, it is had.
    rig.sim.on_call(|_| None);
    rig.wait(LONG).await;
    rig.settle().await;
    let last = served(&rig.picture().await);
    if last != *wanted || !refusal(&rig, "web").is_empty() {
        faults.push(format!("at last {last:?}; {}", refusal(&rig, "web")));
    }
    assert_eq!(rig.published("web").len(), 1, "{context}");
    (!faults.is_empty()).then(|| format!("{context}\n   {}", faults.join("\n   ")))
}

async fn attack_all(edits: &[Edit]) {
    let mut faults = Vec::new();
    for edit in edits {
        let (writes, wanted) = undisturbed(*edit).await;
        assert!(writes > 0, "{}", edit.0);
        for nth in 0..writes {
            // With each of them for every write it takes three times as long.
            for with in [nth, nth + 3].map(|it| REFUSALS[it % REFUSALS.len()]) {
                faults.extend(attack(*edit, nth, with, &wanted).await);
            }
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_the_next_pools_stops_nothing_else() {
    attack_all(&EDITS[..1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_the_next_listeners_stops_nothing_else() {
    attack_all(&EDITS[1..3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_what_is_only_changed_stops_nothing_else() {
    attack_all(&EDITS[3..8]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_an_option_stops_nothing_else() {
    attack_all(&EDITS[8..]).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_members_are_refused_keeps_no_other_from_following_nodes() {
    let (mut rig, _) = world(3).await;
    let pool = rig.picture().await.pool_at(80).id.clone();
    let path = format!("/v2/lbaas/pools/{pool}/members");
    rig.sim.on_call(move |call| {
        let hit = call.method == Method::PUT && call.path == path;
        hit.then(|| {
            Fault::status(
                call.service,
                403,
                "Quota has been met for resources: Member",
            )
        })
    });
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(
        [80, 81, 82].map(|port| picture.members_at(port).len()),
        [2, 3, 3]
    );
    assert!(
        refusal(&rig, "web").contains("Quota"),
        "{}",
        refusal(&rig, "web")
    );
    // It is tried again soon, however often it was refused.
    rig.wait(LONG).await;
    rig.sim.on_call(|_| None);
    rig.wait(SOON).await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
    assert_eq!(refusal(&rig, "web"), "");
}
