//! What a controller wrote, and what clients saw meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use landfall_testkit::openstack::Service;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::rig::Rig;

/// The prefix of most annotations.
pub const LB: &str = "loadbalancer.openstack.org/";

/// An annotation's key.
pub fn short(key: &str) -> String {
    format!("{LB}{key}")
}

/// Annotates the Service `web`.
pub async fn annotate(rig: &mut Rig, values: &[(&str, &str)]) {
    rig.edit("web", |row| {
        for (key, value) in values {
            row.annotations.insert(short(key), (*value).to_owned());
        }
    })
    .await;
}

/// Takes an annotation from the Service `web`.
pub async fn remove(rig: &mut Rig, key: &str) {
    rig.edit("web", |row| {
        row.annotations.remove(&short(key));
    })
    .await;
}

/// The bodies of writes whose path names a kind, without their envelopes.
pub fn bodies(rig: &Rig, method: &str, kind: &str) -> Vec<Value> {
    let writes = rig.sent();
    let calls = writes.iter().filter(|it| {
        let path = it.line.strip_prefix(&format!("{method} "));
        path.is_some_and(|path| path.split(['/', '?']).any(|part| part == kind))
    });
    calls
        .map(|call| {
            let body: Value = serde_json::from_slice(&call.body).unwrap();
            let mut fields = body.as_object().unwrap().values();
            fields.next().unwrap().clone()
        })
        .collect()
}

/// What keeps the spec from being carried out, as the status states it; empty: nothing.
pub fn refusal(rig: &Rig, name: &str) -> String {
    let status = rig.cluster.service(name).unwrap().status;
    let unmet = status.conditions.iter().filter(|it| !it.status);
    unmet
        .map(|it| it.message.as_str())
        .collect::<Vec<_>>()
        .join("; ")
}

/// Reads a port's listener and its pool again and again.
pub struct Watch {
    seen: Arc<Mutex<Vec<usize>>>,
    looking: JoinHandle<()>,
    period: Duration,
}

/// From one look to the next; much shorter than anything that Octavia does.
const PERIOD: Duration = Duration::from_millis(20);

// === impl Watch ===

impl Watch {
    /// Over the port of the only load balancer: how many members its listener has.
    pub fn over(rig: &Rig, port: u16) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let reported = seen.clone();
        #[cfg(feature = "stack")]
        if let crate::rig::stage::Stage::Real(real) = &rig.sim {
            let period = Duration::from_millis(300);
            let looking = real.watch(port, reported, period);
            return Self {
                seen,
                looking,
                period,
            };
        }
        let sim = rig.sim.clone();
        let get = move |path: String| {
            sim.hand(Service::LoadBalancer, &Method::GET, &path, Value::Null)
                .unwrap()
        };
        let looking = tokio::spawn(async move {
            loop {
                let listeners = get("/v2/lbaas/listeners".to_owned());
                let listeners = listeners["listeners"].as_array().unwrap();
                let listener = listeners.iter().find(|it| it["protocol_port"] == port);
                let pool = listener.and_then(|it| it["default_pool_id"].as_str());
                let members = pool.map_or(0, |pool| {
                    let members = get(format!("/v2/lbaas/pools/{pool}/members"));
                    members["members"].as_array().unwrap().len()
                });
                reported.lock().unwrap().push(members);
                tokio::time::sleep(PERIOD).await;
            }
        });
        Self {
            seen,
            looking,
            period: PERIOD,
        }
    }

    /// For how long no member served the port.
    pub fn unserved(&self) -> Duration {
        let seen = self.seen.lock().unwrap();
        assert!(seen.len() > 5, "the watch did not run");
        let missing = seen.iter().filter(|members| **members == 0).count();
        self.period * u32::try_from(missing).unwrap()
    }

    /// How many members the port had at least.
    pub fn fewest(&self) -> usize {
        *self.seen.lock().unwrap().iter().min().unwrap()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.looking.abort();
    }
}
