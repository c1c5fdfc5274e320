//! Clouds and clusters that misbehave (rows R).

use std::time::Duration;

use http::Method;
use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_testkit::openstack::{Fate, Fault, Service};
use landfall_testkit::svc;

use crate::create::web;
use crate::rig::Rig;
use crate::rig::stage::{in_part, is_real};

const BALANCERS: &str = "/v2/lbaas/loadbalancers";

#[tokio::test(start_paused = true)]
async fn r03_a_token_that_expires_is_renewed_once() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    rig.sim.revoke_tokens();
    rig.apply(svc("web").port(80).node_port(30090)).await;
    assert_eq!(
        rig.picture().await.members_at(80),
        ["10.0.0.4:30090", "10.0.0.5:30090"]
    );
    let calls = rig.sim.calls();
    let ours = calls
        .iter()
        .filter(|call| !call.user_agent.contains("looker"));
    let ours: Vec<_> = ours.collect();
    assert_eq!(ours.iter().filter(|call| call.status == 401).count(), 1);
    let logins = ours
        .iter()
        .filter(|call| call.path.ends_with("/auth/tokens"));
    assert_eq!(logins.count(), 1);
    assert!(
        !rig.cluster
            .events()
            .contains(&"web SyncLoadBalancerFailed".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn r05_a_version_that_could_not_be_asked_for_is_not_guessed() {
    let mut rig = Rig::new("");
    let mut left = 3;
    rig.sim.on_call(move |call| {
        let hit = call.service == Some(Service::LoadBalancer)
            && call.path.trim_matches('/').is_empty()
            && left > 0;
        left -= i32::from(hit);
        hit.then(|| Fault::status(call.service, 500, "The server is unwell."))
    });
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let listener = picture.listener_at(80);
    assert_eq!(listener.timeout_client_data, Some(50_000));
    assert_eq!(listener.timeout_member_connect, Some(5_000));
    assert_eq!(listener.timeout_member_data, Some(50_000));
    assert_eq!(listener.timeout_tcp_inspect, Some(0));
    assert!(picture.balancers[0].tags.len() > 1);
    assert_eq!(
        rig.writes(),
        ["POST /v2/lbaas/loadbalancers", "POST /v2.0/floatingips"]
    );
}

#[tokio::test(start_paused = true)]
async fn r05_services_are_served_where_versions_can_not_be_read() {
    let mut rig = Rig::new("");
    rig.sim.on_call(|call| {
        let root =
            call.service == Some(Service::LoadBalancer) && call.path.trim_matches('/').is_empty();
        root.then(|| Fault::status(call.service, 404, "Not Found"))
    });
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80).len(), 2);
    assert!(picture.balancers[0].tags.len() > 1);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r06_a_cloud_that_asks_for_quiet_gets_it() {
    for code in [429, 503] {
        let mut rig = Rig::new("");
        let mut left = 6;
        rig.sim.on_call(move |call| {
            let hit = call.service == Some(Service::LoadBalancer) && left > 0;
            left -= i32::from(hit);
            hit.then(|| match Fault::status(call.service, code, "Not now.") {
                Fault::Status { code, body, .. } => Fault::Status {
                    code,
                    body,
                    retry_after: Some(7),
                },
                other => other,
            })
        });
        rig.apply(web()).await;
        rig.settle().await;
        assert_eq!(rig.picture().await.balancers.len(), 1, "{code}");
        assert_eq!(rig.published("web").len(), 1, "{code}");
        let calls = rig.sim.calls();
        let refused: Vec<Duration> = calls
            .iter()
            .filter(|call| call.status == code)
            .map(|call| call.at)
            .collect();
        assert_eq!(refused.len(), 6, "{code}");
        for pair in refused.windows(2) {
            assert!(
                pair[1] >= pair[0] + Duration::from_secs(6),
                "{code}: {refused:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r07_lists_are_read_to_their_end() {
    let mut rig = Rig::new("manage-security-groups=true");
    rig.sim.configure(|settings| {
        settings.page_size = 2;
        settings.network_page_size = Some(2);
    });
    for index in 0_u16..7 {
        let service = svc(&format!("s{index}"))
            .named_port("a", 80)
            .node_port(30100 + index)
            .named_port("b", 443)
            .node_port(30200 + index);
        rig.apply(service).await;
    }
    assert_eq!(rig.picture().await.balancers.len(), 7);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.cluster.remove_node("b");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.pools.len(), 14);
    assert!(picture.members.values().all(|members| members.len() == 1));
    assert_eq!(picture.floating_ips.len(), 7);
    for index in 0..7 {
        rig.delete(&format!("s{index}")).await;
    }
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn r08_one_that_is_stuck_keeps_no_other_waiting() {
    let mut rig = Rig::new("");
    rig.sim.next_fate(Fate::Stuck);
    rig.apply(web()).await;
    let stuck = rig.picture().await.balancers[0].id.to_string();
    rig.cluster
        .apply(&svc("other").port(80).node_port(30081).row());
    rig.wait(Duration::from_secs(10)).await;
    assert_eq!(rig.published("other").len(), 1);
    assert_eq!(rig.published("web"), Vec::<String>::new());
    rig.cluster
        .apply(&svc("other").port(80).node_port(30082).row());
    rig.wait(Duration::from_secs(10)).await;
    let picture = rig.picture().await;
    let moved = picture
        .members
        .values()
        .flatten()
        .filter(|member| member.protocol_port == 30082);
    assert_eq!(moved.count(), 2);
    rig.wait(Duration::from_secs(300)).await;
    rig.sim.release(&stuck);
    rig.wait(Duration::from_secs(31)).await;
    rig.settle().await;
    assert_eq!(rig.published("web").len(), 1);
    // That one took minutes does not make the others slow.
    let begun = tokio::time::Instant::now();
    rig.cluster
        .apply(&svc("third").port(80).node_port(30083).row());
    while rig.published("third").is_empty() {
        rig.wait(Duration::from_secs(1)).await;
    }
    assert!(
        begun.elapsed() <= Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn r09_killed_after_any_write_it_comes_to_the_same_end() {
    for last in 1.. {
        let mut rig = Rig::new("manage-security-groups=true");
        let mut count = 0;
        rig.sim.on_call(move |call| {
            count += i32::from(call.is_write());
            (call.is_write() && count >= last).then_some(Fault::HangAfter)
        });
        rig.cluster.apply(&web().row());
        rig.start();
        rig.wait(Duration::from_secs(20)).await;
        let done = !rig.published("web").is_empty();
        rig.kill();
        rig.sim.heal();
        rig.restart().await;
        let picture = rig.picture().await;
        assert_eq!(picture.balancers.len(), 1, "{last}");
        assert_eq!(picture.floating_ips.len(), 1, "{last}");
        assert_eq!(picture.groups.len(), 1, "{last}");
        assert_eq!(picture.members_at(80).len(), 2, "{last}");
        assert_eq!(
            rig.published("web"),
            [picture.floating_ips[0].floating_ip_address.to_string()],
            "{last}"
        );
        rig.delete("web").await;
        assert!(rig.picture().await.is_empty(), "{last}");
        if done {
            assert!(last > 4, "{last}");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r13_a_service_that_is_deleted_while_it_is_made_leaves_nothing() {
    // Each takes a minute where time is real.
    let moments = if is_real() {
        in_part("four of six moments");
        &[0, 5][..]
    } else {
        &[0, 1, 5, 29, 31, 33]
    };
    for seconds in moments.iter().copied() {
        let mut rig = Rig::new("manage-security-groups=true");
        rig.sim.settle_in(Duration::from_secs(30));
        rig.cluster.apply(&web().row());
        rig.start();
        rig.wait(Duration::from_secs(seconds)).await;
        rig.delete("web").await;
        assert!(rig.cluster.service("web").is_none(), "{seconds}");
        let picture = rig.picture().await;
        assert!(picture.is_empty(), "{seconds}: {picture:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r13_a_service_that_comes_back_while_it_goes_has_one_again() {
    let mut rig = Rig::new("");
    rig.sim.settle_in(Duration::from_secs(10));
    rig.apply(web()).await;
    let before = rig.annotation("web", LOAD_BALANCER_ID).unwrap();
    rig.cluster.delete("web");
    rig.wait(Duration::from_secs(5)).await;
    rig.cluster.apply(
        &web()
            .with(|row| row.uid = landfall_model::Uid::new("uid-again"))
            .row(),
    );
    rig.wait(Duration::from_secs(60)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_ne!(picture.balancers[0].id.as_str(), before);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r14_a_status_that_could_not_be_written_is_written_later() {
    let mut rig = Rig::new("");
    rig.cluster.refuse_status(3);
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(
        rig.writes(),
        ["POST /v2/lbaas/loadbalancers", "POST /v2.0/floatingips"]
    );
    assert_eq!(
        rig.annotation("web", LOAD_BALANCER_ID),
        Some(picture.balancers[0].id.to_string())
    );
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r14_the_load_balancer_is_found_by_name_where_nothing_could_be_written() {
    let mut rig = Rig::new("");
    rig.cluster.refuse_status(usize::MAX);
    rig.cluster.apply(&web().row());
    rig.start();
    rig.wait(Duration::from_secs(60)).await;
    rig.kill();
    assert_eq!(rig.annotation("web", LOAD_BALANCER_ID), None);
    rig.cluster.refuse_status(0);
    rig.restart().await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r15_a_node_that_comes_while_a_change_is_under_way_waits_its_turn() {
    let mut rig = Rig::new("");
    rig.sim.settle_in(Duration::from_secs(5));
    rig.apply(web()).await;
    rig.forget();
    let three = svc("web")
        .named_port("a", 80)
        .node_port(30080)
        .named_port("b", 81)
        .node_port(30081)
        .named_port("c", 82)
        .node_port(30082);
    rig.cluster.apply(&three.row());
    for (name, address) in [("c", "10.0.0.6"), ("d", "10.0.0.7"), ("e", "10.0.0.8")] {
        rig.wait(Duration::from_secs(3)).await;
        rig.add_node(name, address);
    }
    rig.settle().await;
    let picture = rig.picture().await;
    for port in [80, 81, 82] {
        assert_eq!(picture.members_at(port).len(), 5, "{port}");
    }
    // A guess of when Octavia is done may be wrong now and then, and costs a refused call.
    let calls = rig.sim.calls();
    let refused = calls.iter().filter(|call| call.status == 409);
    assert!(refused.count() <= 2, "{:?}", rig.writes());
    assert!(
        !rig.cluster
            .events()
            .contains(&"web SyncLoadBalancerFailed".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn r16_a_quota_is_reported_with_the_server_s_text_and_nothing_is_made_twice() {
    let mut rig = Rig::new("");
    rig.sim.limit_load_balancers(Some(0));
    rig.apply(web()).await;
    let reported = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("Quota has been met"), "{reported:?}");
    assert!(rig.picture().await.is_empty());
    rig.sim.limit_load_balancers(None);
    rig.wait(Duration::from_secs(60)).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r16_without_a_floating_ip_the_rest_is_there_once() {
    let mut rig = Rig::new("");
    rig.sim.limit_floating_ips(Some(0));
    rig.apply(web()).await;
    let reported = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("floatingip"), "{reported:?}");
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(rig.published("web"), Vec::<String>::new());
    rig.sim.limit_floating_ips(None);
    rig.wait(Duration::from_secs(60)).await;
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
    let creates = rig
        .writes()
        .into_iter()
        .filter(|line| *line == format!("{} {BALANCERS}", Method::POST));
    assert_eq!(creates.count(), 1);
}
