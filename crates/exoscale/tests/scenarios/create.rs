//! Creation, and what is quiet afterwards.

use std::time::Duration;

use landfall_model::status::IpMode;
use landfall_model::view::Health;
use serde_json::json;

use crate::rig::{Rig, web};

#[tokio::test(start_paused = true)]
async fn s01_and_s76_a_minimal_service_gets_a_load_balancer_with_one_service() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    assert_eq!(
        rig.writes(),
        ["POST /load-balancer", "POST /load-balancer/LB/service"]
    );
    let bodies = rig.bodies();
    assert_eq!(bodies[0]["name"], "k8s-uid-web");
    assert_eq!(
        bodies[1],
        json!({
            "name": "uid-web-80", "port": 80, "target-port": 32_672, "protocol": "tcp",
            "strategy": "round-robin", "instance-pool": {"id": rig.pool},
            "healthcheck": {
                "mode": "tcp", "port": 32_672, "interval": 10, "timeout": 5, "retries": 1,
            },
        })
    );
    let nlb = rig.nlb();
    let service = rig.cluster.service("web").unwrap();
    assert_eq!(service.status.ingress.len(), 1);
    let ingress = &service.status.ingress[0];
    assert_eq!(ingress.ip.unwrap().to_string(), nlb["ip"]);
    assert_eq!(
        (ingress.ip_mode, &ingress.hostname),
        (Some(IpMode::Vip), &None)
    );
    assert_eq!(rig.annotation("id").as_deref(), nlb["id"].as_str());
    assert_eq!(
        rig.annotation("service-instancepool-id"),
        Some(rig.pool.clone())
    );
    assert!(service.finalized && rig.is_programmed());
    assert_eq!(rig.refusal(), "");
}

#[tokio::test(start_paused = true)]
async fn s02_what_is_in_order_is_left_alone() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let before = rig.cluster.service("web").unwrap();
    rig.forget();
    let writes = rig.cluster.writes();
    rig.restart().await;
    rig.wait(std::time::Duration::from_secs(900)).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.cluster.writes(), writes);
    assert_eq!(rig.cluster.service("web").unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn s03_a_deleted_service_takes_its_load_balancer_with_it() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.forget();
    rig.delete("web").await;
    assert_eq!(
        rig.writes(),
        [
            "DELETE /load-balancer/LB/service/SERVICE",
            "DELETE /load-balancer/LB"
        ]
    );
    assert!(rig.sim.load_balancers().is_empty());
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn each_instance_is_shown_with_its_health() {
    let mut rig = Rig::new();
    let third = rig.add_node("c");
    rig.apply(web()).await;
    let audited = Duration::from_secs(400);
    rig.wait(audited).await;
    let health = |rig: &Rig| {
        let listeners = rig.listeners("web");
        assert_eq!(listeners.len(), 1);
        assert_eq!(listeners[0].key.to_string(), "80/TCP");
        assert_eq!(listeners[0].addresses.len(), 1);
        let members = listeners[0].members.iter();
        let mut health: Vec<_> = members
            .map(|it| (it.address.to_string(), it.health))
            .collect();
        health.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        health
    };
    let address = |number: u8| format!("198.51.100.{number}:32672");
    let all = [1, 2, 3].map(|number| (address(number), Health::Up));
    assert_eq!(health(&rig), all);
    rig.sim.set_health(&third, false);
    rig.wait(audited).await;
    let mut one_down = all.clone();
    one_down[2].1 = Health::Down;
    assert_eq!(health(&rig), one_down);
}
