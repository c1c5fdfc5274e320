//! Random schedules of edits, failing status writes and crashes: at no moment do two Services hold
//! or publish one address unless they share it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::{World, resolve};
use landfall_local::Local;
use landfall_model::intent::{Claim, Intent};
use landfall_model::provider::{Applied, Provider};
use landfall_model::rows::{PoolRow, ServiceRow};
use landfall_model::status::HELD_ADDRESSES;
use landfall_testkit::svc;
use proptest::prelude::*;

const SERVICES: usize = 5;

/// Pools that overlap in part, so that edits of them move Services and make them give up.
const POOLS: [&str; 3] = [
    "127.78.0.0-127.78.0.2",
    "127.78.0.1-127.78.0.3",
    "127.78.0.4/32",
];

/// What becomes of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Done,
    /// It fails.
    Lost,
    /// It is done, and the answer is lost.
    Unanswered,
}

#[derive(Clone, Debug)]
enum Act {
    /// The Service asks for this address, or for any, or for a name in its place.
    Edit(usize, Option<u8>, bool),
    Delete(usize),
    Pass(usize, Write),
    /// The process stops after this many steps of a pass, and starts again.
    Crash(usize, usize),
    Pool(usize),
}

struct Run {
    local: Local,
    pool: usize,
    rows: BTreeMap<usize, Arc<ServiceRow>>,
    /// Deleted, with a finalizer that is still there.
    deleting: BTreeSet<usize>,
    /// What the status of each Service names.
    records: BTreeMap<usize, BTreeSet<IpAddr>>,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let write = prop_oneof![
        4 => Just(Write::Done),
        2 => Just(Write::Lost),
        1 => Just(Write::Unanswered),
    ];
    let service = || 0..SERVICES;
    let act = prop_oneof![
        4 => (service(), prop::option::of(0..5u8), any::<bool>())
            .prop_map(|(service, asked, named)| Act::Edit(service, asked, named)),
        2 => service().prop_map(Act::Delete),
        8 => (service(), write).prop_map(|(service, write)| Act::Pass(service, write)),
        1 => (service(), 0..4usize).prop_map(|(service, steps)| Act::Crash(service, steps)),
        1 => (0..POOLS.len()).prop_map(Act::Pool),
    ];
    prop::collection::vec(act, 1..60)
}

/// The first two Services share; no others do.
fn may_share(one: usize, other: usize) -> bool {
    one < 2 && other < 2
}

fn service(number: usize, asked: Option<u8>, named: bool) -> Arc<ServiceRow> {
    let mut service = svc(&format!("s{number}")).port(8000 + u16::try_from(number).unwrap());
    if may_share(number, number) {
        service = service.annotated("landfall.dev/sharing-key", "k");
    }
    if let Some(last) = asked {
        service = service.annotated("landfall.dev/addresses", &format!("127.78.0.{last}"));
    }
    if named {
        service = service.annotated("landfall.dev/hostname", "web.example.com");
    }
    service.row()
}

impl Run {
    fn new() -> Self {
        let run = Self {
            local: Local::offline(),
            pool: 0,
            rows: BTreeMap::new(),
            deleting: BTreeSet::new(),
            records: BTreeMap::new(),
        };
        run.set_pools();
        run
    }

    fn set_pools(&self) {
        let pool = PoolRow {
            name: "default".to_owned(),
            addresses: vec![POOLS[self.pool].to_owned()],
            auto_assign: true,
            ..PoolRow::default()
        };
        assert_eq!(self.local.set_pools(&[Arc::new(pool)]), []);
    }

    fn intent(&self, number: usize) -> Option<Intent> {
        let row = self.rows.get(&number)?;
        Some(if self.deleting.contains(&number) {
            Intent::removal(row.key.clone(), row.uid.clone())
        } else {
            resolve(row, &World::default(), self.local.profile()).unwrap()
        })
    }

    async fn act(&mut self, act: &Act) {
        match act {
            Act::Edit(number, asked, named) => {
                if !self.deleting.contains(number) {
                    self.rows.insert(*number, service(*number, *asked, *named));
                }
            }
            Act::Delete(number) => {
                if self.rows.contains_key(number) {
                    self.deleting.insert(*number);
                }
            }
            Act::Pass(number, write) => self.pass(*number, *write, usize::MAX).await,
            Act::Crash(number, steps) => {
                self.pass(*number, Write::Done, *steps).await;
                self.restart();
            }
            Act::Pool(pool) => {
                self.pool = *pool;
                self.set_pools();
            }
        }
        self.check().await;
    }

