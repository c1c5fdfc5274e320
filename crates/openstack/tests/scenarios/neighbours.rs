//! What has another owner, or was kept, is neither taken nor given away.

use std::time::Duration;

use http::Method;
use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_openstack::Groups;
use landfall_testkit::openstack::Service;
use landfall_testkit::svc;
use serde_json::{Value, json};

use crate::addresses::{floating_ip_by_hand, lb};
use crate::create::web;
use crate::rig::Rig;
use crate::rig::stage::Stage;
use crate::written::refusal;

const NAME: &str = "kube_service_c1_default_web";
/// Long enough for an audit to come round.
const AUDIT: Duration = Duration::from_secs(200);

/// A load balancer with the name of default/web, of a cluster with this mark.
pub fn of_cluster(rig: &Rig, mark: &str) -> String {
    let body = json!({"loadbalancer": {"name": NAME, "vip_subnet_id": rig.sim.subnet(),
        "tags": [NAME, mark],
        "description": "Kubernetes external service default/web from cluster c1"}});
    let path = "/v2/lbaas/loadbalancers";
    let made = rig
        .sim
        .hand(Service::LoadBalancer, &Method::POST, path, body);
    made.unwrap()["loadbalancer"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn services_made_at(
    time: &str,
) -> impl Fn(landfall_testkit::build::ServiceBuilder) -> landfall_testkit::build::ServiceBuilder {
    let made = time.parse().unwrap();
    move |service| service.with(|row| row.created = Some(made))
}

#[tokio::test(start_paused = true)]
async fn a07_one_of_a_cluster_of_the_same_name_is_not_used_although_its_id_is_named() {
    let mut rig = Rig::new("");
    let other = of_cluster(&rig, "kube_cluster_id_ks-2");
    rig.wait(Duration::from_secs(10)).await;
    rig.sim.mark_foreign(&other);
    let before = rig.sim.snapshot_foreign();
    rig.apply(web().annotated(LOAD_BALANCER_ID, &other)).await;
    assert!(
        refusal(&rig, "web").contains("another cluster"),
        "{}",
        refusal(&rig, "web")
    );
    rig.delete("web").await;
    assert!(rig.cluster.service("web").is_none());
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.sim.snapshot_foreign(), before);
    // Without the annotation there is one of its own.
    rig.apply(web()).await;
    assert_eq!(rig.published("web").len(), 1);
    rig.delete("web").await;
    assert_eq!(rig.sim.snapshot_foreign(), before);
}

#[tokio::test(start_paused = true)]
async fn a04_a_service_stays_while_it_is_not_known_which_of_two_is_to_be_deleted() {
    let mut rig = Rig::new("");
    let ids = [0, 1].map(|_| of_cluster(&rig, "kube_cluster_id_ks-1"));
    rig.wait(Duration::from_secs(10)).await;
    rig.apply(web()).await;
    rig.delete("web").await;
    assert!(rig.cluster.service("web").is_some());
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.sim.delete(&ids[0]);
    rig.wait(AUDIT).await;
    rig.settle().await;
    assert!(rig.cluster.service("web").is_none());
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn s11_a_service_that_was_never_let_in_deletes_nothing() {
    let stage = Stage::new();
    stage.configure(|settings| settings.api_minor = 4);
    let mut rig = Rig::on(stage, "");
    rig.apply(web()).await;
    let id = rig.picture().await.balancers[0].id.to_string();
    let before = rig.picture().await;
    rig.forget();
    rig.apply(svc("other").port(81).annotated(LOAD_BALANCER_ID, &id))
        .await;
    assert_ne!(refusal(&rig, "other"), "");
    rig.delete("other").await;
    assert!(rig.cluster.service("other").is_none());
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.picture().await.floating_ips, before.floating_ips);
}

#[tokio::test(start_paused = true)]
async fn f10_what_an_earlier_service_of_the_name_kept_is_not_given_back() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&lb("keep-floatingip"), "true"))
        .await;
    let kept = rig.published("web");
    rig.delete("web").await;
    let there = rig.picture().await.floating_ips;
    assert_eq!(there.len(), 1);
    // A later one of the same name, first internal, then with an address of another owner.
    let later = services_made_at("2200-01-01T00:00:00Z");
    rig.apply(later(web()).annotated(
        "service.beta.kubernetes.io/openstack-internal-load-balancer",
        "true",
    ))
    .await;
    assert_eq!(rig.picture().await.floating_ips, there);
    rig.delete("web").await;
    assert_eq!(rig.picture().await.floating_ips, there);
    let one = floating_ip_by_hand(&rig, None).await;
    rig.apply(later(web()).load_balancer_ip(&one.floating_ip_address.to_string()))
        .await;
    rig.delete("web").await;
    let left = rig.picture().await.floating_ips;
    assert!(left.contains(&there[0]) && left.len() == 2, "{left:?}");
    // It is used again by one that wants any, which gives it back in turn.
    rig.apply(later(web())).await;
    assert_eq!(rig.published("web"), kept);
    rig.delete("web").await;
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c27_an_address_that_a_person_attached_leads_to_the_recreated_load_balancer() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    // Another client puts its own address in the place of ours.
    rig.sim.delete(picture.floating_ips[0].id.as_str());
    let port = picture.balancers[0].vip_port_id.clone();
    let own = floating_ip_by_hand(&rig, port.as_ref()).await;
    rig.wait(AUDIT).await;
    let published = [own.floating_ip_address.to_string()];
    assert_eq!(rig.published("web"), published);
    rig.forget();
    rig.sim.delete(picture.balancers[0].id.as_str());
    rig.wait(AUDIT).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.published("web"), published);
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
    assert!(!rig.writes().contains(&"POST /v2.0/floatingips".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_address_of_another_network_serves_before_the_old_one_is_given_back() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let old = rig.picture().await.floating_ips[0].id.clone();
    let network = rig.sim.add_network("outside", true);
    rig.sim
        .add_subnet(&network, "outside4", "192.0.2.0/24".parse().unwrap(), &[]);
    let body = json!({"floating_network_id": network, "description": "by hand"});
    let other = rig.looker().create_floating_ip(&body).await.unwrap();
    let asked = web().load_balancer_ip(&other.floating_ip_address.to_string());
    rig.forget();
    // No router leads there.
    let path = format!("/v2.0/floatingips/{}", other.id);
    let attached = path.clone();
    rig.sim.on_call(move |call| {
        let hit = call.method == Method::PUT && call.path == attached;
        hit.then(|| {
            landfall_testkit::openstack::Fault::status(
                call.service,
                404,
                "External network is not reachable",
            )
        })
    });
    let before = rig.published("web");
    rig.apply(asked.clone()).await;
    assert_eq!(rig.published("web"), before);
    assert!(
        rig.writes().iter().all(|it| *it == format!("PUT {path}")),
        "{:?}",
        rig.writes()
    );
    rig.sim.on_call(|_| None);
    rig.forget();
    rig.wait(Duration::from_secs(400)).await;
    rig.settle().await;
    assert_eq!(
        rig.published("web"),
        [other.floating_ip_address.to_string()]
    );
    assert_eq!(
        rig.writes(),
        [
            format!("PUT {path}"),
            format!("DELETE /v2.0/floatingips/{old}")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn g12_on_ovn_a_port_is_open_to_its_own_clients_only() {
    for layout in [Groups::PerService, Groups::PerCluster] {
        let mut rig =
            Rig::new("lb-provider=ovn\nlb-method=SOURCE_IP_PORT\nmanage-security-groups=true");
        rig.settings.groups = layout;
        let service = svc("web").named_port("admin", 22).node_port(30022);
        let service = service.named_port("web", 80).node_port(30080);
        rig.apply(service.annotated("landfall.dev/source-ranges.admin", "10.0.0.0/8"))
            .await;
        assert_eq!(refusal(&rig, "web"), "");
        let groups = rig.picture().await.groups;
        let mut rules: Vec<Value> = groups
            .iter()
            .flat_map(|group| &group.rules)
            .filter(|it| it.direction == "ingress")
            .map(|it| json!([it.port_range_min, it.remote_ip_prefix]))
            .collect();
        rules.sort_by_key(Value::to_string);
        assert_eq!(
            rules,
            [json!([30022, "10.0.0.0/8"]), json!([30080, "0.0.0.0/0"])],
            "{layout}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn g08_rules_in_the_shared_group_go_when_groups_are_managed_no_more_or_differently() {
    let ingress = |groups: &[landfall_openstack::objects::SecurityGroup], shared: bool| {
        let groups = groups
            .iter()
            .filter(|it| (it.name == "landfall-nodes-c1") == shared);
        groups
            .flat_map(|it| &it.rules)
            .filter(|it| it.direction == "ingress")
            .count()
    };
    for (layout, managed, own) in [
        (Groups::PerCluster, false, 0),
        (Groups::PerService, true, 1),
    ] {
        let mut rig = Rig::new("manage-security-groups=true");
        rig.settings.groups = Groups::PerCluster;
        rig.apply(web()).await;
        let groups = rig.picture().await.groups;
        assert_eq!((ingress(&groups, true), ingress(&groups, false)), (1, 0));
        rig.settings.groups = layout;
        rig.settings.conf.manage_security_groups = managed;
        rig.restart().await;
        rig.settle().await;
        let groups = rig.picture().await.groups;
        assert_eq!(
            (ingress(&groups, true), ingress(&groups, false)),
            (0, own),
            "{layout}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_former_address_serves_again_where_another_client_took_the_new_one() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let port = rig.picture().await.balancers[0].vip_port_id.clone();
    for by_hand in [false, true] {
        if by_hand {
            // The one that serves is a person's.
            rig.sim
                .delete(rig.picture().await.floating_ips[0].id.as_str());
            floating_ip_by_hand(&rig, port.as_ref()).await;
            rig.apply(web()).await;
            rig.wait(AUDIT).await;
        }
        let before = rig.published("web");
        let other = floating_ip_by_hand(&rig, None).await;
        // Between our read and our request, another client attaches the other one elsewhere.
        let path = format!("/v2.0/floatingips/{}", other.id);
        let (sim, taken) = (rig.sim.clone(), path.clone());
        rig.sim.on_call(move |call| {
            let hit = call.method == Method::PUT && call.path == taken;
            if hit {
                sim.edit(other.id.as_str(), |row| {
                    row.insert(
                        "port_id".to_owned(),
                        "99999999-9999-4999-8999-999999999999".into(),
                    );
                });
            }
            hit.then(|| {
                landfall_testkit::openstack::Fault::status(call.service, 409, "already associated")
            })
        });
        rig.apply(web().load_balancer_ip(&other.floating_ip_address.to_string()))
            .await;
        rig.wait(AUDIT).await;
        rig.settle().await;
        assert_eq!(rig.published("web"), before, "{by_hand}");
        let serving = rig.picture().await.floating_ips;
        let serving = serving.iter().find(|it| it.port_id == port).unwrap();
        assert_eq!(serving.floating_ip_address.to_string(), before[0]);
        assert!(
            refusal(&rig, "web").contains("in use"),
            "{}",
            refusal(&rig, "web")
        );
        rig.sim.on_call(|_| None);
        rig.apply(web()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn s04_a_service_that_shared_gives_back_no_address_of_the_first() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&lb("keep-floatingip"), "true"))
        .await;
    let picture = rig.picture().await;
    let id = picture.balancers[0].id.to_string();
    rig.apply(
        svc("guest")
            .port(81)
            .node_port(30081)
            .annotated(LOAD_BALANCER_ID, &id),
    )
    .await;
    assert_eq!(rig.published("guest"), rig.published("web"));
    // The load balancer is lost, and the first goes; its address is kept.
    rig.kill();
    rig.sim.delete(&id);
    rig.cluster.delete("web");
    rig.start();
    rig.settle().await;
    let kept = rig.picture().await.floating_ips;
    assert_eq!(kept.len(), 1);
    rig.delete("guest").await;
    assert!(rig.cluster.service("guest").is_none());
    assert_eq!(rig.picture().await.floating_ips, kept);
}
