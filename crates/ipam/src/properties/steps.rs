//! What can happen: a small world in which everything collides.

use landfall_model::rows::Family;
use proptest::prelude::*;

use crate::testing::{ip, pool, selector, svc};
use crate::{Pool, PoolName, PoolSet, PoolSpec, Request, WantedFamilies};

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A Service with this request is reconciled.
    Settle(RequestCase),
    Release(usize),
    /// The pools become those of this number.
    Pools(usize),
    /// The process restarts and reads the claims back, rotated by this much.
    Restart(usize),
}

#[derive(Clone, Debug)]
pub(super) struct RequestCase {
    service: usize,
    families: WantedFamilies,
    asks: Vec<usize>,
    from_pool: Option<&'static str>,
    label: bool,
    key: usize,
    backend: usize,
    ports: Vec<u16>,
}

pub(super) const ASKABLE: [&str; 8] = [
    "10.0.0.0",
    "10.0.0.1",
    "10.0.1.0",
    "10.0.1.1",
    "fd00::",
    "fd00::1",
    "fd01::",
    "192.0.2.1",
];

pub(super) fn pools(number: usize) -> Vec<PoolSpec> {
    match number {
        0 => vec![],
        1 => vec![
            pool("a", "10.0.0.0/30, fd00::-fd00::3"),
            pool("b", "10.0.1.0-10.0.1.2"),
        ],
        2 => vec![
            pool("a", "10.0.0.0/30").avoiding(),
            pool("b", "10.0.1.2/32, 10.0.1.0/31, fd01::/127").priority(3),
            pool("c", "fd00::-fd00::ffff:ffff:ffff:ffff").manual(),
        ],
        3 => vec![
            pool("b", "10.0.0.0-10.0.0.2, fd00::/127").services_with(selector("l=l")),
            pool("c", "10.0.1.0/31, fd01::/127").priority(1),
            pool("d", "10.0.0.3/32"),
        ],
        _ => vec![
            pool("z", "fd00::1-fd00::2, 10.0.0.1/32"),
            pool("a", "10.0.1.1/32, fd01::-fd01:0:0:ffff:ffff:ffff:ffff:ffff"),
        ],
    }
}

pub(super) fn request() -> impl Strategy<Value = RequestCase> {
    let families = prop_oneof![
        3 => Just(WantedFamilies::Only(Family::V4)),
        1 => Just(WantedFamilies::Only(Family::V6)),
        2 => Just(WantedFamilies::RequireDual),
        1 => Just(WantedFamilies::PreferDual { first: Family::V4 }),
        1 => Just(WantedFamilies::PreferDual { first: Family::V6 }),
    ];
    let asks = prop_oneof![
        3 => Just(vec![]),
        1 => prop::collection::vec(0..ASKABLE.len(), 1..3),
    ];
    let from_pool = prop_oneof![
        4 => Just(None),
        1 => prop::sample::select(vec!["a", "b", "c", "none"]).prop_map(Some),
    ];
    (
        0usize..7,
        families,
        asks,
        from_pool,
        any::<bool>(),
        0usize..3,
        0usize..4,
        ports(),
    )
        .prop_map(
            |(service, families, asks, from_pool, label, key, backend, ports)| RequestCase {
                service,
                families,
                asks,
                from_pool,
                label,
                key,
                backend,
                ports,
            },
        )
}

fn ports() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(1u16..5, 0..3)
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => request().prop_map(Step::Settle),
        2 => (0usize..7).prop_map(Step::Release),
        1 => (0usize..5).prop_map(Step::Pools),
        1 => (0usize..7).prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

impl RequestCase {
    /// The same request of another Service.
    pub(super) fn of(self, service: usize) -> Self {
        Self { service, ..self }
    }

    pub(super) fn request(&self) -> Request {
        let mut request = svc(&format!("s{}", self.service))
            .families(self.families)
            .key(["", "k", "k"][self.key])
            .ports(&self.ports)
            .labelled(if self.label { "l=l" } else { "" });
        // Mostly Cluster; Local with and without a selector.
        request = match self.backend {
            0 | 1 => request,
            2 => request.local("app=x"),
            _ => request.local(""),
        };
        request.addresses = self.asks.iter().map(|index| ip(ASKABLE[*index])).collect();
        request.pool = self.from_pool.map(PoolName::new);
        request
    }
}

pub(super) fn set(specs: &[PoolSpec]) -> PoolSet {
    PoolSet::new(
        specs
            .iter()
            .map(|spec| Pool::parse(spec).unwrap())
            .collect(),
    )
    .unwrap()
}
