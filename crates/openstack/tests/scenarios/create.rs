//! Making, following and deleting a load balancer (rows C).

use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use landfall_model::status::IpMode;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::svc;

use crate::rig::Rig;

/// The Service of the default world.
pub fn web() -> ServiceBuilder {
    svc("web").port(80).node_port(30080)
}

const NAME: &str = "kube_service_c1_default_web";

#[tokio::test(start_paused = true)]
async fn c01_a_service_becomes_one_load_balancer_with_everything_in_it() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(
        picture.balancers.len(),
        1,
        "{:?} {:?}",
        rig.calls(),
        rig.cluster.events()
    );
    let balancer = &picture.balancers[0];
    assert_eq!(balancer.name, NAME);
    assert_eq!(
        balancer.description,
        "Kubernetes external service default/web from cluster c1"
    );
    assert!(balancer.tags.contains(&NAME.to_owned()));
    assert_eq!(balancer.provider, "amphora");
    assert_eq!(
        balancer.vip_subnet_id.as_ref().unwrap().as_str(),
        rig.sim.subnet()
    );
    let listener = picture.listener_at(80);
    assert_eq!(listener.name, format!("listener_0_{NAME}"));
    assert_eq!(
        listener.allowed_cidrs.as_deref(),
        Some(&["0.0.0.0/0".to_owned()][..])
    );
    assert_eq!(picture.pool_at(80).name, format!("pool_0_{NAME}"));
    assert_eq!(picture.members_at(80), ["10.0.0.4:30080", "10.0.0.5:30080"]);
    let members = &picture.members[picture.pool_at(80).id.as_str()];
    for member in members {
        assert_eq!(
            member.subnet_id.as_ref().unwrap().as_str(),
            rig.sim.subnet()
        );
    }
    let timeouts = [
        listener.timeout_client_data,
        listener.timeout_member_connect,
        listener.timeout_member_data,
        listener.timeout_tcp_inspect,
    ];
    let defaults = [50_000, 5_000, 50_000, 0].map(Some);
    assert_eq!(timeouts, defaults);
    assert!(picture.monitors.is_empty());
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(
        picture.floating_ips[0].floating_network_id.as_str(),
        rig.sim.external_network()
    );
    assert_eq!(picture.floating_ips[0].port_id, balancer.vip_port_id);
    assert_eq!(
        picture.floating_ips[0].description,
        "Floating IP for Kubernetes external service default/web from cluster c1"
    );
    assert_eq!(
        rig.writes(),
        ["POST /v2/lbaas/loadbalancers", "POST /v2.0/floatingips"]
    );
}

#[tokio::test(start_paused = true)]
async fn c02_status_annotations_finalizer_and_events_show_it() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let address = picture.floating_ips[0].floating_ip_address;
    let service = rig.cluster.service("web").unwrap();
    assert_eq!(service.status.ingress.len(), 1);
    assert_eq!(service.status.ingress[0].ip, Some(address));
    assert_eq!(service.status.ingress[0].ip_mode, Some(IpMode::Vip));
    assert!(service.finalized);
    assert_eq!(
        service.annotations[LOAD_BALANCER_ID],
        picture.balancers[0].id.as_str()
    );
    assert_eq!(
        service.annotations[LOAD_BALANCER_ADDRESS],
        address.to_string()
    );
    assert_eq!(rig.cluster.events(), ["web EnsuredLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn c03_a_restart_writes_nothing() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    // OVN's driver goes on reporting after the first ACTIVE: the next audit notes the last of it.
    rig.wait(std::time::Duration::from_secs(40)).await;
    rig.forget();
    let (writes, before) = (rig.cluster.writes(), rig.cluster.service("web"));
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.cluster.service("web"), before);
    assert_eq!(rig.cluster.writes(), writes);
    assert_eq!(rig.cluster.events(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn c04_deletion_leaves_nothing() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let (balancer, floating) = (&picture.balancers[0].id, &picture.floating_ips[0].id);
    rig.forget();
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
    assert_eq!(
        rig.writes(),
        [
            format!("DELETE /v2.0/floatingips/{floating}"),
            format!("DELETE /v2/lbaas/loadbalancers/{balancer}?cascade=true"),
        ]
    );
    assert!(rig.cluster.service("web").is_none());
    assert!(
        rig.cluster
            .events()
            .contains(&"web DeletedLoadBalancer".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn c07_and_c08_ports_come_and_go_beside_those_that_stay() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await.listener_at(80).id.clone();
    rig.forget();
    rig.apply(
        svc("web")
            .named_port("a", 80)
            .node_port(30080)
            .named_port("b", 443)
            .node_port(30443),
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(
        picture.members_at(443),
        ["10.0.0.4:30443", "10.0.0.5:30443"]
    );
    assert_eq!(picture.listener_at(443).name, format!("listener_1_{NAME}"));
    assert_eq!(picture.listener_at(80).id, before);
    let made = ["POST /v2/lbaas/listeners", "POST /v2/lbaas/pools"].map(str::to_owned);
    let (last, other) = (
        picture.pool_at(443).id.clone(),
        picture.pool_at(80).id.clone(),
    );
    let members = format!("PUT /v2/lbaas/pools/{last}/members");
    assert_eq!(rig.writes(), [&made[..], &[members]].concat());
    let listener = picture.listener_at(443).id.clone();
    rig.forget();
    rig.apply(svc("web").named_port("b", 443).node_port(30443))
        .await;
    let picture = rig.picture().await;
    assert_eq!(picture.listeners[0].id, listener);
    assert_eq!(picture.listeners.len(), 1);
    assert_eq!(picture.pools[0].id, last);
    assert_eq!(picture.pools.len(), 1);
    assert_eq!(
        rig.writes(),
        [
            format!("DELETE /v2/lbaas/pools/{other}"),
            format!("DELETE /v2/lbaas/listeners/{before}"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn c11_a_node_that_comes_costs_one_write_per_port() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(
        picture.members_at(80),
        ["10.0.0.4:30080", "10.0.0.5:30080", "10.0.0.6:30080"]
    );
    assert_eq!(rig.writes().len(), 1, "{:?}", rig.calls());
    assert_eq!(rig.cluster.events(), [] as [String; 0]);
}
