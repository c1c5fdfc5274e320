//! Services that come, share a load balancer, leave it, move or go, while one write is refused,
//! whichever: what serves others goes on and follows nodes, what the Service itself has goes on as
//! far as it is still wanted, nothing is made twice, nothing is left behind, and the rest is done
//! once the cloud takes it.

use landfall_model::rows::FamilyPolicy;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::svc;

use crate::addresses::{INTERNAL, floating_ip_by_hand, lb};
use crate::dual::{old_octavia, with_both};
use crate::each_write::{REFUSALS, Write, refuse_nth, served, service};
use crate::rig::{Picture, Rig};
use crate::subnets::dual;
use crate::written::refusal;

/// What is done while a write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// A Service comes.
    Create,
    /// The same, with one call for each object.
    CreateSerial,
    /// A Service of two families comes, and gets two load balancers.
    CreateTwo,
    /// A Service begins to share a load balancer.
    Join,
    /// One that shares gets another port, and loses one.
    ChangeShared,
    /// One that shares goes.
    Leave,
    /// The one for which a shared load balancer was made goes.
    OwnerLeaves,
    /// The last one goes, for which it was not made.
    LastLeaves,
    /// A Service goes.
    Remove,
    /// The same, without a cascade.
    RemovePiecewise,
    /// A Service of two load balancers goes.
    RemoveTwo,
    /// A Service is no longer internal.
    Expose,
    /// A Service becomes internal.
    Hide,
    /// Another address is asked for.
    MoveAddress,
    /// The cluster gets another name.
    Rename,
}

const GROUPS: &str = "create-monitor=true\nmanage-security-groups=true";

/// The Service whose load balancer no flow touches.
fn bystander() -> ServiceBuilder {
    svc("other").port(90).node_port(30_090)
}

fn sharer(rig: &Rig, ports: std::ops::Range<u16>) -> ServiceBuilder {
    let row = rig.cluster.service("web").unwrap();
    let id = row.annotations[&lb("load-balancer-id")].clone();
    let service = ports.fold(svc("second"), |service, number| {
        let port = service.named_port(&format!("p{number}"), 8080 + number);
        port.node_port(31_080 + number)
    });
    service.annotated(&lb("load-balancer-id"), &id)
}

// === impl Flow ===

impl Flow {
    fn world(self) -> Rig {
        match self {
            Self::CreateTwo | Self::RemoveTwo => {
                let rig = old_octavia("");
                with_both(&rig);
                rig
            }
            Self::CreateSerial => Rig::new(&format!(
                "{GROUPS}\nprovider-requires-serial-api-calls=true"
            )),
            Self::RemovePiecewise => Rig::new(&format!("{GROUPS}\ncascade-delete=false")),
            _ => Rig::new(GROUPS),
        }
    }

    /// What there is before.
    async fn begin(self, rig: &mut Rig) {
        rig.apply(bystander()).await;
        match self {
            Self::Create | Self::CreateSerial | Self::CreateTwo => {}
            Self::Join
            | Self::Remove
            | Self::RemovePiecewise
            | Self::Hide
            | Self::MoveAddress
            | Self::Rename => rig.apply(service(0..2)).await,
            Self::Expose => rig.apply(service(0..2).annotated(INTERNAL, "true")).await,
            Self::RemoveTwo => rig.apply(dual(FamilyPolicy::RequireDualStack)).await,
            Self::ChangeShared | Self::Leave | Self::OwnerLeaves | Self::LastLeaves => {
                rig.apply(service(0..2)).await;
                rig.apply(sharer(rig, 0..2)).await;
                if self == Self::LastLeaves {
                    rig.delete("web").await;
                }
            }
        }
        assert_eq!(refusal(rig, "other"), "", "{self:?}");
    }

    /// The address that the Service is going to ask for, where the flow is about that.
    async fn address(self, rig: &Rig) -> String {
        if self != Self::MoveAddress {
            return String::new();
        }
        let by_hand = floating_ip_by_hand(rig, None).await;
        by_hand.floating_ip_address.to_string()
    }

    async fn act(self, rig: &mut Rig, address: &str) {
        match self {
            Self::Create | Self::CreateSerial | Self::Expose => rig.apply(service(0..2)).await,
            Self::CreateTwo => rig.apply(dual(FamilyPolicy::RequireDualStack)).await,
            Self::Join => rig.apply(sharer(rig, 0..2)).await,
            Self::ChangeShared => rig.apply(sharer(rig, 1..3)).await,
            Self::Leave | Self::LastLeaves => rig.delete("second").await,
            Self::OwnerLeaves | Self::Remove | Self::RemovePiecewise | Self::RemoveTwo => {
                rig.delete("web").await;
            }
            Self::Hide => rig.apply(service(0..2).annotated(INTERNAL, "true")).await,
            Self::MoveAddress => rig.apply(service(0..2).load_balancer_ip(address)).await,
            Self::Rename => {
                rig.kill();
                "c2".clone_into(&mut rig.settings.cluster);
                rig.restart().await;
            }
        }
    }

