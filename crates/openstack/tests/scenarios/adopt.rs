//! Adopting what is there, and leaving alone what has another owner (rows A).

use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use landfall_model::status::{IngressAddress, IpMode};
use landfall_openstack::objects::{Listener, Monitor};
use landfall_testkit::openstack::{Fault, Service};
use landfall_testkit::svc;
use serde_json::{Value, json};

use crate::create::web;
use crate::rig::Rig;
use crate::rig::stage::{Stage, in_part};

const NAME: &str = "kube_service_c1_default_web";

/// Makes an object by hand.
fn make(sim: &Stage, service: Service, path: &str, kind: &str, body: Value) -> Value {
    let made = sim.hand(service, &Method::POST, path, json!({ kind: body }));
    made.unwrap()[kind].clone()
}

/// A load balancer of default/web as cloud-provider-openstack makes it, with nodes a and b, under a
/// name.
pub fn reference_makes(sim: &Stage, cluster: &str, name: &str) -> Value {
    let member = |name: &str, address: &str| {
        json!({"name": name, "address": address,
        "protocol_port": 30080, "subnet_id": sim.subnet()})
    };
    let monitor = json!({"name": format!("monitor_0_{name}"), "type": "TCP", "delay": 5,
        "timeout": 3,
        "max_retries": 1, "max_retries_down": 3});
    let pool = json!({"name": format!("pool_0_{name}"), "protocol": "TCP",
        "lb_algorithm": sim.algorithm(),
        "members": [member("a", "10.0.0.4"), member("b", "10.0.0.5")], "healthmonitor": monitor});
    let mut listener = json!({"name": format!("listener_0_{name}"), "protocol": "TCP",
        "protocol_port": 80,
        "connection_limit": -1, "tags": [name], "default_pool": pool});
    if !sim.is_ovn() {
        listener["allowed_cidrs"] = json!(["0.0.0.0/0"]);
        listener["timeout_client_data"] = json!(50000);
        listener["timeout_member_connect"] = json!(5000);
        listener["timeout_member_data"] = json!(50000);
        listener["timeout_tcp_inspect"] = json!(0);
    }
    let body = json!({"name": name, "provider": "amphora", "vip_subnet_id": sim.subnet(),
        "tags": [name],
        "description": format!("Kubernetes external service default/web from cluster {cluster}"),
        "listeners": [listener]});
    make(
        sim,
        Service::LoadBalancer,
        "/v2/lbaas/loadbalancers",
        "loadbalancer",
        body,
    )
}

