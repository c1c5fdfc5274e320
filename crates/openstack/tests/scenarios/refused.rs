//! What can't be had, and what goes on all the same.

use std::time::Duration;

use http::Method;
use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_openstack::objects::Id;
use landfall_testkit::openstack::{Fate, Service};
use landfall_testkit::{node, svc};
use serde_json::json;

use crate::create::web;
use crate::rig::Rig;
use crate::rig::stage::{Stage, in_part};
use crate::written::{annotate, refusal, short};

const OVN: &str = "lb-provider=ovn\nlb-method=SOURCE_IP_PORT";

#[tokio::test(start_paused = true)]
async fn members_follow_nodes_although_what_is_asked_for_by_now_is_refused() {
    let mut rig = Rig::new(OVN);
    rig.apply(web()).await;
    rig.forget();
    rig.apply(web().source_range("10.0.0.0/8")).await;
    assert!(
        refusal(&rig, "web").contains("does not filter"),
        "{}",
        refusal(&rig, "web")
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.add_node("c", "10.0.0.6");
    rig.cluster.remove_node("a");
    rig.settle().await;
    assert_eq!(
        rig.picture().await.members_at(80),
        ["10.0.0.5:30080", "10.0.0.6:30080"]
    );
    assert!(refusal(&rig, "web").contains("does not filter"));
    // And so it is for a process that never saw it otherwise.
    rig.kill();
    rig.add_node("d", "10.0.0.7");
    rig.restart().await;
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
    rig.forget();
    rig.wait(Duration::from_secs(300)).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn l25_an_algorithm_is_had_after_another_one_was_refused() {
    let stage = Stage::new();
    stage.configure(|settings| settings.api_minor = 12);
    let mut rig = Rig::on(stage, "");
    rig.apply(web()).await;
    annotate(&mut rig, &[("lb-method", "SOURCE_IP")]).await;
    assert_eq!(rig.picture().await.pool_at(80).lb_algorithm, "SOURCE_IP");
    annotate(&mut rig, &[("lb-method", "SOURCE_IP_PORT")]).await;
    annotate(&mut rig, &[("lb-method", "LEAST_CONNECTIONS")]).await;
    assert_eq!(
        rig.picture().await.pool_at(80).lb_algorithm,
        "LEAST_CONNECTIONS"
    );
}

#[tokio::test(start_paused = true)]
async fn c17_what_always_fails_is_asked_for_less_and_less_often() {
    let mut rig = Rig::new("");
    rig.sim.on_lock(|write, _| match write {
        "create" => Fate::BalancerError,
        _ => Fate::Active,
    });
    rig.apply(web()).await;
    rig.wait(Duration::from_secs(3_600)).await;
    let asked = rig
        .writes()
        .iter()
        .filter(|it| it.starts_with("POST"))
        .count();
    assert!((10..=20).contains(&asked), "{asked}");
    let reported = rig.cluster.messages("SyncLoadBalancerFailed").join("; ");
    assert!(reported.contains("went to ERROR"), "{reported}");
    // One that works is had, and the next failure is a first one.
    rig.sim.on_lock(|_, _| Fate::Active);
    rig.wait(Duration::from_secs(400)).await;
    rig.settle().await;
    assert_eq!(rig.published("web").len(), 1, "{}", refusal(&rig, "web"));
    assert_eq!(refusal(&rig, "web"), "");
}

/// The default world with subnets of both families, of which the configuration names none.
fn detecting(nodes: &[(&str, &str)]) -> (Rig, String) {
    let stage = Stage::new();
    let six = stage.add_subnet(
        &stage.network(),
        "sub6",
        "2001:db8::/64".parse().unwrap(),
        &[],
    );
    let conf = format!(
        "[LoadBalancer]\nfloating-network-id={}\n",
        stage.external_network()
    );
    let mut rig = Rig::bare(stage, &conf);
    for (name, address) in nodes {
        rig.add_node(name, address);
    }
    (rig, six)
}

fn subnet_of(rig_members: &crate::rig::Picture, port: u16) -> Option<Id> {
    let pool = rig_members.pool_at(port);
    rig_members.members[pool.id.as_str()][0].subnet_id.clone()
}

#[tokio::test(start_paused = true)]
async fn f25_the_subnet_of_a_node_is_that_of_the_service_s_family() {
    let (mut rig, six) = detecting(&[]);
    let server = rig.sim.add_node("a", "10.0.0.4".parse().unwrap());
    rig.sim
        .add_nic("a6", &server, "2001:db8::4".parse().unwrap(), true);
    let row = node("a", "10.0.0.4").with(|row| {
        row.addresses.push("2001:db8::4".parse().unwrap());
        row.provider_id = Some(format!("openstack:///{server}").into());
    });
    rig.cluster.put_node(row.row());
    rig.apply(web()).await;
    let service = svc("six").port(81).node_port(30081);
    rig.apply(service.families(&[Family::V6], FamilyPolicy::SingleStack))
        .await;
    let picture = rig.picture().await;
    assert_eq!(subnet_of(&picture, 80).unwrap().as_str(), rig.sim.subnet());
    assert_eq!(subnet_of(&picture, 81).unwrap().as_str(), six);
    assert!(
        rig.published("six")[0].starts_with("2001:db8:"),
        "{:?}",
        rig.published("six")
    );
}

#[tokio::test(start_paused = true)]
async fn g14_the_subnet_is_that_of_a_node_that_the_cloud_has() {
    let (mut rig, _) = detecting(&[]);
    let row = node("a-of-metal", "192.0.2.9");
    let row = row.with(|row| row.provider_id = Some("metal3://rack/1".into()));
    rig.cluster.put_node(row.row());
    rig.add_node("b", "10.0.0.5");
    rig.apply(web()).await;
    assert_eq!(refusal(&rig, "web"), "");
    let vip = rig.picture().await.balancers[0].vip_subnet_id.clone();
    assert_eq!(vip.unwrap().as_str(), rig.sim.subnet());
}

#[tokio::test(start_paused = true)]
async fn members_of_a_foreign_load_balancer_are_in_the_subnet_of_the_nodes() {
    let (mut rig, _) = detecting(&[("a", "10.0.0.4"), ("b", "10.0.0.5")]);
    let dmz = rig.sim.add_subnet(
        &rig.sim.network(),
        "dmz",
        "10.9.0.0/24".parse().unwrap(),
        &[],
    );
    let body = json!({"loadbalancer": {"name": "front", "vip_subnet_id": dmz}});
    let made = rig.sim.hand(
        Service::LoadBalancer,
        &Method::POST,
        "/v2/lbaas/loadbalancers",
        body,
    );
    let made = made.unwrap()["loadbalancer"].clone();
    rig.wait(Duration::from_secs(10)).await;
    let port = Id::new(made["vip_port_id"].as_str().unwrap());
    crate::addresses::floating_ip_by_hand(&rig, Some(&port)).await;
    rig.apply(web().annotated(LOAD_BALANCER_ID, made["id"].as_str().unwrap()))
        .await;
    assert_eq!(refusal(&rig, "web"), "");
    assert_eq!(
        subnet_of(&rig.picture().await, 80).unwrap().as_str(),
        rig.sim.subnet()
    );
}

#[tokio::test(start_paused = true)]
async fn f33_the_first_family_may_be_ipv6_where_the_configured_subnet_is_ipv4() {
    for (families, policy) in [
        (vec![Family::V6], FamilyPolicy::SingleStack),
        (vec![Family::V6, Family::V4], FamilyPolicy::RequireDualStack),
    ] {
        let stage = Stage::new();
        let six = stage.add_subnet(
            &stage.network(),
            "sub6",
            "2001:db8::/64".parse().unwrap(),
            &[],
        );
        let conf = format!(
            "[LoadBalancer]\nfloating-network-id={}\nsubnet-id={}\n",
            stage.external_network(),
            stage.subnet()
        );
        let mut rig = Rig::bare(stage, &conf);
        rig.add_node("a", "2001:db8::4");
        // There, members have to be of each VIP's family.
        if rig.sim.is_ovn() && families.len() > 1 {
            in_part("two families");
            continue;
        }
        rig.apply(web().families(&families, policy)).await;
        assert_eq!(refusal(&rig, "web"), "");
        let picture = rig.picture().await;
        assert_eq!(
            picture.balancers[0]
                .vip_subnet_id
                .as_ref()
                .unwrap()
                .as_str(),
            six
        );
        assert_eq!(
            picture.balancers[0].additional_vips.len(),
            families.len() - 1
        );
        assert_eq!(subnet_of(&picture, 80).unwrap().as_str(), six);
        assert!(rig.published("web")[0].starts_with("2001:db8:"));
        rig.forget();
        rig.restart().await;
        assert_eq!(rig.writes(), Vec::<String>::new());
    }
    // Where there is none of the family, it is said.
    let mut rig = Rig::new("");
    crate::subnets::leave_four_only(&rig);
    rig.apply(web().families(&[Family::V6], FamilyPolicy::SingleStack))
        .await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_ne!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn f33_no_second_address_is_published_that_no_member_can_serve() {
    let both = |service: landfall_testkit::build::ServiceBuilder| {
        service.families(&[Family::V4, Family::V6], FamilyPolicy::RequireDualStack)
    };
    let udp = svc("web").udp_port("dns", 53).node_port(30053);
    for (conf, service) in [(OVN, web()), ("", udp)] {
        let mut rig = Rig::new(conf);
        rig.sim.add_subnet(
            &rig.sim.network(),
            "sub6",
            "2001:db8::/64".parse().unwrap(),
            &[],
        );
        rig.apply(both(service)).await;
        assert!(
            refusal(&rig, "web").contains("no node has an IPv6 address"),
            "{}",
            refusal(&rig, "web")
        );
        assert_eq!(rig.writes(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_immutable_choice_is_reported() {
    for key in [
        "flavor-id",
        "availability-zone",
        "subnet-id",
        "network-id",
        "port-id",
        "lb-provider",
    ] {
        let mut rig = Rig::new("");
        rig.apply(web()).await;
        rig.forget();
        let other = "99999999-9999-4999-8999-999999999999";
        annotate(&mut rig, &[(key, other)]).await;
        let reported = remarks(&rig);
        assert!(
            reported.contains("was created with")
                && reported.contains(key)
                && reported.contains(other),
            "{key}: {reported}"
        );
        assert_eq!(rig.published("web").len(), 1);
        // The members' subnet follows the VIP's where none is named for them.
        if key != "subnet-id" {
            assert_eq!(rig.writes(), Vec::<String>::new(), "{key}");
        }
    }
    // What is as it was asked for, by whichever of its names, is not.
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let subnet = rig.sim.subnet();
    annotate(
        &mut rig,
        &[
            ("lb-provider", "octavia"),
            ("subnet-id", &subnet),
            ("flavor-id", ""),
        ],
    )
    .await;
    assert!(
        !remarks(&rig).contains("was created with"),
        "{}",
        remarks(&rig)
    );
}

#[tokio::test(start_paused = true)]
async fn f12_a_change_of_the_vip_is_refused_and_reported() {
    let internal = || {
        web().annotated(
            "service.beta.kubernetes.io/openstack-internal-load-balancer",
            "true",
        )
    };
    let mut rig = Rig::new("");
    rig.apply(internal().load_balancer_ip("10.0.0.50")).await;
    assert_eq!(rig.published("web"), ["10.0.0.50"]);
    rig.forget();
    rig.apply(internal().load_balancer_ip("10.0.0.51")).await;
    assert_eq!(rig.published("web"), ["10.0.0.50"]);
    assert!(
        remarks(&rig).contains("10.0.0.51") && remarks(&rig).contains("was created with 10.0.0.50"),
        "{}",
        remarks(&rig)
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
}

/// What the Service's events say of options that can't be followed.
fn remarks(rig: &Rig) -> String {
    rig.cluster.messages("OptionNotApplicable").join("; ")
}

#[tokio::test(start_paused = true)]
async fn g12_a_node_that_nothing_guards_is_no_member_of_a_port_with_source_ranges() {
    for strict in [true, false] {
        let mut rig = Rig::new(&format!("{OVN}\nmanage-security-groups=true"));
        rig.settings.strict_source_ranges = strict;
        let server = "00000000-0000-4000-8000-00000000000c";
        rig.sim
            .add_nic("c", server, "10.0.0.6".parse().unwrap(), false);
        let row = node("c", "10.0.0.6");
        let row = row.with(|row| row.provider_id = Some(format!("openstack:///{server}").into()));
        rig.cluster.put_node(row.row());
        rig.cluster.put_node(node("metal", "10.0.0.7").row());
        let service = svc("web").named_port("admin", 22).node_port(30022);
        let service = service.named_port("web", 80).node_port(30080);
        rig.apply(service.annotated("landfall.dev/source-ranges.admin", "10.0.0.0/8"))
            .await;
        let picture = rig.picture().await;
        assert_eq!(picture.members_at(80).len(), 4);
        let reported = rig
            .cluster
            .messages("LoadBalancerNodesUnguarded")
            .join("; ");
        assert_eq!(
            reported.contains("2 nodes are no members") && reported.contains("c, metal"),
            strict,
            "{reported}"
        );
        let guarded = ["10.0.0.4:30022", "10.0.0.5:30022"];
        assert_eq!(
            picture.members_at(22) == guarded,
            strict,
            "{:?}",
            picture.members_at(22)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn c17_a_rest_takes_no_address_from_a_service() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let published = rig.published("web");
    rig.sim.on_lock(|write, _| match write {
        "create" => Fate::BalancerError,
        _ => Fate::Active,
    });
    rig.sim.delete(picture.balancers[0].id.as_str());
    rig.wait(Duration::from_secs(2_000)).await;
    assert_eq!(rig.published("web"), published);
    rig.sim.on_lock(|_, _| Fate::Active);
    rig.wait(Duration::from_secs(700)).await;
    rig.settle().await;
    let after = rig.picture().await;
    assert_eq!(rig.published("web"), published);
    assert_eq!(after.floating_ips.len(), 1);
    assert_eq!(after.floating_ips[0].id, picture.floating_ips[0].id);
}

#[tokio::test(start_paused = true)]
async fn where_a_node_must_show_the_subnet_and_none_may_be_a_member_nothing_is_asked_for() {
    let (mut rig, _) = detecting(&[("a", "10.0.0.4")]);
    rig.apply(web().annotated(&short("node-selector"), "env=none"))
        .await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert!(
        refusal(&rig, "web").contains("no node"),
        "{}",
        refusal(&rig, "web")
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_port_does_not_prevent_finding_the_subnet() {
    let (mut rig, _) = detecting(&[]);
    let gone = node("a-gone", "10.0.0.9");
    let gone = gone.with(|row| {
        row.provider_id = Some("openstack:///00000000-0000-4000-8000-000000000009".into());
    });
    rig.cluster.put_node(gone.row());
    rig.add_node("b", "10.0.0.5");
    rig.apply(web()).await;
    assert_eq!(refusal(&rig, "web"), "");
    assert_eq!(
        subnet_of(&rig.picture().await, 80).unwrap().as_str(),
        rig.sim.subnet()
    );
}

#[tokio::test(start_paused = true)]
async fn only_members_follow_while_the_rest_is_refused() {
    // Monitors keep asking where they asked, and rules stay.
    let mut rig = Rig::new("create-monitor=true\nmanage-security-groups=true");
    rig.apply(web()).await;
    let rules = |groups: Vec<landfall_openstack::objects::SecurityGroup>| {
        let groups = groups.into_iter();
        groups.map(|it| it.rules.len()).sum::<usize>()
    };
    let before = rules(rig.picture().await.groups);
    let local = || {
        let local = web()
            .local()
            .with(|row| row.health_check_node_port = std::num::NonZeroU16::new(31_000));
        local.annotated(
            &short("default-tls-container-ref"),
            "http://barbican/v1/secrets/none",
        )
    };
    rig.forget();
    rig.apply(local()).await;
    assert_ne!(refusal(&rig, "web"), "");
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    let members = &picture.members[picture.pool_at(80).id.as_str()];
    assert_eq!(members.len(), 3);
    assert!(
        members.iter().all(|it| it.monitor_port.is_none()),
        "{members:?}"
    );
    assert!(
        members.iter().all(|it| it.subnet_id.is_some()),
        "{members:?}"
    );
    assert_eq!(rules(picture.groups), before);
    // Where all nodes go and come, members are where they are wanted.
    for name in ["a", "b", "c"] {
        rig.cluster.remove_node(name);
    }
    rig.settle().await;
    rig.add_node("d", "10.0.0.7");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80), ["10.0.0.7:30080"]);
    assert_eq!(subnet_of(&picture, 80).unwrap().as_str(), rig.sim.subnet());
}

#[tokio::test(start_paused = true)]
async fn f07_an_address_that_can_not_be_attached_does_not_cut_the_one_that_serves_over_and_over() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.published("web");
    let other = crate::addresses::floating_ip_by_hand(&rig, None).await;
    let path = format!("/v2.0/floatingips/{}", other.id);
    let put = format!("PUT {path}");
    rig.sim.on_call(move |call| {
        let hit = call.method == Method::PUT && call.path == path;
        let said = "it has port forwardings";
        hit.then(|| landfall_testkit::openstack::Fault::status(call.service, 409, said))
    });
    rig.forget();
    rig.apply(web().load_balancer_ip(&other.floating_ip_address.to_string()))
        .await;
    rig.wait(Duration::from_secs(1_800)).await;
    assert_eq!(rig.published("web"), before);
    assert_eq!(
        rig.writes().iter().filter(|it| **it == put).count(),
        1,
        "{:?}",
        rig.writes()
    );
    assert!(
        refusal(&rig, "web").contains("port forwardings"),
        "{}",
        refusal(&rig, "web")
    );
    rig.sim.on_call(|_| None);
    rig.wait(Duration::from_secs(3_600)).await;
    rig.settle().await;
    assert_eq!(
        rig.published("web"),
        [other.floating_ip_address.to_string()]
    );
}