    /// The Service that the flow is about.
    fn of(self) -> &'static str {
        match self {
            Self::Join | Self::ChangeShared | Self::Leave | Self::LastLeaves => "second",
            _ => "web",
        }
    }

    /// The ports that were served before, and go on.
    fn kept(self) -> &'static [u16] {
        match self {
            Self::Create
            | Self::CreateSerial
            | Self::CreateTwo
            | Self::Remove
            | Self::RemovePiecewise
            | Self::RemoveTwo
            | Self::LastLeaves => &[90],
            Self::Join
            | Self::Leave
            | Self::Expose
            | Self::Hide
            | Self::MoveAddress
            | Self::Rename => &[80, 81, 90],
            Self::ChangeShared => &[80, 81, 90, 8081],
            Self::OwnerLeaves => &[90, 8080, 8081],
        }
    }

    fn removes(self) -> bool {
        match self {
            Self::Leave
            | Self::OwnerLeaves
            | Self::LastLeaves
            | Self::Remove
            | Self::RemovePiecewise
            | Self::RemoveTwo => true,
            Self::Create
            | Self::CreateSerial
            | Self::CreateTwo
            | Self::Join
            | Self::ChangeShared
            | Self::Expose
            | Self::Hide
            | Self::MoveAddress
            | Self::Rename => false,
        }
    }
}

/// What is in the project, without ids.
fn outline(picture: &Picture) -> Vec<String> {
    let mut lines = Vec::new();
    for balancer in &picture.balancers {
        let here = |parents: &[landfall_openstack::objects::Ref]| {
            parents.iter().any(|it| it.id == balancer.id)
        };
        let mut tags = balancer.tags.clone();
        tags.sort();
        let name = &balancer.name;
        lines.push(format!("{name} {tags:?}"));
        let floating = picture.floating_ips.iter();
        let floating = floating.filter(|it| it.port_id == balancer.vip_port_id);
        let floating: Vec<&str> = floating.map(|it| &*it.description).collect();
        lines.push(format!("{name} {floating:?}"));
        let pools = picture.pools.iter().filter(|it| here(&it.loadbalancers));
        lines.push(format!("{name} has {} pools", pools.count()));
        for listener in picture
            .listeners
            .iter()
            .filter(|it| here(&it.loadbalancers))
        {
            let pool = listener.default_pool_id.as_ref();
            let members = pool.and_then(|it| picture.members.get(it.as_str()));
            let mut members: Vec<String> = members
                .into_iter()
                .flatten()
                .map(|it| format!("{}:{}", it.address.unwrap(), it.protocol_port))
                .collect();
            members.sort();
            lines.push(format!(
                "{} {} {:?} {members:?}",
                listener.name, listener.protocol_port, listener.tags
            ));
        }
    }
    lines.push(format!("{} monitors", picture.monitors.len()));
    lines.push(format!("{} floating IPs", picture.floating_ips.len()));
    for group in &picture.groups {
        lines.push(format!("{} with {} rules", group.name, group.rules.len()));
    }
    lines.sort();
    lines
}

/// The writes of a flow that nothing disturbs; and what there is in the end.
async fn undisturbed(flow: Flow) -> (usize, Vec<String>) {
    let mut rig = flow.world();
    flow.begin(&mut rig).await;
    let address = flow.address(&rig).await;
    rig.forget();
    flow.act(&mut rig, &address).await;
    rig.settle().await;
    let writes = rig.sent().len();
    if flow.removes() {
        assert!(rig.cluster.service(flow.of()).is_none(), "{flow:?}");
    } else {
        assert_eq!(refusal(&rig, flow.of()), "", "{flow:?}");
    }
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    (writes, outline(&rig.picture().await))
}

/// Which of these ports are not served by all three nodes.
fn not_followed(flow: Flow, picture: &Picture) -> Vec<String> {
    let now = served(picture);
    let port = |port: &u16| {
        let members = now.iter().find(|(it, _)| it == port);
        let members = members.map_or(&[][..], |(_, members)| members);
        let all = ["10.0.0.4:", "10.0.0.5:", "10.0.0.6:"].map(|node| {
            let mut members = members.iter();
            members.any(|it| it.starts_with(node))
        });
        (all != [true; 3]).then(|| format!("port {port} has {members:?}"))
    };
    flow.kept().iter().filter_map(port).collect()
}

