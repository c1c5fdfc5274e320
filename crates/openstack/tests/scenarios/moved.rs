//! Floating IPs that a person or another cluster moves between a read of Landfall and its write.

use std::time::Duration;

use http::Method;
use serde_json::{Map, Value, json};

use crate::addresses::{internal, lb, port_of};
use crate::adopt::{left_by_reference, reference_makes};
use crate::create::web;
use crate::rig::Rig;
use crate::written::refusal;
use landfall_openstack::objects::{FloatingIp, Id};

/// Leads a floating IP to the port of a node, as another client does.
async fn move_to_node(rig: &Rig, floating_ip: &Id) -> Id {
    let port = port_of(rig, "a").await;
    rig.sim.edit(floating_ip.as_str(), moved_to(&port));
    port
}

fn moved_to(port: &Id) -> impl FnOnce(&mut Map<String, Value>) + use<> {
    let port = json!(port);
    |row| {
        row.insert("port_id".to_owned(), port);
        row.insert("revision_number".to_owned(), json!(1_000));
    }
}

async fn only(rig: &Rig) -> FloatingIp {
    rig.picture().await.floating_ips.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_was_moved_away_is_not_deleted_with_the_service() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let floating_ip = only(&rig).await;
    let port = move_to_node(&rig, &floating_ip.id).await;
    rig.delete("web").await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers, []);
    assert!(rig.cluster.service("web").is_none());
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(picture.floating_ips[0].port_id, Some(port));
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_was_moved_away_stays_there_when_the_service_becomes_internal() {
    for keep in ["true", "false"] {
        let mut rig = Rig::new("");
        let kept = |service: landfall_testkit::build::ServiceBuilder| {
            service.annotated(&lb("keep-floatingip"), keep)
        };
        rig.apply(kept(web())).await;
        let floating_ip = only(&rig).await;
        let port = move_to_node(&rig, &floating_ip.id).await;
        rig.apply(kept(internal("true"))).await;
        assert_eq!(only(&rig).await.port_id, Some(port), "{keep}");
        assert_eq!(refusal(&rig, "web"), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_another_client_attaches_meanwhile_is_not_taken_from_it() {
    let mut rig = Rig::new("");
    let body = json!({"floating_network_id": rig.sim.external_network()});
    let free = rig.looker().create_floating_ip(&body).await.unwrap();
    rig.add_node("c", "10.0.0.6");
    let port = port_of(&rig, "c").await;
    let (sim, to, id) = (rig.sim.clone(), port.clone(), free.id.clone());
    let path = format!("/v2.0/floatingips/{id}");
    rig.sim.on_call(move |call| {
        if call.method == Method::PUT && call.path == path {
            sim.edit(id.as_str(), moved_to(&to));
        }
        None
    });
    rig.apply(web().load_balancer_ip(&free.floating_ip_address.to_string()))
        .await;
    assert_eq!(only(&rig).await.port_id, Some(port));
    let reported = refusal(&rig, "web");
    assert!(reported.contains("in use"), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_whose_status_changed_since_it_was_read_goes_with_its_service() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let floating_ip = only(&rig).await;
    rig.sim.edit(floating_ip.id.as_str(), |row| {
        row.insert("revision_number".to_owned(), json!(1_000));
    });
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_of_another_cluster_that_a_person_attached_outlives_the_service() {
    let mut rig = Rig::new("");
    rig.apply(internal("true")).await;
    let port = rig.picture().await.balancers[0].vip_port_id.clone();
    rig.kill();
    let body = json!({
        "floating_network_id": rig.sim.external_network(),
        "description": "Floating IP for Kubernetes external service default/api from cluster c2",
        "port_id": port,
    });
    let lent = rig.looker().create_floating_ip(&body).await.unwrap();
    rig.apply(web()).await;
    assert_eq!(rig.published("web"), [lent.floating_ip_address.to_string()]);
    rig.delete("web").await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers, []);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(picture.floating_ips[0].port_id, None);
}

#[tokio::test(start_paused = true)]
async fn what_another_cluster_serves_behind_the_address_is_not_deleted_with_the_service() {
    for (adopted, cluster) in [
        (false, "green"),
        (true, "green"),
        (false, "c1"),
        (true, "c1"),
    ] {
        let name = format!("kube_service_{cluster}_default_web");
        let mut rig = Rig::new("");
        if adopted {
            left_by_reference(&rig, "c1");
            rig.restart().await;
        } else {
            rig.apply(web()).await;
        }
        let ours = rig.picture().await.balancers[0].id.to_string();
        // Its address goes to the same Service of another cluster, which has no marks, and what
        // served it here is deleted. Without nodes it can't be made again.
        let green = reference_makes(&rig.sim, cluster, &name);
        let port = Id::new(green["vip_port_id"].as_str().unwrap());
        rig.sim.edit(only(&rig).await.id.as_str(), moved_to(&port));
        rig.cluster.remove_node("a");
        rig.cluster.remove_node("b");
        rig.sim.delete(&ours);
        rig.wait(Duration::from_secs(900)).await;
        rig.delete("web").await;
        assert!(rig.cluster.service("web").is_none(), "{adopted} {cluster}");
        let picture = rig.picture().await;
        assert_eq!(picture.balancers.len(), 1, "{adopted} {cluster}");
        assert_eq!(picture.balancers[0].name, name);
        assert_eq!(picture.floating_ips.len(), 1, "{adopted} {cluster}");
        assert_eq!(picture.floating_ips[0].port_id, Some(port));
    }
}

#[tokio::test(start_paused = true)]
async fn what_serves_a_cluster_of_the_same_name_at_the_address_is_not_taken_for_a_lost_one() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let ours = rig.picture().await.balancers[0].id.to_string();
    let theirs = reference_makes(&rig.sim, "c1", "kube_service_c1_default_web");
    let theirs = Id::new(theirs["id"].as_str().unwrap());
    rig.sim.settle_in(Duration::from_secs(1));
    rig.wait(Duration::from_secs(30)).await;
    let balancers = rig.picture().await.balancers;
    let there = balancers.iter().find(|it| it.id == theirs).unwrap();
    let port = there.vip_port_id.clone().unwrap();
    rig.sim.edit(only(&rig).await.id.as_str(), moved_to(&port));
    rig.sim.mark_foreign(theirs.as_str());
    let before = rig.sim.snapshot_foreign();
    rig.sim.delete(&ours);
    rig.wait(Duration::from_secs(900)).await;
    rig.settle().await;
    assert_eq!(rig.sim.snapshot_foreign(), before);
    let picture = rig.picture().await;
    let own = picture.balancers.iter().filter(|it| it.id != theirs);
    assert_eq!(own.count(), 1, "{:?}", rig.writes());
}
