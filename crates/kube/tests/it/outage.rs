//! Losing the API server loses nothing.

use std::time::Duration;

use landfall_kube::SourceConfig;
use landfall_testkit::cluster::{Cluster, Options};

use crate::support::{Relay, Watching, connect, connect_by, install, service};

#[tokio::test(flavor = "multi_thread")]
async fn during_an_outage_nothing_is_sent_and_after_it_nothing_is_sent_twice() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    install(&cluster).await;
    let namespace = &cluster.namespace("outage").await.unwrap();
    let many: String = (0..20)
        .map(|number| service(namespace, &format!("web-{number}"), ""))
        .collect();
    cluster.kubectl().apply(&many).await.unwrap();
    let mut watching = Watching::start(
        &connect(&cluster, "landfall/outage").await,
        SourceConfig::default(),
    );
    watching.until("synced").await;
    watching.connected(true).await;

    cluster.stop_api_server();
    watching.connected(false).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(watching.so_far(), Vec::<String>::new());

    cluster.start_api_server().await.unwrap();
    watching.connected(true).await;
    cluster
        .kubectl()
        .apply(&service(namespace, "new", ""))
        .await
        .unwrap();
    let reported = watching
        .until_in(namespace, &format!("+Service {namespace}/new"))
        .await;
    assert_eq!(reported, [format!("+Service {namespace}/new")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_unseen_is_sent_when_history_is_lost() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    install(&cluster).await;
    let kubectl = cluster.kubectl();
    let namespace = &cluster.namespace("expired").await.unwrap();
    let three: String = ["same", "other", "goes"]
        .map(|name| service(namespace, name, ""))
        .concat();
    kubectl.apply(&three).await.unwrap();
    let relay = Relay::to(&cluster).await;
    for streaming in [true, false] {
        kubectl.apply(&three).await.unwrap();
        let config = SourceConfig {
            streaming,
            ..SourceConfig::default()
        };
        let mut watching = Watching::start(
            &connect_by(relay.kubeconfig(), "landfall/expired").await,
            config,
        );
        watching.until("synced").await;

        relay.cut();
        watching.connected(false).await;
        kubectl
            .run(&["-n", namespace, "delete", "service", "goes"])
            .await
            .unwrap();
        let label = format!("round={streaming}");
        kubectl
            .run(&[
                "-n",
                namespace,
                "label",
                "--overwrite",
                "service",
                "other",
                &label,
            ])
            .await
            .unwrap();
        // Neither the store nor a new API server remembers from where the watches would go on.
        cluster.compact().await.unwrap();
        cluster.stop_api_server();
        cluster.start_api_server().await.unwrap();
        let audit = cluster.audit();
        relay.repair();
        let reported = watching
            .until_in(namespace, &format!("-Service {namespace}/goes"))
            .await;
        assert_eq!(
            reported,
            [
                format!("+Service {namespace}/other"),
                format!("-Service {namespace}/goes")
            ]
        );
        watching.connected(true).await;
        // Of the watches only one that could not go on has an end by now.
        let entries = audit.entries().unwrap();
        let expired = entries
            .iter()
            .any(|entry| entry.resource == "services" && entry.uri.contains("&resourceVersion="));
        assert!(expired, "the server still knew: the test proves nothing");
    }
}
