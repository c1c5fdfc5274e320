//! The session states of this node: a `BGPSessionState` for each BGP session. Written by a task of
//! its own and only where something changed; how often is bounded for each session, so that one
//! that comes and goes costs the API server little.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_bgp::status::State;
use landfall_engine::report::{OwnKind, OwnObject, OwnReport, Owner, ReportError, Version};
use landfall_model::view::PeerView;
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use crate::sessions::Sessions;
use crate::status::name_of;

/// The label with the node.
pub const NODE: &str = "landfall.dev/node";

/// How names of objects begin.
pub const PREFIX: &str = "session-";

/// Sessions come up in this time after a start.
const GATHER: Duration = Duration::from_secs(2);

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);

/// From one write of an object to the next at least: the shortest time, and the longest, for those
/// that change again and again.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(60);

/// After this time the objects are read again: a person may have deleted one.
const REREAD: Duration = Duration::from_mins(10);

/// The time after the first failure in a row, and the longest.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// What an object says of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// The node.
    pub node: String,
    /// The name of the `BGPPeer`; of a router of a range, with a slash and its address.
    pub peer: String,
    /// Where the router is: an address, or an interface of the node.
    pub address: String,
    /// The VRF; empty: none.
    #[serde(default)]
    pub vrf: String,
    /// `Established`, or `Down`: the states between them last for moments.
    pub bgp_status: String,
    /// `Up`, `Down`, or `N/A`: BFD does not watch the router.
    pub bfd_status: String,
    /// What is wrong, for people; empty: nothing.
    #[serde(default)]
    pub problem: String,
}

/// When each object may be written next.
#[derive(Debug, Default)]
pub struct Pace {
    turns: BTreeMap<String, Turn>,
}

#[derive(Debug)]
struct Turn {
    written: Instant,
    pause: Duration,
}

/// Objects that are there by name: which they are and what they say, if that can be read.
type Written = BTreeMap<String, (Version, Option<SessionState>)>;

/// Writes the session states of a node.
#[derive(Debug)]
pub struct SessionStates<R> {
    reporter: Arc<R>,
    node: Arc<str>,
    /// The namespace of the resources.
    namespace: String,
    /// What the objects disappear with.
    owner: Option<Owner>,
    /// What is there, and when it was read.
    written: Option<(Written, Instant)>,
    pace: Pace,
}

/// Returns what is to be said of sessions, by the name of its object.
pub fn states(peers: Vec<PeerView>) -> BTreeMap<String, SessionState> {
    let states = peers.into_iter().map(|peer| {
        let is_established = peer.state == State::Established.name();
        let state = SessionState {
            bgp_status: if is_established {
                peer.state
            } else {
                "Down".to_owned()
            },
            bfd_status: match peer.bfd {
                None => "N/A",
                Some(bfd) if bfd.state == "Up" => "Up",
                Some(_) => "Down",
            }
            .to_owned(),
            node: peer.node,
            peer: peer.name,
            address: peer.address,
            vrf: peer.vrf.unwrap_or_default(),
            problem: peer.problem.map(|it| it.message).unwrap_or_default(),
        };
        (name_of(PREFIX, &state.node, &state.peer), state)
    });
    states.collect()
}

/// Returns the kind of the objects.
pub fn kind(namespace: &str) -> OwnKind {
    OwnKind {
        api_version: "landfall.dev/v1alpha1",
        kind: "BGPSessionState",
        plural: "bgpsessionstates",
        whole: Some("landfall.dev/v1alpha1"),
        namespace: Some(namespace.to_owned()),
    }
}

// === impl Pace ===

impl Pace {
    /// Returns whether an object may be written now.
    pub fn is_due(&self, name: &str, now: Instant) -> bool {
        let turn = self.turns.get(name);
        turn.is_none_or(|turn| now.saturating_duration_since(turn.written) >= turn.pause)
    }

    /// Notes that an object was written, or deleted. One that is written as soon as it may be gets
    /// a longer pause each time; one that had its peace for so long begins with the shortest.
    pub fn wrote(&mut self, name: &str, now: Instant) {
        let pause = match self.turns.get(name) {
            Some(turn) if now.saturating_duration_since(turn.written) < turn.pause * 2 => {
                (turn.pause * 2).min(LONGEST)
            }
            _ => SHORTEST,
        };
        let written = now;
        self.turns.insert(name.to_owned(), Turn { written, pause });
        // Without this, the routers of a range would add up.
        let is_recent = |turn: &Turn| now.saturating_duration_since(turn.written) < LONGEST * 2;
        self.turns.retain(|_, turn| is_recent(turn));
    }
}

// === impl SessionStates ===

impl<R: OwnReport> SessionStates<R> {
    /// Nothing is read or written yet.
    pub fn new(reporter: Arc<R>, node: &str, namespace: &str, owner: Option<Owner>) -> Self {
        Self {
            reporter,
            node: node.into(),
            namespace: namespace.to_owned(),
            owner,
            written: None,
            pace: Pace::default(),
        }
    }

