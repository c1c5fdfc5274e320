//! Services of which nothing is recorded any more: the marks in the cloud name what serves them.

use landfall_model::marks::managed_annotations;
use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;
use landfall_openstack::objects::Id;
use serde_json::json;

use crate::addresses::{floating_ip_by_hand, lb};
use crate::create::web;
use crate::rig::Rig;
use crate::sharing::{by_hand, shared};
use crate::subnets::NOWHERE;
use crate::written::refusal;

const NAME: &str = "kube_service_c1_default_web";

/// What `kubectl replace` makes of a Service: its annotations are those of the manifest, and its
/// status stays.
fn replace(row: &mut ServiceRow, named: Option<&str>) {
    for key in managed_annotations() {
        row.annotations.remove(key);
    }
    row.status.marks.clear();
    if let Some(id) = named {
        row.annotations
            .insert(lb("load-balancer-id"), id.to_owned());
    }
}

/// Replaces a Service while the controller runs, or while none does.
async fn replaced(rig: &mut Rig, name: &str, named: Option<&str>, restarts: bool) {
    if restarts {
        rig.kill();
    }
    rig.cluster.edit(name, |row| replace(row, named));
    if restarts {
        rig.start();
    }
    rig.settle().await;
}

/// A load balancer by hand with a floating IP, so that it could be shared.
async fn another(rig: &Rig) -> Id {
    let mine = by_hand(rig).await;
    floating_ip_by_hand(rig, mine.vip_port_id.as_ref()).await;
    mine.id
}