/// Its floating IP.
fn reference_exposes(sim: &Stage, cluster: &str, balancer: &Value) -> IpAddr {
    let body = json!({"floating_network_id": sim.external_network(),
        "port_id": balancer["vip_port_id"],
        "description": format!("Floating IP for Kubernetes external service default/web from \
                               cluster {cluster}")});
    let made = make(
        sim,
        Service::Network,
        "/v2.0/floatingips",
        "floatingip",
        body,
    );
    made["floating_ip_address"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// Conf with which the reference has made it.
const MONITORED: &str = "create-monitor=true";

/// Everything that cloud-provider-openstack leaves: in the cloud and on the Service.
pub fn left_by_reference(rig: &Rig, cluster: &str) -> (String, IpAddr) {
    let name = format!("kube_service_{cluster}_default_web");
    let balancer = reference_makes(&rig.sim, cluster, &name);
    let address = reference_exposes(&rig.sim, cluster, &balancer);
    let id = balancer["id"].as_str().unwrap().to_owned();
    let service = web()
        .annotated(LOAD_BALANCER_ID, &id)
        .annotated(LOAD_BALANCER_ADDRESS, &address.to_string())
        .with(|row| {
            row.finalized = true;
            row.status.ingress.push(IngressAddress {
                ip: Some(address),
                ip_mode: Some(IpMode::Vip),
                ..IngressAddress::default()
            });
        });
    rig.cluster.apply(&service.row());
    (id, address)
}

#[tokio::test(start_paused = true)]
async fn a01_what_the_reference_made_is_taken_over_without_a_write() {
    let mut rig = Rig::new(MONITORED);
    let (id, address) = left_by_reference(&rig, "c1");
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.published("web"), [address.to_string()]);
    assert_eq!(rig.annotation("web", LOAD_BALANCER_ID), Some(id));
    assert_eq!(
        rig.annotation("web", LOAD_BALANCER_ADDRESS),
        Some(address.to_string())
    );
    assert_eq!(rig.cluster.events(), Vec::<String>::new());
    // From here on it is as good as one of our own.
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn a01_an_adopted_load_balancer_that_is_lost_is_recreated() {
    let mut rig = Rig::new(MONITORED);
    let (id, address) = left_by_reference(&rig, "c1");
    rig.restart().await;
    rig.sim.delete(&id);
    rig.wait(Duration::from_secs(190)).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
    assert_eq!(rig.published("web"), [address.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn a01_an_adopted_internal_one_that_is_lost_is_recreated() {
    let mut rig = Rig::new(&format!("{MONITORED}\ninternal-lb=true"));
    let balancer = reference_makes(&rig.sim, "c1", NAME);
    let id = balancer["id"].as_str().unwrap();
    rig.apply(web().annotated(LOAD_BALANCER_ID, id)).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.sim.delete(id);
    rig.wait(Duration::from_secs(190)).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a02_one_of_the_right_name_is_adopted() {
    let mut rig = Rig::new(MONITORED);
    let balancer = reference_makes(&rig.sim, "c1", NAME);
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(rig.writes(), ["POST /v2.0/floatingips"]);
    assert_eq!(
        rig.annotation("web", LOAD_BALANCER_ID).as_deref(),
        balancer["id"].as_str()
    );
}

#[tokio::test(start_paused = true)]
async fn a03_one_of_the_oldest_kind_of_name_is_adopted_and_can_be_deleted() {
    let mut rig = Rig::new(MONITORED);
    let balancer = reference_makes(&rig.sim, "c1", NAME);
    let id = balancer["id"].as_str().unwrap();
    rig.sim.relabel(id, &json!({"name": "auidweb", "tags": []}));
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.balancers[0].id.as_str(), id);
    assert_eq!(picture.balancers[0].name, "auidweb");
    assert!(picture.balancers[0].tags.contains(&NAME.to_owned()));
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a04_of_two_of_one_name_none_is_touched() {
    let mut rig = Rig::new(MONITORED);
    let ids: Vec<String> = (0..2)
        .map(|_| reference_makes(&rig.sim, "c1", NAME))
        .map(|balancer| balancer["id"].as_str().unwrap().to_owned())
        .collect();
    rig.apply(web()).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let reported = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        ids.iter().all(|id| reported[0].contains(id)),
        "{reported:?}"
    );
    // One is named: that is it.
    rig.edit("web", |row| {
        row.annotations
            .insert(LOAD_BALANCER_ID.to_owned(), ids[1].clone());
    })
    .await;
    assert_eq!(rig.writes(), ["POST /v2.0/floatingips"]);
    assert_eq!(rig.picture().await.balancers.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a05_one_that_is_being_deleted_counts_as_gone() {
    let mut rig = Rig::new(MONITORED);
    let going = reference_makes(&rig.sim, "c1", NAME);
    let going = going["id"].as_str().unwrap();
    rig.sim.set_status(going, "PENDING_DELETE");
    rig.apply(web()).await;
    let id = rig.annotation("web", LOAD_BALANCER_ID).unwrap();
    assert_ne!(id, going);
    assert_eq!(rig.picture().await.balancers.len(), 2);
    assert_eq!(rig.published("web").len(), 1);
}

/// What another cluster has marked, under our name, is left alone by a controller that knows the
/// id of its own cluster, or does not.
async fn is_left_alone(cluster_id: Option<&str>) {
    let mut rig = Rig::new(MONITORED);
    rig.settings.cluster_id = cluster_id.map(str::to_owned);
    let other = reference_makes(&rig.sim, "c1", NAME);
    let other = other["id"].as_str().unwrap();
    rig.sim
        .relabel(other, &json!({"tags": [NAME, "kube_cluster_id_ks-2"]}));
    rig.sim.mark_foreign(other);
    let before = rig.sim.snapshot_foreign();
    rig.apply(web()).await;
    let id = rig.annotation("web", LOAD_BALANCER_ID).unwrap();
    assert_ne!(id, other);
    assert_eq!(rig.picture().await.balancers.len(), 2);
    rig.delete("web").await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.sim.snapshot_foreign(), before);
}

#[tokio::test(start_paused = true)]
async fn a07_one_that_another_cluster_has_marked_is_left_alone() {
    is_left_alone(Some("ks-1")).await;
}

#[tokio::test(start_paused = true)]
async fn a07_it_is_left_alone_without_the_right_to_read_the_id_of_the_cluster() {
    is_left_alone(None).await;
    // What is our own is found again by the Service's UID.
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    rig.settings.cluster_id = None;
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a08_an_empty_tag_does_no_harm() {
    let mut rig = Rig::new(MONITORED);
    let (id, _) = left_by_reference(&rig, "c1");
    rig.sim.relabel(&id, &json!({"tags": [""]}));
    rig.restart().await;
    let picture = rig.picture().await;
    assert!(picture.balancers[0].tags.contains(&NAME.to_owned()));
    assert_eq!(rig.writes(), [format!("PUT /v2/lbaas/loadbalancers/{id}")]);
    assert_eq!(rig.published("web").len(), 1);
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

/// The names of everything in the load balancer.
async fn names(rig: &Rig) -> [String; 4] {
    let picture = rig.picture().await;
    let listener: &Listener = picture.listener_at(80);
    let monitor: &Monitor = &picture.monitors[0];
    [
        picture.balancers[0].name.clone(),
        listener.name.clone(),
        picture.pool_at(80).name.clone(),
        monitor.name.clone(),
    ]
}

fn named(name: &str) -> [String; 4] {
    [
        name.to_owned(),
        format!("listener_0_{name}"),
        format!("pool_0_{name}"),
        format!("monitor_0_{name}"),
    ]
}

/// The kinds of objects that were written, in order.
fn written_kinds(rig: &Rig) -> Vec<String> {
    rig.writes()
        .iter()
        .map(|line| line.split('/').nth(3).unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a09_everything_follows_the_cluster_to_its_new_name() {
    let mut rig = Rig::new(MONITORED);
    let (id, address) = left_by_reference(&rig, "k");
    rig.restart().await;
    assert_eq!(names(&rig).await, named(NAME));
    assert_eq!(
        written_kinds(&rig),
        ["healthmonitors", "pools", "listeners", "loadbalancers"]
    );
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.balancers[0].id.as_str(), id);
    assert!(picture.balancers[0].tags.contains(&NAME.to_owned()));
    assert!(
        !picture.balancers[0]
            .tags
            .contains(&"kube_service_k_default_web".to_owned())
    );
    assert_eq!(picture.listener_at(80).tags, [NAME]);
    assert_eq!(picture.members_at(80).len(), 2);
    assert_eq!(rig.published("web"), [address.to_string()]);
    let reported = rig.cluster.messages("LoadBalancerRename");
    assert_eq!(reported.len(), 1, "{:?}", rig.cluster.events());
    assert!(
        reported[0].contains(&id)
            && reported[0].contains("kube_service_k_default_web")
            && reported[0].contains(NAME),
        "{reported:?}"
    );
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a09_one_of_our_own_is_found_and_renamed_without_an_id_on_the_service() {
    let mut rig = Rig::new(MONITORED);
    rig.settings.cluster = "k".to_owned();
    rig.apply(web()).await;
    rig.kill();
    rig.settings.cluster = "c1".to_owned();
    rig.cluster.edit("web", |row| {
        row.annotations.remove(LOAD_BALANCER_ID);
        row.status.marks.clear();
    });
    rig.restart().await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(names(&rig).await, named(NAME));
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a09_one_of_the_reference_s_is_found_by_the_address_that_the_service_publishes() {
    let mut rig = Rig::new(MONITORED);
    let (id, address) = left_by_reference(&rig, "k");
    rig.cluster.edit("web", |row| {
        row.annotations.remove(LOAD_BALANCER_ID);
    });
    rig.restart().await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1, "{:?}", rig.writes());
    assert_eq!(rig.annotation("web", LOAD_BALANCER_ID), Some(id));
    assert_eq!(rig.published("web"), [address.to_string()]);
    assert_eq!(names(&rig).await, named(NAME));
}

#[tokio::test(start_paused = true)]
async fn a09_a_service_that_is_deleted_after_the_change_of_name_leaves_nothing() {
    let mut rig = Rig::new(MONITORED);
    rig.settings.cluster = "k".to_owned();
    rig.apply(web()).await;
    rig.kill();
    rig.settings.cluster = "c1".to_owned();
    rig.cluster.delete("web");
    rig.restart().await;
    assert!(rig.cluster.service("web").is_none());
    let picture = rig.picture().await;
    assert!(picture.is_empty(), "{picture:?}");
}

#[tokio::test(start_paused = true)]
async fn a10_a_change_of_name_that_fails_halfway_is_finished() {
    let mut rig = Rig::new(MONITORED);
    let (_, address) = left_by_reference(&rig, "k");
    let mut left = 3;
    rig.sim.on_call(move |call| {
        let hit = call.method == Method::PUT && call.path.contains("/listeners/") && left > 0;
        left -= i32::from(hit);
        hit.then(|| Fault::status(call.service, 500, "The server is unwell."))
    });
    rig.restart().await;
    assert_eq!(names(&rig).await, named(NAME));
    let written = written_kinds(&rig);
    assert_eq!(written.last().unwrap(), "loadbalancers");
    assert_eq!(
        written.iter().filter(|it| *it == "loadbalancers").count(),
        1
    );
    assert_eq!(rig.published("web"), [address.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn a11_no_name_of_a_cluster_spoils_the_prefix() {
    for old in ["kube", "service", "listener", "0"] {
        let mut rig = Rig::new(MONITORED);
        left_by_reference(&rig, old);
        rig.restart().await;
        assert_eq!(names(&rig).await, named(NAME), "{old}");
        assert_eq!(rig.picture().await.listener_at(80).tags, [NAME], "{old}");
    }
}

/// What shows that a Service is in use: each suffices alone.
#[derive(Clone, Copy, Debug)]
enum Sign {
    Address,
    /// A name in the status, and the id on the Service.
    Name,
    /// The address on the Service, and a status that was lost.
    Annotation,
    /// A name that is asked for.
    Asked,
    /// Nothing but that Octavia says so.
    Traffic,
}

/// Takes all but one sign away from what the reference has left.
fn leave_only(rig: &Rig, sign: Sign) {
    rig.cluster.edit("web", |row| {
        let ingress = std::mem::take(&mut row.status.ingress);
        if !matches!(sign, Sign::Annotation) {
            row.annotations.remove(LOAD_BALANCER_ADDRESS);
        }
        match sign {
            Sign::Address => row.status.ingress = ingress,
            Sign::Name => row.status.ingress.push(IngressAddress {
                hostname: Some("web.example.org".to_owned()),
                ..IngressAddress::default()
            }),
            Sign::Asked => {
                let key = "loadbalancer.openstack.org/hostname".to_owned();
                row.annotations.insert(key, "web.example.org".to_owned());
            }
            Sign::Annotation | Sign::Traffic => {}
        }
    });
}

#[tokio::test(start_paused = true)]
async fn one_in_error_that_may_serve_is_never_deleted_when_it_is_taken_over() {
    use Sign::{Address, Annotation, Asked, Name, Traffic};
    for sign in [Address, Name, Annotation, Asked, Traffic] {
        let mut rig = Rig::new(MONITORED);
        let (id, address) = left_by_reference(&rig, "c1");
        leave_only(&rig, sign);
        rig.wait(Duration::from_secs(10)).await;
        rig.sim.set_status(&id, "ERROR");
        rig.sim.edit(&id, |row| {
            row.insert("operating_status".to_owned(), "ONLINE".into());
        });
        rig.restart().await;
        rig.wait(Duration::from_secs(400)).await;
        let writes = rig.writes();
        let repairs = |line: &String| line.ends_with("/failover");
        assert!(writes.iter().all(repairs), "{sign:?}: {writes:?}");
        let picture = rig.picture().await;
        assert_eq!(picture.balancers[0].id.as_str(), id, "{sign:?}");
        assert_eq!(picture.floating_ips[0].floating_ip_address, address);
        let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
        assert!(reported.contains("is kept"), "{sign:?}: {reported}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_serves_no_service_is_recreated_although_a_controller_has_noted_its_id() {
    use Sign::{Address, Annotation, Asked, Name};
    for sign in [Address, Name, Annotation, Asked] {
        let mut rig = Rig::new(MONITORED);
        let (id, address) = left_by_reference(&rig, "c1");
        leave_only(&rig, sign);
        rig.wait(Duration::from_secs(10)).await;
        rig.sim.set_status(&id, "ERROR");
        rig.sim.edit(&id, |row| {
            row.insert("operating_status".to_owned(), "OFFLINE".into());
        });
        rig.restart().await;
        rig.wait(Duration::from_secs(400)).await;
        rig.settle().await;
        let picture = rig.picture().await;
        assert_eq!(picture.balancers.len(), 1, "{sign:?}: {:?}", rig.writes());
        let next = picture.balancers[0].id.to_string();
        assert_ne!(next, id, "{sign:?}");
        assert_eq!(picture.floating_ips[0].floating_ip_address, address);
        assert_eq!(
            rig.annotation("web", LOAD_BALANCER_ID),
            Some(next),
            "{sign:?}"
        );
        let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
        assert!(!reported.contains("remove the annotation"), "{reported}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_gone_is_made_again_although_a_controller_has_noted_its_id() {
    for sign in [Sign::Address, Sign::Name, Sign::Annotation] {
        let mut rig = Rig::new(MONITORED);
        let (id, _) = left_by_reference(&rig, "c1");
        leave_only(&rig, sign);
        rig.wait(Duration::from_secs(10)).await;
        let floating_ip = rig.picture().await.floating_ips[0].id.clone();
        rig.sim.delete(&id);
        rig.sim.delete(floating_ip.as_str());
        rig.restart().await;
        rig.settle().await;
        let picture = rig.picture().await;
        assert_eq!(picture.balancers.len(), 1, "{sign:?}");
        let next = picture.balancers[0].id.to_string();
        assert_eq!(
            rig.annotation("web", LOAD_BALANCER_ID),
            Some(next),
            "{sign:?}"
        );
        assert_eq!(
            rig.cluster.messages("SyncLoadBalancerFailed"),
            Vec::<String>::new()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a12_one_that_another_cluster_shares_with_us_keeps_its_name() {
    for marks in [
        &[][..],
        &["kube_cluster_id_ks-2", "landfall_service_uid-of-theirs"],
    ] {
        let mut rig = Rig::new(MONITORED);
        let balancer = reference_makes(&rig.sim, "c1", NAME);
        reference_exposes(&rig.sim, "c1", &balancer);
        let id = balancer["id"].as_str().unwrap().to_owned();
        let theirs: Vec<String> = [&[NAME][..], marks]
            .concat()
            .iter()
            .map(ToString::to_string)
            .collect();
        rig.sim.relabel(&id, &json!({"tags": theirs}));
        rig.settings.cluster = "c2".to_owned();
        for other in ["api", "web"] {
            rig.forget();
            let service = svc(other).port(8080).node_port(30180);
            rig.apply(service.annotated(LOAD_BALANCER_ID, &id)).await;
            let picture = rig.picture().await;
            assert_eq!(picture.balancers.len(), 1);
            assert_eq!(picture.balancers[0].name, NAME);
            let ours = format!("kube_service_c2_default_{other}");
            let tags = |tags: &[String]| {
                tags.iter()
                    .cloned()
                    .collect::<std::collections::BTreeSet<_>>()
            };
            let mark = "landfall_shared_by_ks-1".to_owned();
            let both = [&theirs[..], &[ours.clone(), mark]].concat();
            assert_eq!(tags(&picture.balancers[0].tags), tags(&both));
            assert_eq!(picture.listener_at(80).tags, [NAME]);
            assert_eq!(picture.listener_at(8080).tags, [ours]);
            assert_eq!(rig.published(other).len(), 1);
            rig.delete(other).await;
            let picture = rig.picture().await;
            assert_eq!(tags(&picture.balancers[0].tags), tags(&theirs));
            assert_eq!(picture.listeners.len(), 1);
            assert_eq!(picture.floating_ips.len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a14_names_that_a_user_gave_stay() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let (listener, pool) = (&picture.listeners[0].id, &picture.pools[0].id);
    // After a change of the pool's name, the driver of ovn leaves the listener in PENDING_UPDATE
    // for ever.
    let named_by_hand = if rig.sim.is_ovn() {
        in_part("the name of a pool");
        vec![listener]
    } else {
        vec![listener, pool]
    };
    for id in named_by_hand {
        rig.sim.relabel(id.as_str(), &json!({"name": "front door"}));
    }
    rig.forget();
    rig.wait(Duration::from_secs(200)).await;
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
    assert_eq!(rig.picture().await.listeners.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a15_our_tag_comes_beside_those_of_a_user() {
    let mut rig = Rig::new(MONITORED);
    let (id, _) = left_by_reference(&rig, "c1");
    let listener = rig.picture().await.listeners[0].id.to_string();
    rig.sim.relabel(&listener, &json!({"tags": ["team-a"]}));
    rig.restart().await;
    let mut tags = rig.picture().await.listener_at(80).tags.clone();
    tags.sort();
    assert_eq!(tags, [NAME, "team-a"]);
    // The marks of cluster and Service come with the first change.
    assert_eq!(
        rig.writes(),
        [
            format!("PUT /v2/lbaas/loadbalancers/{id}"),
            format!("PUT /v2/lbaas/listeners/{listener}")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a16_a_listener_without_a_mark_is_deleted_with_its_pool() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let id = rig.picture().await.balancers[0].id.to_string();
    let by_hand = |kind: &str, body| {
        let path = format!("/v2/lbaas/{kind}s");
        make(&rig.sim, Service::LoadBalancer, &path, kind, body)
    };
    let body =
        json!({"name": "by hand", "protocol": "TCP", "protocol_port": 9999, "loadbalancer_id": id});
    let listener = by_hand("listener", body);
    let body = json!({"name": "by hand", "protocol": "TCP", "lb_algorithm": rig.sim.algorithm(),
        "listener_id": listener["id"]});
    by_hand("pool", body);
    assert_eq!(rig.picture().await.listeners.len(), 2);
    rig.wait(Duration::from_secs(200)).await;
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.listeners.len(), 1);
    assert_eq!(picture.pools.len(), 1);
    assert_eq!(picture.members_at(80).len(), 2);
}
