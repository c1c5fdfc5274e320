//! Nodes with several addresses, of which one is in the subnet of the members.

use landfall_testkit::node;

use crate::create::web;
use crate::rig::Rig;

/// The default world with a second network in which nodes are known.
fn rig(conf: &str) -> Rig {
    let rig = Rig::new(conf);
    let other = rig.sim.add_network("other", false);
    let cidr = "192.168.7.0/24".parse().unwrap();
    rig.sim.add_subnet(&other, "other", cidr, &[]);
    rig
}

/// A node that is known by its address in the other network.
fn add_known_elsewhere(rig: &mut Rig, name: &str, known: &str, inside: Option<&str>) {
    rig.add_node(name, known);
    if let Some(inside) = inside {
        let server = rig.servers[name].clone();
        rig.sim
            .add_nic(name, &server, inside.parse().unwrap(), true);
    }
}

fn port_lists(rig: &Rig) -> usize {
    let calls = rig.calls();
    let lists = calls.iter().filter(|it| it.starts_with("GET /v2.0/ports"));
    lists.count()
}

#[tokio::test(start_paused = true)]
async fn a_node_is_reached_at_its_address_in_the_subnet_of_the_members() {
    let mut rig = rig("");
    add_known_elsewhere(&mut rig, "c", "192.168.7.9", Some("10.0.0.9"));
    rig.apply(web()).await;
    assert_eq!(
        rig.picture().await.members_at(80),
        ["10.0.0.4:30080", "10.0.0.5:30080", "10.0.0.9:30080"]
    );
    assert_eq!(port_lists(&rig), 1);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    // One that comes later is looked for in a new list.
    add_known_elsewhere(&mut rig, "d", "192.168.7.10", Some("10.0.0.10"));
    rig.settle().await;
    assert_eq!(
        rig.picture().await.members_at(80),
        [
            "10.0.0.10:30080",
            "10.0.0.4:30080",
            "10.0.0.5:30080",
            "10.0.0.9:30080"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_without_an_address_there_keeps_the_one_it_is_known_by() {
    let mut rig = rig("");
    add_known_elsewhere(&mut rig, "c", "192.168.7.9", None);
    // Nor is anything known of one that is no server of the project.
    rig.cluster.put_node(node("d", "192.168.9.9").row());
    rig.apply(web()).await;
    assert_eq!(
        rig.picture().await.members_at(80),
        [
            "10.0.0.4:30080",
            "10.0.0.5:30080",
            "192.168.7.9:30080",
            "192.168.9.9:30080"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_port_can_not_be_seen_is_reached_at_the_address_that_it_lists_there() {
    let mut rig = rig("");
    let ours = node("c", "192.168.7.9").with(|row| {
        row.provider_id = Some("openstack:///another-project".into());
        row.addresses.push("10.0.0.9".parse().unwrap());
    });
    rig.cluster.put_node(ours.row());
    let metal = node("d", "192.168.9.9").with(|row| {
        row.addresses.push("fd00::9".parse().unwrap());
        row.addresses.push("10.0.0.10".parse().unwrap());
    });
    rig.cluster.put_node(metal.row());
    // A port that can be seen is certain: this address is in another network that looks the same.
    add_known_elsewhere(&mut rig, "e", "192.168.7.11", None);
    let server = rig.servers["e"].clone();
    let seen = node("e", "192.168.7.11").with(|row| {
        row.provider_id = Some(format!("openstack:///{server}").into());
        row.addresses.push("10.0.0.11".parse().unwrap());
    });
    rig.cluster.put_node(seen.row());
    rig.apply(web()).await;
    assert_eq!(
        rig.picture().await.members_at(80),
        [
            "10.0.0.10:30080",
            "10.0.0.4:30080",
            "10.0.0.5:30080",
            "10.0.0.9:30080",
            "192.168.7.11:30080"
        ]
    );
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn where_all_nodes_are_known_inside_ports_are_not_asked_for() {
    let mut rig = rig("");
    rig.sim.add_nic(
        "a",
        &rig.servers["a"].clone(),
        "192.168.7.4".parse().unwrap(),
        true,
    );
    rig.apply(web()).await;
    assert_eq!(
        rig.picture().await.members_at(80),
        ["10.0.0.4:30080", "10.0.0.5:30080"]
    );
    assert_eq!(port_lists(&rig), 0);
}

#[tokio::test(start_paused = true)]
async fn the_port_with_that_address_gets_the_security_group() {
    let mut rig = rig("manage-security-groups=true");
    add_known_elsewhere(&mut rig, "c", "192.168.7.9", Some("10.0.0.9"));
    rig.apply(web()).await;
    let group = rig.picture().await.groups[0].id.to_string();
    let mut guarded: Vec<String> = rig
        .sim
        .ports()
        .iter()
        .filter(|port| {
            let groups = port["security_groups"].as_array().unwrap();
            groups.iter().any(|it| *it == group.as_str())
        })
        .map(|port| {
            port["fixed_ips"][0]["ip_address"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    guarded.sort();
    assert_eq!(guarded, ["10.0.0.4", "10.0.0.5", "10.0.0.9"]);
}