/// Asserts that a Service is kept where it is, and that what is named in vain is reported, except
/// what a new process finds, and stays.
fn assert_kept(
    rig: &Rig,
    name: &str,
    (serving, named): (&Id, &Id),
    published: &[String],
    restarts: bool,
) {
    assert_eq!(rig.published(name), published);
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(refusal(rig, name), "");
    let reported = rig.cluster.messages("LoadBalancerIdIgnored");
    assert_eq!(reported.len(), usize::from(!restarts), "{reported:?}");
    let parts = [serving.as_str(), named.as_str()];
    let complete = |it: &String| parts.iter().all(|part| it.contains(part));
    assert!(reported.iter().all(complete), "{reported:?}");
    let annotated = rig.annotation(name, &lb("load-balancer-id"));
    assert_eq!(annotated, Some(named.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_service_stays_on_its_own_although_nothing_is_recorded_and_another_is_named() {
    for (restarts, by_reference) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut rig = Rig::new("");
        let other = another(&rig).await;
        rig.apply(web()).await;
        let own = rig.annotation("web", &lb("load-balancer-id")).unwrap();
        if by_reference {
            // Another controller leaves the name for a tag, and no id.
            rig.sim.relabel(&own, &json!({ "tags": [NAME] }));
            rig.restart().await;
        }
        let published = rig.published("web");
        let before = rig.sim.load_balancer(other.as_str());
        rig.forget();
        replaced(&mut rig, "web", Some(other.as_str()), restarts).await;
        assert_kept(&rig, "web", (&Id::new(&own), &other), &published, restarts);
        // It is on record again.
        rig.restart().await;
        assert_eq!(rig.writes(), Vec::<String>::new());
        rig.add_node("c", "10.0.0.6");
        rig.settle().await;
        assert_eq!(rig.picture().await.members_at(80).len(), 3);
        rig.delete("web").await;
        let picture = rig.picture().await;
        assert_eq!(picture.balancers.len(), 1);
        assert_eq!(picture.floating_ips.len(), 1);
        assert_eq!(rig.sim.load_balancer(other.as_str()), before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_stays_where_it_shares_although_nothing_is_recorded() {
    for (restarts, names_another) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut rig, serving) = shared("").await;
        let other = another(&rig).await;
        let published = rig.published("second");
        let before = rig.sim.load_balancer(other.as_str());
        rig.forget();
        let named = names_another.then_some(other.as_str());
        replaced(&mut rig, "second", named, restarts).await;
        if names_another {
            assert_kept(&rig, "second", (&serving, &other), &published, restarts);
        } else {
            assert_eq!(rig.writes(), Vec::<String>::new(), "{restarts}");
            assert_eq!(rig.published("second"), published);
            let named = rig.annotation("second", &lb("load-balancer-id"));
            assert_eq!(named, Some(serving.to_string()));
        }
        rig.restart().await;
        assert_eq!(rig.writes(), Vec::<String>::new());
        rig.delete("second").await;
        let picture = rig.picture().await;
        assert_eq!(picture.listeners.len(), 2, "{:?}", picture.listeners);
        assert_eq!(rig.sim.load_balancer(other.as_str()), before);
        rig.delete("web").await;
        assert_eq!(rig.picture().await.balancers.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_service_had_goes_with_it_although_nothing_is_recorded_and_another_is_named() {
    let mut rig = Rig::new("");
    let other = another(&rig).await;
    rig.apply(web()).await;
    let before = rig.sim.load_balancer(other.as_str());
    rig.kill();
    rig.cluster
        .edit("web", |row| replace(row, Some(other.as_str())));
    rig.cluster.delete("web");
    rig.restart().await;
    assert!(rig.cluster.service("web").is_none());
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.sim.load_balancer(other.as_str()), before);
}

#[tokio::test(start_paused = true)]
async fn a_tag_that_an_earlier_service_of_the_name_left_keeps_no_other_from_what_it_names() {
    let mut rig = Rig::new("");
    let other = another(&rig).await;
    rig.apply(web()).await;
    let own = rig.picture().await.balancers;
    let own = own.iter().find(|it| it.name == NAME).unwrap().id.clone();
    // Its finalizer was taken off by hand.
    rig.kill();
    rig.cluster.edit("web", |row| row.finalized = false);
    rig.cluster.delete("web");
    for tags in [
        vec![NAME, "kube_cluster_id_ks-1", "landfall_service_uid-web"],
        vec![NAME],
    ] {
        rig.sim.relabel(own.as_str(), &json!({ "tags": tags }));
        let again = web().annotated(&lb("load-balancer-id"), other.as_str());
        let uid = format!("uid-{}", tags.len());
        rig.apply(again.with(|row| row.uid = landfall_model::Uid::new(&uid)))
            .await;
        let picture = rig.picture().await;
        let used = picture.balancers.iter().find(|it| it.id == other).unwrap();
        assert!(used.tags.contains(&NAME.to_owned()), "{:?}", used.tags);
        assert_eq!(refusal(&rig, "web"), "");
        rig.delete("web").await;
        assert!(rig.cluster.service("web").is_none());
        assert_eq!(rig.picture().await.balancers.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_last_serves_although_nothing_is_published_any_more() {
    let (mut rig, serving) = shared("").await;
    let other = another(&rig).await;
    let before = rig.sim.load_balancer(other.as_str());
    let published = rig.published("second");
    rig.forget();
    rig.edit("second", |row| {
        replace(row, Some(other.as_str()));
        row.status = ServiceStatus::default();
    })
    .await;
    assert_kept(&rig, "second", (&serving, &other), &published, false);
    assert_eq!(rig.sim.load_balancer(other.as_str()), before);
}

#[tokio::test(start_paused = true)]
async fn an_id_of_one_that_is_gone_gives_way_to_that_of_the_service_s_own() {
    for restarts in [false, true] {
        let mut rig = Rig::new("");
        rig.apply(web()).await;
        let own = rig.annotation("web", &lb("load-balancer-id"));
        let published = rig.published("web");
        rig.forget();
        replaced(&mut rig, "web", Some(NOWHERE), restarts).await;
        assert_eq!(rig.annotation("web", &lb("load-balancer-id")), own);
        assert_eq!(rig.published("web"), published);
        assert_eq!(rig.writes(), Vec::<String>::new());
        let reported = rig.cluster.messages("LoadBalancerIdIgnored");
        assert_eq!(reported, Vec::<String>::new());
    }
}
