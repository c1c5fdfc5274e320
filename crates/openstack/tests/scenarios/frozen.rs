//! Services whose newest version can't be had: members follow nodes all the same.

use std::time::Duration;

use landfall_model::status::ConditionType;
use landfall_testkit::openstack::Fault;

use crate::adopt::left_by_reference;
use crate::create::web;
use crate::rig::Rig;
use crate::rig::stage::Stage;
use crate::written::{annotate, refusal, short};

/// What holds once a node has come although the newest version is refused.
async fn follows(rig: &mut Rig, context: &str) {
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let members = rig.picture().await.members_at(80);
    assert_eq!(members.len(), 3, "{context}: {members:?}");
    rig.cluster.remove_node("a");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 2, "{context}");
    let status = rig.cluster.service("web").unwrap().status;
    let accepted = status.condition(ConditionType::Accepted).unwrap();
    assert!(!accepted.status, "{context}: {accepted:?}");
    assert_eq!(rig.published("web").len(), 1, "{context}");
}

fn with_class(stage: &Stage) -> String {
    format!(
        "[LoadBalancer]\nsubnet-id={}\nfloating-network-id={}\n[LoadBalancerClass \"gold\"]\n\
         subnet-id={}\n",
        stage.subnet(),
        stage.external_network(),
        stage.subnet()
    )
}

#[tokio::test(start_paused = true)]
async fn members_follow_nodes_although_the_class_is_gone() {
    let stage = Stage::new();
    let conf = with_class(&stage);
    let mut rig = Rig::configured(stage, &conf);
    rig.apply(web().annotated(&short("class"), "gold")).await;
    assert_eq!(refusal(&rig, "web"), "");
    let classes = std::mem::take(&mut rig.settings.classes);
    rig.restart().await;
    let reported = refusal(&rig, "web");
    assert!(
        reported.contains(&short("class")) && reported.contains("gold"),
        "{reported}"
    );
    follows(&mut rig, "class").await;
    rig.settings.classes = classes;
    rig.restart().await;
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn members_follow_nodes_although_a_pattern_is_invalid() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    annotate(&mut rig, &[("floating-subnet", "~[")]).await;
    let reported = refusal(&rig, "web");
    assert!(reported.contains(&short("floating-subnet")), "{reported}");
    follows(&mut rig, "pattern").await;
}

#[tokio::test(start_paused = true)]
async fn members_follow_nodes_after_a_restart_although_the_newest_version_is_invalid() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.edit("web", |row| {
        let key = "landfall.dev/timeout-client-data";
        row.annotations.insert(key.to_owned(), "soon".to_owned());
    })
    .await;
    rig.restart().await;
    let reported = refusal(&rig, "web");
    assert!(reported.contains("timeout-client-data"), "{reported}");
    follows(&mut rig, "restart").await;
}

#[tokio::test(start_paused = true)]
async fn members_follow_nodes_although_the_cluster_s_new_name_is_refused() {
    for kind in ["/listeners/", "/pools/", "/loadbalancers/"] {
        let mut rig = Rig::new("create-monitor=true");
        let (id, _) = left_by_reference(&rig, "k");
        rig.sim.on_call(move |call| {
            let text = String::from_utf8_lossy(&call.body);
            let names = text.contains("kube_service_c1") && !call.path.ends_with("/members");
            let hit = call.is_write() && names && call.path.contains(kind);
            hit.then(|| Fault::status(call.service, 403, "not here"))
        });
        rig.restart().await;
        assert!(refusal(&rig, "web").contains("not here"), "{kind}");
        rig.add_node("c", "10.0.0.6");
        rig.settle().await;
        let picture = rig.picture().await;
        assert_eq!(picture.members_at(80).len(), 3, "{kind}");
        assert!(picture.balancers[0].name.contains("_k_"), "{kind}");
        assert_eq!(picture.balancers[0].id.as_str(), id);
        rig.sim.on_call(|_| None);
        rig.wait(Duration::from_secs(3600)).await;
        rig.settle().await;
        let picture = rig.picture().await;
        assert!(picture.balancers[0].name.contains("_c1_"), "{kind}");
        assert_eq!(refusal(&rig, "web"), "", "{kind}");
    }
}
