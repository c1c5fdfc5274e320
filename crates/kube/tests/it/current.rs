//! A replica that comes to lead knows what the leader before has written, however far behind its
//! watches are.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_engine::leadership::Role;
use landfall_kube::SourceConfig;
use landfall_testkit::cluster::{Cluster, Options};
use tokio::sync::watch;

use crate::support::{DEADLINE, Relay, USER, Watching, connect_by, install, service};

/// The lists that were asked for under a name, by what was listed.
fn lists(
    entries: &[landfall_testkit::cluster::AuditEntry],
    agent: &str,
) -> BTreeMap<String, usize> {
    let mut lists = BTreeMap::new();
    for entry in entries {
        let lists_all = entry.verb == "list" || entry.uri.contains("sendInitialEvents=true");
        if entry.user == USER && entry.user_agent == agent && lists_all {
            *lists.entry(entry.resource.clone()).or_default() += 1;
        }
    }
    lists
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_first_receives_what_its_stalled_watches_missed() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    install(&cluster).await;
    let namespace = &cluster.namespace("lagging").await.unwrap();
    let kubectl = cluster.kubectl();
    for (round, streaming) in [true, false].into_iter().enumerate() {
        let relay = Relay::to(&cluster).await;
        let agent = format!("landfall/current-{round}");
        let config = SourceConfig {
            streaming,
            ..SourceConfig::default()
        };
        let connection = connect_by(relay.kubeconfig(), &agent).await;
        let (role, followed) = watch::channel(Role::Standby);
        let mut watching = Watching::start_as(&connection, config, Some(followed));
        watching.until("synced").await;
        let name = |name: &str| format!("{name}-{round}");
        let make = |name: String| service(namespace, &name, "");
        for number in 0..3 {
            kubectl
                .apply(&make(name(&format!("seen-{number}"))))
                .await
                .unwrap();
        }
        watching
            .until(&format!("+Service {namespace}/{}", name("seen-2")))
            .await;
        relay.stall();
        kubectl.apply(&make(name("unseen"))).await.unwrap();
        kubectl
            .run(&["-n", namespace, "delete", "service", &name("seen-0")])
            .await
            .unwrap();
        let audit = cluster.audit();
        role.send_replace(Role::Leading { term: 1 });
        let reported = watching.until_in(namespace, "current in term 1").await;
        assert_eq!(
            reported,
            [
                format!("+Service {namespace}/{}", name("unseen")),
                format!("-Service {namespace}/{}", name("seen-0")),
            ]
        );

        // Nothing is listed within a term, and once per kind for the next one.
        role.send_replace(Role::Carrying);
        role.send_replace(Role::Leading { term: 1 });
        kubectl.apply(&make(name("later"))).await.unwrap();
        watching
            .until(&format!("+Service {namespace}/{}", name("later")))
            .await;
        role.send_replace(Role::Leading { term: 2 });
        watching.until("current in term 2").await;
        // A streamed list is in the log from when its watch ends: as the next one begins.
        let listed = async {
            loop {
                let lists = lists(&audit.entries().unwrap(), &agent);
                if lists.len() == 5 {
                    return lists;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let lists = tokio::time::timeout(DEADLINE, listed).await.unwrap();
        // One that was asked for on a stalled connection was asked for once more.
        assert!(lists.values().all(|count| *count <= 3), "{lists:?}");
    }
}