    /// Writes the state of sessions until they are gone.
    pub async fn run(mut self, sessions: Arc<Sessions>) {
        let mut shown = sessions.shown.clone();
        if shown.wait_for(|it| it.begun.is_some()).await.is_err() {
            return;
        }
        tokio::time::sleep(GATHER).await;
        let (mut retry, mut said) = (RETRY, String::new());
        loop {
            let now = Instant::now();
            let wanted = states(sessions.peers(&self.node, now));
            match self.settle(&wanted, now).await {
                Ok(()) => {
                    (retry, said) = (RETRY, String::new());
                    let is_idle = wanted.is_empty() && self.has_none();
                    if is_idle && shown.changed().await.is_err() {
                        return;
                    }
                    tokio::time::sleep(LOOK).await;
                }
                Err(error) => {
                    let text = error.to_string();
                    if text == said {
                        debug!(%error, "the states of BGP sessions are still not written");
                    } else {
                        warn!(%error, "the states of BGP sessions are not written");
                    }
                    said = text;
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
    }

    fn has_none(&self) -> bool {
        self.written.as_ref().is_none_or(|(it, _)| it.is_empty())
    }

    /// Makes what is there what is wanted, as far as it may be written now.
    ///
    /// # Errors
    /// The API server can't be asked, or refuses a write.
    pub async fn settle(
        &mut self,
        wanted: &BTreeMap<String, SessionState>,
        now: Instant,
    ) -> Result<(), ReportError> {
        let is_old = |read: Instant| now.saturating_duration_since(read) >= REREAD;
        let (mut written, read) = match self.written.take() {
            Some((written, read)) if !is_old(read) => (written, read),
            _ => (self.read().await?, now),
        };
        self.settle_from(&mut written, wanted, now).await?;
        // After a failure it is read again: another process may have written.
        self.written = Some((written, read));
        Ok(())
    }

    async fn settle_from(
        &mut self,
        written: &mut Written,
        wanted: &BTreeMap<String, SessionState>,
        now: Instant,
    ) -> Result<(), ReportError> {
        let is_gone = |name: &String| !wanted.contains_key(name) && self.pace.is_due(name, now);
        let gone: Written = written.extract_if(.., |name, _| is_gone(name)).collect();
        for (name, (version, _)) in gone {
            let object = self.object(&name);
            self.reporter.delete_own(&object, &version).await?;
            self.pace.wrote(&name, now);
        }
        for (name, state) in wanted {
            let there = written.get(name).and_then(|(_, said)| said.as_ref());
            let is_so = there == Some(state);
            if is_so || !self.pace.is_due(name, now) {
                continue;
            }
            let version = self.reporter.write_own(&self.object(name), state).await?;
            written.insert(name.clone(), (version, Some(state.clone())));
            self.pace.wrote(name, now);
        }
        Ok(())
    }

    async fn read(&self) -> Result<Written, ReportError> {
        let selector = format!("{NODE}={}", self.node);
        let kind = kind(&self.namespace);
        let found = self.reporter.list_own(&kind, &selector).await?;
        let found = found.into_iter();
        Ok(found.map(|it| (it.name, (it.version, it.status))).collect())
    }

    fn object(&self, name: &str) -> OwnObject {
        OwnObject {
            kind: kind(&self.namespace),
            name: name.to_owned(),
            labels: BTreeMap::from([(NODE.to_owned(), self.node.to_string())]),
            owner: self.owner.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However a session comes and goes, its object is written once in ten seconds at most, and
        /// says in the end what is so.
        #[test]
        fn a_session_that_flaps_is_written_seldom_and_its_last_state_is_not_lost(
            changes in proptest::collection::vec(0..3_u32, 60..900),
        ) {
            let mut pace = Pace::default();
            let start = Instant::now();
            let (mut said, mut writes) = (None, Vec::new());
            let last = changes.last().copied();
            let rest = std::iter::repeat_n(last.unwrap_or_default(), 61);
            for (second, state) in (0..).zip(changes.into_iter().chain(rest)) {
                let now = start + Duration::from_secs(second);
                if said != Some(state) && pace.is_due("tor", now) {
                    said = Some(state);
                    pace.wrote("tor", now);
                    writes.push(second);
                }
            }
            prop_assert_eq!(said, last);
            prop_assert!(writes.windows(2).all(|it| it[1] - it[0] >= 10), "{:?}", writes);
        }
    }

    #[test]
    fn one_that_changes_every_second_is_written_once_a_minute_and_a_quiet_one_at_once() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let mut writes = Vec::new();
        for second in 0..=400 {
            let now = start + Duration::from_secs(second);
            if pace.is_due("tor", now) {
                pace.wrote("tor", now);
                writes.push(second);
            }
        }
        assert_eq!(writes, [0, 10, 30, 70, 130, 190, 250, 310, 370]);
        let later = start + Duration::from_secs(370 + 120);
        pace.wrote("tor", later);
        assert!(!pace.is_due("tor", later + Duration::from_secs(9)));
        assert!(pace.is_due("tor", later + Duration::from_secs(10)));
    }

    #[test]
    fn sessions_that_came_and_went_are_forgotten() {
        let mut pace = Pace::default();
        let start = Instant::now();
        for number in 0..10_000 {
            let now = start + Duration::from_secs(number);
            pace.wrote(&format!("range/{number}"), now);
        }
        assert!(pace.turns.len() <= 120, "{}", pace.turns.len());
    }
}
