//! Marks of ours on what another controller made, and clusters of one name.

use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};

use crate::adopt::left_by_reference;
use crate::create::web;
use crate::rig::{Picture, Rig};

const MARKS: [&str; 2] = ["kube_cluster_id_ks-1", "landfall_service_uid-web"];

#[tokio::test(start_paused = true)]
async fn what_was_taken_over_gets_our_marks_with_the_next_change_and_no_sooner() {
    let mut rig = Rig::new("create-monitor=true");
    let (id, _) = left_by_reference(&rig, "c1");
    rig.restart().await;
    rig.wait(std::time::Duration::from_secs(400)).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    let tags = &picture.balancers[0].tags;
    assert!(
        MARKS.iter().all(|mark| tags.iter().any(|it| it == mark)),
        "{tags:?}"
    );
    assert_eq!(picture.members_at(80).len(), 3);
    let of_balancer = format!("PUT /v2/lbaas/loadbalancers/{id}");
    let written = rig.writes();
    assert_eq!(
        written.iter().filter(|it| **it == of_balancer).count(),
        1,
        "{written:?}"
    );
    // Once is enough.
    rig.forget();
    rig.add_node("d", "10.0.0.7");
    rig.settle().await;
    assert_eq!(rig.writes().len(), 1, "{:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn of_two_clusters_of_one_name_the_one_that_marked_it_first_keeps_what_was_taken_over() {
    let mut ours = Rig::new("create-monitor=true");
    let (id, _) = left_by_reference(&ours, "c1");
    ours.restart().await;
    ours.add_node("c", "10.0.0.6");
    ours.settle().await;
    let before = ours.picture().await.members_at(80);
    let mut theirs = Rig::on(ours.sim.again(), "create-monitor=true");
    theirs.settings.cluster_id = Some("ks-2".to_owned());
    let named = web().annotated(&crate::addresses::lb("load-balancer-id"), &id);
    let named = named.with(|row| row.uid = landfall_model::Uid::new("another"));
    theirs.cluster.apply(&named.row());
    theirs.restart().await;
    theirs.wait(std::time::Duration::from_secs(400)).await;
    ours.wait(std::time::Duration::from_secs(400)).await;
    assert_eq!(ours.picture().await.members_at(80), before);
    assert!(!crate::written::refusal(&theirs, "web").is_empty());
}

/// What becomes of what the reference made when its Service is deleted after the change of the
/// cluster's name, where these annotations are lost.
async fn left_after_deletion(lost: &[&str]) -> Picture {
    let mut rig = Rig::new("create-monitor=true");
    left_by_reference(&rig, "k");
    rig.cluster.edit("web", |row| {
        for key in lost {
            row.annotations.remove(*key);
        }
    });
    rig.cluster.delete("web");
    rig.restart().await;
    rig.settle().await;
    assert!(rig.cluster.service("web").is_none());
    rig.picture().await
}

#[tokio::test(start_paused = true)]
async fn what_the_reference_made_goes_with_a_service_that_is_deleted_after_the_change_of_name() {
    let picture = left_after_deletion(&[LOAD_BALANCER_ID]).await;
    assert!(picture.balancers.is_empty(), "{picture:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_reference_made_goes_where_only_the_status_has_its_address() {
    let picture = left_after_deletion(&[LOAD_BALANCER_ID, LOAD_BALANCER_ADDRESS]).await;
    assert!(picture.balancers.is_empty(), "{picture:?}");
}
