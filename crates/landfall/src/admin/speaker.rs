//! The admin endpoint's view of a speaker.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_kube::Health;
use landfall_local::Serving;
use landfall_membership::driver::Membership;
use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::ServiceRow;
use landfall_model::view::{AnnouncedView, InstanceView, MetricsView, ServiceView, SpeakerMetrics};
use landfall_proxy::Proxy;
use landfall_speaker::questions::Questions;
use landfall_speaker::serve::ServingView;
use landfall_speaker::sessions::Sessions;
use landfall_speaker::task::{Outputs, SpeakerView};
use landfall_web::{Heartbeat, PlanError, Readiness};
use tokio::sync::watch;

use crate::backend::resources;
use crate::logging;

/// Answers for a speaker.
#[derive(Debug)]
pub struct SpeakerApi {
    view: watch::Receiver<Arc<SpeakerView>>,
    health: watch::Receiver<Health>,
    membership: Membership,
    node: String,
    started: String,
    changes: watch::Sender<u64>,
    /// Where this node serves addresses itself.
    data_plane: Option<ServedView>,
    sessions: Arc<Sessions>,
    questions: Questions,
    /// When a probe first saw that the cluster is known.
    known_since: OnceLock<Instant>,
}

/// What a node serves itself.
#[derive(Clone, Debug)]
pub struct ServedView {
    /// The Services, and what can't be served of them.
    pub view: watch::Receiver<Arc<ServingView>>,
    /// Their listeners.
    pub serving: Arc<Serving>,
    /// What carries their traffic.
    pub proxy: Arc<Proxy>,
}

// === impl SpeakerApi ===

impl SpeakerApi {
    /// Answers from what the loop shows.
    pub fn new(
        outputs: &Outputs,
        health: watch::Receiver<Health>,
        membership: Membership,
        sessions: Arc<Sessions>,
        node: &str,
    ) -> Self {
        Self {
            view: outputs.view.clone(),
            health,
            membership,
            node: node.to_owned(),
            started: Timestamp::now().to_string(),
            changes: watch::Sender::new(0),
            data_plane: None,
            sessions,
            questions: outputs.questions.clone(),
            known_since: OnceLock::new(),
        }
    }

    /// The same, with what this node serves itself, if it does.
    pub fn serving(self, data_plane: Option<ServedView>) -> Self {
        Self { data_plane, ..self }
    }

    fn speaker(&self) -> SpeakerMetrics {
        let view = self.view.borrow().clone();
        let announces = view.announces.iter().flat_map(|(address, services)| {
            services.iter().map(|service| AnnouncedView {
                protocol: "layer2".to_owned(),
                node: self.node.clone(),
                address: *address,
                service: service.clone(),
            })
        });
        let counts = self.membership.counts();
        SpeakerMetrics {
            announces: announces
                .chain(self.sessions.announced(&self.node))
                .collect(),
            failing: view.failing.len() as u64,
            members: 1 + view.members.len() as u64,
            members_died: counts.died,
            suspicions: counts.suspected,
            refuted: counts.refuted,
            pauses: counts.paused,
            datagrams_refused: [
                ("foreign", counts.foreign),
                ("unknown_key", counts.unknown_key),
                ("forged", counts.forged),
                ("replayed", counts.replayed),
                ("own_name", counts.own_name),
            ]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
        }
    }
}

