//! Writes a scrape of 14,000 members and prints what that costs, beside a registry of
//! prometheus-client that holds as many series of members, and without these series.
//!
//! `cargo bench -p landfall-web --bench scrape`. A program, not a timed test.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark may stop at the first surprise"
)]

#[expect(dead_code, reason = "one scene is enough")]
#[path = "../examples/stage/mod.rs"]
mod stage;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use landfall_model::view::{InstanceView, ListenerView, MetricsView};
use landfall_web::metrics::{self, Format, Scope};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use stage::scenes;

/// Listeners of the one Service, and members of each.
const LISTENERS: u16 = 1_000;
const MEMBERS: u16 = 14;

/// Series that each member has.
const SERIES: usize = 5;

const RUNS: usize = 5;

fn main() {
    let view = Arc::new(large());
    let members = usize::from(LISTENERS) * usize::from(MEMBERS);
    println!("scrape of {members} members, best of {RUNS} runs");
    let all = best("everything", || scrape(&view, Scope::ALL));
    let fewer = best("without single members", || {
        let members = false;
        scrape(
            &view,
            Scope {
                members,
                ..Scope::ALL
            },
        )
    });
    let plain = best("text format, everything", || {
        Format::Text.convert(scrape(&view, Scope::ALL))
    });
    best("without histograms", || {
        let histograms = false;
        scrape(
            &view,
            Scope {
                histograms,
                ..Scope::ALL
            },
        )
    });
    let registry = registry(&view);
    let peer = best("prometheus-client, members only", || {
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        page
    });
    for (name, time) in [("everything", all), ("without", fewer), ("text", plain)] {
        println!(
            "ratio {name}: {:.2}",
            time.as_secs_f64() / peer.as_secs_f64()
        );
    }
}

fn scrape(view: &Arc<InstanceView>, scope: Scope) -> String {
    let engine = MetricsView::default();
    metrics::encode(Arc::clone(view), engine, Duration::ZERO, scope).unwrap()
}

fn best(name: &str, mut write: impl FnMut() -> String) -> Duration {
    let mut best = Duration::MAX;
    let mut size = 0;
    for _ in 0..RUNS {
        let begun = Instant::now();
        size = write().len();
        best = best.min(begun.elapsed());
    }
    println!("{name}: {:.1} ms, {size} bytes", best.as_secs_f64() * 1e3);
    best
}

/// An instance with one large Service.
fn large() -> InstanceView {
    let mut view = scenes::shop();
    view.services.truncate(1);
    let service = &mut view.services[0];
    let listener = service.listeners[0].clone();
    let member = listener.members[0].clone();
    let listener = measured(listener);
    service.listeners.clear();
    for port in 1..=LISTENERS {
        let mut listener = listener.clone();
        listener.key.port = port.try_into().unwrap();
        listener.members.clear();
        for number in 1..=MEMBERS {
            let mut member = member.clone();
            member.address.set_port(number);
            listener.members.push(member);
        }
        service.listeners.push(listener);
    }
    view
}

/// With the histograms that a listener has after some traffic: two of twelve buckets.
fn measured(mut listener: ListenerView) -> ListenerView {
    let measured = listener.measured.as_mut().unwrap();
    measured.times.retain(|name, times| {
        times.buckets = (1..=12).map(|bound| (bound * 1_500, bound)).collect();
        times.count = 78;
        matches!(*name, "first_byte" | "request")
    });
    listener
}

/// The series of the members, as a program has them that keeps a registry.
fn registry(view: &InstanceView) -> Registry {
    type Labels = Vec<(&'static str, String)>;
    let mut registry = Registry::default();
    for number in 0..SERIES {
        let family = Family::<Labels, Counter<u64, AtomicU64>>::default();
        for service in &view.services {
            for listener in &service.listeners {
                for member in &listener.members {
                    let labels = vec![
                        ("namespace", service.key.namespace().to_owned()),
                        ("service", service.key.name().to_owned()),
                        ("listener", listener.key.to_string()),
                        ("member", member.address.to_string()),
                    ];
                    family.get_or_create(&labels).inc();
                }
            }
        }
        registry.register(format!("member_{number}"), "Counts", family);
    }
    registry
}