/// Refuses one write of a flow and all like it, and reads what becomes of the rest.
async fn attack(
    flow: Flow,
    nth: usize,
    with: (u16, &'static str),
    wanted: &[String],
) -> Option<String> {
    let mut rig = flow.world();
    flow.begin(&mut rig).await;
    let address = flow.address(&rig).await;
    rig.forget();
    let refused = refuse_nth(&rig, nth, with);
    flow.act(&mut rig, &address).await;
    rig.settle().await;
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let write: Write = refused.lock().unwrap().clone()?;
    let picture = rig.picture().await;
    let mut faults = not_followed(flow, &picture);
    let now = outline(&picture);
    let row = rig.cluster.service(flow.of());
    let mut reported = row
        .as_ref()
        .map_or(String::new(), |_| refusal(&rig, flow.of()));
    if flow == Flow::Rename {
        // It is about all of them.
        reported.push_str(&refusal(&rig, "other"));
    }
    let failed = rig.cluster.events();
    let failed = failed.iter().any(|it| {
        it.starts_with(flow.of()) && (it.ends_with("Failed") || it.contains("Conflicting"))
    });
    let context = format!("{flow:?} {nth} {with:?} {write:?}: {reported}; {now:#?}");
    if now != *wanted && reported.is_empty() && !failed {
        faults.push("nothing is reported".to_owned());
    }
    // What is still to be removed is not forgotten.
    let of_group = write.line.contains("/security-group") || write.line.contains("/ports/");
    if flow.removes() && row.is_none() && now != *wanted && !of_group {
        faults.push("the Service is gone, and something of it is left".to_owned());
    }
    let published = rig.published(flow.of());
    let goes_on = matches!(
        flow,
        Flow::ChangeShared | Flow::Expose | Flow::Hide | Flow::MoveAddress | Flow::Rename
    );
    if goes_on && published.len() != 1 {
        faults.push(format!("published is {published:?}"));
    }
    let names = |option: &str| reported.contains(option);
    if !reported.is_empty() && !options(flow, &write).iter().copied().any(names) {
        faults.push("no option is named".to_owned());
    }
    // Once the cloud takes it, it is had: what was refused is forgotten by a process that begins.
    rig.sim.on_call(|_| None);
    rig.restart().await;
    let last = outline(&rig.picture().await);
    if last != *wanted {
        faults.push(format!("at last {last:#?}"));
    }
    if flow.removes() && rig.cluster.service(flow.of()).is_some() {
        faults.push("the Service never goes".to_owned());
    }
    (!faults.is_empty()).then(|| format!("{context}\n   {}", faults.join("\n   ")))
}

/// What a Reason names when such a write is refused: one of the options that it sets. Those by
/// which a load balancer as a whole is made are many, so that only the cloud's words name it.
fn options(flow: Flow, write: &Write) -> &'static [&'static str] {
    let is = |text: &str| write.line.contains(text);
    if is("/security-group") || is("/ports/") {
        &["manage-security-groups"]
    } else if is("/floatingips") {
        match flow {
            Flow::MoveAddress => &["spec.loadBalancerIP", "addresses"],
            Flow::Hide => &[""],
            _ => &["floating-network-id", "quota", "Quota"],
        }
    } else if flow == Flow::Rename {
        &["cluster-name", "spec.ports", ""]
    } else if write.line.starts_with("PUT /v2/lbaas/loadbalancers/") {
        &["load-balancer-id"]
    } else if write.line == "POST /v2/lbaas/loadbalancers" {
        &[""]
    } else {
        &["spec.ports", "node-selector", "enable-health-monitor"]
    }
}

async fn attack_all(flows: &[Flow]) {
    let mut faults = Vec::new();
    for flow in flows {
        let (writes, wanted) = undisturbed(*flow).await;
        assert!(writes > 0, "{flow:?}");
        for nth in 0..writes {
            // With each of them for every write it takes six times as long.
            let with = REFUSALS[nth % REFUSALS.len()];
            faults.extend(attack(*flow, nth, with, &wanted).await);
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_service_that_comes_is_all_that_it_lacks() {
    attack_all(&[Flow::Create, Flow::CreateTwo]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_among_single_calls_is_all_that_a_service_lacks() {
    attack_all(&[Flow::CreateSerial]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_one_that_shares_touches_no_other() {
    attack_all(&[Flow::Join, Flow::ChangeShared]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_one_that_leaves_touches_no_other() {
    attack_all(&[Flow::Leave, Flow::OwnerLeaves, Flow::LastLeaves]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_removal_leaves_nothing_in_the_end() {
    attack_all(&[Flow::Remove, Flow::RemovePiecewise, Flow::RemoveTwo]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_addresses_keeps_no_member_from_following_nodes() {
    attack_all(&[Flow::Expose, Flow::Hide, Flow::MoveAddress]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_change_of_name_keeps_no_member_from_following_nodes() {
    attack_all(&[Flow::Rename]).await;
}