impl landfall_web::Instance for SpeakerApi {
    fn view(&self) -> Arc<InstanceView> {
        let Readiness { ready, waiting } = self.readiness();
        let view = self.view.borrow().clone();
        let failing = view.failing.iter().map(|(address, why)| {
            Reason::warning(
                Code::NotAnnounced,
                format!("{address} is not announced: {why}"),
            )
        });
        let health = self.health.borrow().clone();
        let unseen = health.failing().map(|(what, why)| {
            Reason::warning(
                Code::ChangesNoticedLate,
                format!("{what} can't be watched: {why}"),
            )
            .remedy("the last known state is announced; changes are applied once it is back")
        });
        Arc::new(InstanceView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started.clone(),
            ready,
            waiting,
            problems: unseen
                .chain(failing)
                .chain(self.sessions.problems())
                .collect(),
            peers: self.sessions.peers(&self.node, Instant::now()),
            routes: self.sessions.routes(&self.node),
            services: self
                .data_plane
                .iter()
                .flat_map(ServedView::services)
                .collect(),
            ..InstanceView::default()
        })
    }

    fn readiness(&self) -> Readiness {
        let now = Instant::now();
        let view = self.view.borrow();
        let since = if view.is_ready {
            *self.known_since.get_or_init(|| now)
        } else {
            now
        };
        let is_beginning = self.sessions.is_beginning(since, now);
        readiness(&view, is_beginning, &self.sessions.unmet(now))
    }

    async fn service(&self, key: &ServiceKey) -> Option<ServiceView> {
        let explained = self.questions.explain(key).await?;
        let served = self.data_plane.as_ref().and_then(|it| it.service(key));
        let mut view = served.unwrap_or_else(|| of_row(&explained.row));
        view.reasons.extend(explained.reasons);
        view.announcements = self.sessions.explain(explained.announcements);
        Some(view)
    }

    fn similar(&self, _key: &ServiceKey) -> Vec<ServiceKey> {
        Vec::new()
    }

    fn metrics(&self) -> MetricsView {
        MetricsView {
            lost_log_lines: logging::lost(),
            left_out_log_lines: logging::left_out(),
            speaker: Some(self.speaker()),
            resources: self.data_plane.as_ref().map(|it| resources(&it.proxy)),
            ..MetricsView::default()
        }
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn heartbeat(&self) -> Heartbeat {
        // The loop waits for nothing outside; its end ends the process.
        Heartbeat {
            age: Duration::ZERO,
            limit: Duration::from_secs(1),
        }
    }

    fn services_json(&self) -> serde_json::Value {
        landfall_model::wire::service_list(std::iter::empty())
    }

    async fn plan(
        &self,
        _manifests: Vec<u8>,
        _prune: bool,
    ) -> Result<serde_json::Value, PlanError> {
        Err(PlanError::Unavailable(
            "a speaker makes no plans".to_owned(),
        ))
    }
}

/// Returns whether a speaker is ready. `is_beginning`: what routers are to be sent is not known
/// yet; `unmet`: the routers that had no session yet.
fn readiness(view: &SpeakerView, is_beginning: bool, unmet: &[Arc<str>]) -> Readiness {
    let waiting: Vec<String> = if !view.is_ready {
        vec!["the cluster and the other speakers are not known yet".to_owned()]
    } else if view.has_routers && is_beginning {
        vec!["the listeners of this node are not open yet, and routers are sent nothing".to_owned()]
    } else {
        let of_router = |name| format!("there was no session with router {name} yet");
        unmet.iter().map(of_router).collect()
    };
    Readiness {
        ready: waiting.is_empty(),
        waiting,
    }
}

/// Returns a Service as it is in the cluster.
fn of_row(row: &ServiceRow) -> ServiceView {
    ServiceView {
        key: row.key.clone(),
        uid: row.uid.clone(),
        class: row.class.as_ref().map(ToString::to_string),
        origin: None,
        status: row.status.clone(),
        reasons: Vec::new(),
        address: None,
        announcements: Vec::new(),
        listeners: Vec::new(),
        left_out: Vec::new(),
        pending: Vec::new(),
        removing: false,
    }
}

// === impl ServedView ===

impl ServedView {
    fn services(&self) -> Vec<ServiceView> {
        let view = self.view.borrow().clone();
        let keys = view.services.keys();
        keys.filter_map(|key| self.service(key)).collect()
    }

    fn service(&self, key: &ServiceKey) -> Option<ServiceView> {
        let view = self.view.borrow().clone();
        let served = view.services.get(key)?;
        let problem = view.problems.get(key);
        let problem = problem.map(|why| Reason::warning(Code::ListenFailed, why.clone()));
        Some(ServiceView {
            key: key.clone(),
            uid: served.uid.clone(),
            class: None,
            origin: None,
            status: served.status.clone(),
            reasons: problem.into_iter().collect(),
            address: None,
            announcements: Vec::new(),
            listeners: self.serving.live(&served.uid),
            left_out: Vec::new(),
            pending: Vec::new(),
            removing: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speaker_is_ready_once_routers_get_what_they_are_to_get_where_there_are_any() {
        let view = |is_ready, has_routers| SpeakerView {
            is_ready,
            has_routers,
            ..SpeakerView::default()
        };
        let waits = |view: &SpeakerView, is_beginning, unmet: &[Arc<str>]| {
            let Readiness { ready, waiting } = readiness(view, is_beginning, unmet);
            assert_eq!(ready, waiting.is_empty());
            waiting.first().cloned()
        };
        let says = |waiting: Option<String>, what: &str| {
            assert!(waiting.clone().unwrap().contains(what), "{waiting:?}");
        };
        says(waits(&view(false, true), true, &[]), "the cluster");
        says(waits(&view(true, true), true, &[]), "listeners");
        says(
            waits(&view(true, true), false, &["tor".into()]),
            "router tor",
        );
        assert_eq!(waits(&view(true, true), false, &[]), None);
        // Without routers nothing waits for what they would be sent.
        assert_eq!(waits(&view(true, false), true, &[]), None);
    }
}
