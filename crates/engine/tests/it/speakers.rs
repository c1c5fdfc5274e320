//! Speakers: a role on every node that follows the World without a Lease, beside the leader.
//!
//! They are built from the parts of the control loop that know neither finalizer nor status nor
//! Lease: a followed World, a keyed queue, debouncing and backoff.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use landfall_engine::backoff::{Backoff, Retries};
use landfall_engine::debounce::Debounce;
use landfall_engine::follow::{Changes, Follower, receive};
use landfall_engine::queue::Queue;
use landfall_engine::report::{Event, OwnKind, OwnObject, OwnReport as _};
use landfall_engine::{Classes, Engine, EngineConfig, ReportError, World};
use landfall_model::rows::Fact;
use landfall_model::{ServiceKey, Uid};
use landfall_testkit::svc;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Client, Cluster, Counting};

type Members = BTreeSet<String>;

/// The network segment: which nodes announce each address.
#[derive(Clone, Debug, Default)]
struct Segment(Arc<Mutex<BTreeMap<IpAddr, Members>>>);

/// One node's speaker.
struct Speaker {
    node: String,
    client: Client,
    cluster: Cluster,
    segment: Segment,
    world: Follower,
    members: watch::Receiver<Members>,
    /// Changed members, which are acted upon together.
    joined: Debounce,
    queue: Queue<ServiceKey>,
    retries: Retries<ServiceKey>,
    /// What is announced for each Service.
    announced: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    /// What the status object says.
    reported: Option<BTreeSet<IpAddr>>,
}

/// A leader, three nodes and the segment between them.
struct Lab {
    cluster: Cluster,
    segment: Segment,
    provider: Arc<Counting>,
    members: watch::Sender<Members>,
    wakes: mpsc::Sender<Uid>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    speakers: BTreeMap<String, CancellationToken>,
}

const DEBOUNCE: Duration = Duration::from_millis(10);

/// Returns the member that announces an address: the one with the highest hash of both, so that a
/// member that leaves moves no other member's addresses.
fn elect(address: IpAddr, members: &Members) -> Option<&String> {
    members.iter().max_by_key(|member| {
        let mut hasher = DefaultHasher::new();
        (address, member).hash(&mut hasher);
        hasher.finish()
    })
}