    /// A pass as the engine makes it, whose status writes end like this.
    async fn pass(&mut self, number: usize, write: Write, steps: usize) {
        let Some(intent) = self.intent(number) else {
            return;
        };
        let observed = self.local.observe(&intent).await.unwrap();
        let Ok(plan) = self.local.plan(&intent, &observed) else {
            return;
        };
        for planned in plan.steps.iter().take(steps) {
            let Ok(applied) = self.local.apply(&planned.step).await else {
                return;
            };
            if let Applied::Addressed(published) = applied {
                let addresses = published.ingress.iter().filter_map(|entry| entry.ip);
                let marks = published.marks.get(HELD_ADDRESSES);
                let marked = marks.iter().flat_map(|mark| mark.split(','));
                let marked = marked.map(|address| address.parse().unwrap());
                if write != Write::Lost {
                    self.records
                        .insert(number, addresses.chain(marked).collect());
                }
                if write != Write::Done {
                    return;
                }
                self.local.on_recorded(&intent.uid);
            }
            self.check().await;
        }
        // The finalizer goes last.
        if intent.load_balancer.is_none() && steps == usize::MAX && write != Write::Lost {
            self.rows.remove(&number);
            self.deleting.remove(&number);
            self.records.remove(&number);
            self.local.on_forgotten(&intent.uid);
        }
    }

    fn restart(&mut self) {
        self.local = Local::offline();
        self.set_pools();
        let claims = self.records.iter().filter_map(|(number, addresses)| {
            let row = self.rows.get(number)?;
            let annotation = |name: &str| row.annotations.get(name).cloned();
            let ports = row.ports.iter().map(|port| landfall_model::ListenerKey {
                protocol: port.protocol,
                port: port.port,
            });
            Some(Claim {
                service: row.key.clone(),
                uid: row.uid.clone(),
                addresses: addresses.iter().copied().collect(),
                requested: Vec::new(),
                sharing_key: annotation("landfall.dev/sharing-key"),
                backend_key: String::new(),
                ports: ports.collect(),
            })
        });
        self.local.restore_claims(&claims.collect::<Vec<_>>());
    }

    async fn check(&self) {
        let mut users: BTreeMap<IpAddr, BTreeSet<usize>> = BTreeMap::new();
        for number in self.rows.keys() {
            let Some(intent) = self.intent(*number) else {
                continue;
            };
            let observed = self.local.observe(&intent).await.unwrap();
            let recorded = self.records.get(number).into_iter().flatten().copied();
            let listening = observed.listeners.keys().map(|id| id.address);
            let open: BTreeSet<IpAddr> = listening.clone().collect();
            let held = observed
                .addresses
                .held
                .iter()
                .chain(&observed.addresses.leaving)
                .copied();
            for address in held.clone().chain(recorded).chain(listening) {
                users.entry(address).or_default().insert(*number);
            }
            let held: BTreeSet<IpAddr> = held.collect();
            assert!(held.is_superset(&open), "s{number} listens on {open:?}");
        }
        for (address, users) in &users {
            for one in users {
                for other in users.iter().filter(|other| *other > one) {
                    assert!(
                        may_share(*one, *other),
                        "{address} is used by s{one} and s{other}"
                    );
                }
            }
        }
    }

    /// Everything that can settle does, and then nothing is planned any more.
    async fn settles(&mut self) {
        for _ in 0..SERVICES + 2 {
            for number in 0..SERVICES {
                self.pass(number, Write::Done, usize::MAX).await;
            }
        }
        for number in self.rows.keys() {
            let intent = self.intent(*number).unwrap();
            let observed = self.local.observe(&intent).await.unwrap();
            if let Ok(plan) = self.local.plan(&intent, &observed) {
                let steps = plan.steps.iter().map(|planned| planned.step.to_string());
                assert_eq!(steps.collect::<Vec<_>>(), [] as [&str; 0], "s{number}");
            }
            assert_eq!(observed.addresses.leaving, [] as [IpAddr; 0], "s{number}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_two_services_use_one_address_unless_they_share_it(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new();
            for act in &acts {
                run.act(act).await;
            }
            run.settles().await;
        });
    }
}