/// Returns the addresses of a Service that a node announces.
fn announcements(
    world: &World,
    service: &ServiceKey,
    members: &Members,
    node: &String,
) -> BTreeSet<IpAddr> {
    let row = world.service(service);
    let ingress = row.iter().flat_map(|row| &row.status.ingress);
    let addresses = ingress.filter_map(|entry| entry.ip);
    let is_ours = |address: &IpAddr| elect(*address, members) == Some(node);
    addresses.filter(is_ours).collect()
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

// === impl Segment ===

impl Segment {
    fn announce(&self, node: &str, before: &BTreeSet<IpAddr>, after: &BTreeSet<IpAddr>) {
        let mut announcers = self.0.lock().unwrap();
        for address in before.difference(after) {
            if let Some(nodes) = announcers.get_mut(address) {
                nodes.remove(node);
            }
        }
        for address in after.difference(before) {
            let nodes = announcers.entry(*address).or_default();
            nodes.insert(node.to_owned());
        }
        announcers.retain(|_, nodes| !nodes.is_empty());
    }

    fn announcers(&self) -> BTreeMap<IpAddr, Members> {
        self.0.lock().unwrap().clone()
    }

    fn silence(&self, node: &str) {
        let mut announcers = self.0.lock().unwrap();
        for nodes in announcers.values_mut() {
            nodes.remove(node);
        }
        announcers.retain(|_, nodes| !nodes.is_empty());
    }
}

// === impl Speaker ===

impl Speaker {
    async fn run(mut self, mut facts: mpsc::Receiver<Fact>, cancel: CancellationToken) {
        self.members.mark_changed();
        loop {
            while let Some(key) = self.queue.take(now(), |_| 0) {
                if self.work(&key).await.is_ok() {
                    self.retries.reset(&key);
                } else {
                    let delay = self.retries.fail(&key);
                    self.queue.push_after(&key, delay, now());
                }
                self.queue.finish(&key);
            }
            let (due, joined) = (self.queue.next_due(), self.joined.due());
            tokio::select! {
                () = cancel.cancelled() => break,
                batch = receive(&mut facts) => match batch {
                    Some(batch) => self.take(batch),
                    None => break,
                },
                Ok(()) = self.members.changed() => self.joined.push(now()),
                () = tokio::time::sleep_until(due.unwrap_or_else(now).into()),
                    if due.is_some() => {}
                () = tokio::time::sleep_until(joined.unwrap_or_else(now).into()),
                    if joined.is_some() => self.push_all(),
            }
        }
        self.segment.silence(&self.node);
        self.cluster.touch();
    }

    fn take(&mut self, batch: Vec<Fact>) {
        let Changes {
            services,
            all,
            pools,
            resources,
        } = self.world.apply_all(batch);
        for key in &services {
            self.queue.push_after(key, DEBOUNCE, now());
        }
        if all || pools || resources {
            self.joined.push(now());
        }
    }

    fn push_all(&mut self) {
        self.joined.clear();
        self.members.mark_unchanged();
        for key in self.world.keys().collect::<Vec<_>>() {
            self.queue.push(&key);
        }
    }

    /// Announces what this node is to announce of one Service, and reports it.
    async fn work(&mut self, key: &ServiceKey) -> Result<(), ReportError> {
        let after = announcements(&self.world, key, &self.members.borrow(), &self.node);
        let before = self.announced.insert(key.clone(), after.clone());
        let before = before.unwrap_or_default();
        self.segment.announce(&self.node, &before, &after);
        self.cluster.touch();
        let object = OwnObject {
            kind: OwnKind {
                api_version: "landfall.dev/v1alpha1",
                kind: "SpeakerStatus",
                plural: "speakerstatuses",
                whole: None,
                namespace: None,
            },
            name: self.node.clone(),
            labels: BTreeMap::new(),
            owner: None,
        };
        let all: BTreeSet<IpAddr> = self.announced.values().flatten().copied().collect();
        if self.reported.as_ref() == Some(&all) {
            return Ok(());
        }
        let status = json!({"announces": all});
        self.client.write_own(&object, &status).await?;
        let uid = self.world.service(key).map(|row| row.uid.clone());
        for address in after.difference(&before) {
            let event = Event {
                reason: "Announced",
                warning: false,
                message: format!("announces {address}"),
            };
            if let Some(uid) = &uid {
                self.client.own_event(key, uid, &event).await;
            }
        }
        self.reported = Some(all);
        Ok(())
    }
}

// === impl Lab ===

impl Lab {
    /// Starts a leader and a speaker on each of these nodes.
    fn start(nodes: &[&str], services: &[&str]) -> Self {
        let cluster = Cluster::new();
        for name in services {
            cluster.put(&svc(name).port(80).row());
        }
        let provider = Arc::new(Counting::new());
        let (wakes, woken) = mpsc::channel(8);
        let mut lab = Self {
            segment: Segment::default(),
            provider: provider.clone(),
            members: watch::Sender::new(Members::new()),
            wakes,
            cancel: CancellationToken::new(),
            tasks: JoinSet::new(),
            speakers: BTreeMap::new(),
            cluster,
        };
        let client = Arc::new(lab.cluster.client("leader"));
        let config = EngineConfig::new(Classes::only("counting"));
        let engine = Engine::new(config, vec![provider], client);
        let facts = lab.cluster.follow();
        lab.tasks
            .spawn(engine.run(facts, woken, lab.cancel.clone()));
        for node in nodes {
            lab.join(node);
        }
        lab
    }

    fn join(&mut self, node: &str) {
        let cancel = self.cancel.child_token();
        let speaker = Speaker {
            node: node.to_owned(),
            client: self.cluster.client(node),
            cluster: self.cluster.clone(),
            segment: self.segment.clone(),
            world: Follower::default(),
            members: self.members.subscribe(),
            joined: Debounce::new(DEBOUNCE, 10 * DEBOUNCE),
            queue: Queue::new(&[1]),
            retries: Retries::new(Backoff::default()),
            announced: BTreeMap::new(),
            reported: None,
        };
        self.tasks
            .spawn(speaker.run(self.cluster.follow(), cancel.clone()));
        self.speakers.insert(node.to_owned(), cancel);
        self.members
            .send_if_modified(|members| members.insert(node.to_owned()));
    }

    /// Stops a speaker; the others notice that it is gone.
    fn leave(&mut self, node: &str) {
        self.speakers.remove(node).unwrap().cancel();
        self.members
            .send_if_modified(|members| members.remove(node));
    }

    /// Returns whether each published address is announced by its elected member and no other, and
    /// each speaker's own object says so.
    fn is_settled(&self, addresses: usize) -> bool {
        let members = self.members.borrow().clone();
        let published = self.cluster.published();
        let elected = published.iter().map(|address| {
            let member = elect(*address, &members).cloned();
            (*address, member.into_iter().collect::<Members>())
        });
        let elected: BTreeMap<IpAddr, Members> = elected.collect();
        let objects = self.cluster.objects();
        let of = |node: &String| {
            let announces = elected.iter().filter(|(_, nodes)| nodes.contains(node));
            let announces: Vec<_> = announces.map(|(address, _)| address).collect();
            (node.clone(), json!({"announces": announces}))
        };
        let wanted: Vec<_> = members.iter().map(of).collect();
        published.len() == addresses
            && self.segment.announcers() == elected
            && wanted.iter().all(|(node, status)| {
                let found = objects.get(node);
                found.is_some_and(|(writer, found)| writer == node && found == status)
            })
    }

    async fn settled(&self, addresses: usize) {
        let what = "each address is announced by its elected member alone";
        self.cluster
            .until(what, || self.is_settled(addresses))
            .await;
    }

    async fn stop(mut self) {
        self.cancel.cancel();
        while let Some(end) = self.tasks.join_next().await {
            end.unwrap();
        }
    }
}

const SERVICES: [&str; 6] = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff"];

#[tokio::test(start_paused = true)]
async fn one_speaker_announces_each_address_while_the_leader_assigns_them() {
    let lab = Lab::start(&["n1", "n2", "n3"], &SERVICES);
    lab.settled(SERVICES.len()).await;
    assert_eq!(
        lab.cluster.service_writers(),
        Members::from(["leader".to_owned()]),
        "speakers write no Service"
    );
    let nodes = lab.segment.announcers().into_values().flatten();
    for node in nodes.collect::<Members>() {
        assert!(!lab.cluster.events_of(&node).is_empty(), "{node}");
    }
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn members_that_come_and_go_take_over_and_give_back_only_their_addresses() {
    let mut lab = Lab::start(&["n1", "n2", "n3"], &SERVICES);
    lab.settled(SERVICES.len()).await;
    let before = lab.segment.announcers();
    lab.leave("n2");
    lab.settled(SERVICES.len()).await;
    for (address, nodes) in lab.segment.announcers() {
        let stayed = before[&address] == nodes;
        assert!(stayed || before[&address].contains("n2"), "{address}");
    }
    lab.join("n2");
    lab.settled(SERVICES.len()).await;
    assert_eq!(lab.segment.announcers(), before);
    lab.leave("n1");
    lab.leave("n3");
    lab.settled(SERVICES.len()).await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_moves_is_announced_in_place_of_the_earlier_one() {
    let lab = Lab::start(&["n1", "n2", "n3"], &["a"]);
    lab.settled(1).await;
    let before = lab.cluster.published();
    let uid = Uid::new("uid-a");
    for number in [41, 42, 43] {
        lab.provider.move_to(&uid, number);
        lab.wakes.send(uid.clone()).await.unwrap();
        let moved = || {
            let published = lab.cluster.published();
            published
                .iter()
                .all(|it| it.to_string().ends_with(&number.to_string()))
        };
        lab.cluster.until("the address has moved", moved).await;
        lab.settled(1).await;
    }
    assert!(lab.cluster.published().is_disjoint(&before));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_speaker_whose_reports_fail_announces_nevertheless_and_reports_later() {
    let mut lab = Lab::start(&["n1"], &["a", "bb"]);
    lab.settled(2).await;
    lab.cluster.refuse("n2", 5);
    lab.leave("n1");
    lab.join("n2");
    let announces = || {
        let announcers = lab.segment.announcers();
        let all = announcers
            .values()
            .all(|nodes| *nodes == Members::from(["n2".to_owned()]));
        announcers.len() == 2 && all
    };
    lab.cluster
        .until("the new member announces", announces)
        .await;
    assert!(!lab.cluster.objects().contains_key("n2"));
    lab.settled(2).await;
    lab.stop().await;
}
