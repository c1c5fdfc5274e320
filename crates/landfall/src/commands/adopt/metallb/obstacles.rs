//! What has to be done beside the take-over, before and after it, each with its command. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::World;
use landfall_model::ServiceKey;
use landfall_model::rows::ServiceRow;
use landfall_speaker::comparison::Electorate;
use serde::Serialize;

use super::installed::{Installed, Part};
use crate::text::counted;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Obstacle {
    /// Why.
    pub what: String,
    /// The command, or what to do.
    pub remedy: String,
    /// Nothing is taken over before.
    pub blocks: bool,
    /// It goes with MetalLB itself, which is to run until the take-over.
    pub of_metallb: bool,
}

/// The longest list of Services in one line.
const NAMED: usize = 5;

/// Lets a `DaemonSet` run on no node, and is as easily undone.
const PARK: &str =
    r#"{"spec":{"template":{"spec":{"nodeSelector":{"landfall.dev/metallb":"off"}}}}}"#;

impl Obstacle {
    fn blocking(what: String, remedy: String) -> Self {
        Self {
            what,
            remedy,
            blocks: true,
            of_metallb: false,
        }
    }

    fn advice(what: String, remedy: String) -> Self {
        Self {
            blocks: false,
            ..Self::blocking(what, remedy)
        }
    }
}

/// Returns what has to be done before. `rows`: the Services that are taken over; `unserved`: those
/// of MetalLB that no instance on bare metal would serve; `writes_pools`: pools get an annotation.
pub fn first(
    installed: &Installed,
    rows: &[Arc<ServiceRow>],
    unserved: &[Arc<ServiceRow>],
    electorate: &Electorate,
    writes_pools: bool,
) -> Vec<Obstacle> {
    let mut first = Vec::new();
    first.extend(unread(installed));
    first.extend(outdated(installed));
    first.extend(of_other_classes(unserved));
    first.extend(without_routers(rows, electorate));
    first.extend(webhooks(installed, writes_pools));
    first.extend(conversion(installed));
    first.extend(running(installed));
    first
}

/// Returns what is to be done afterwards.
pub fn next(installed: &Installed) -> Vec<Obstacle> {
    let mut options = String::new();
    if installed.ignores_exclude_label {
        options.push_str(" --ignore-exclude-lb");
    }
    for pattern in &installed.excluded_interfaces {
        // Writing into a text can't fail.
        let _ = write!(options, " --exclude-interface='{pattern}'");
    }
    let with = if options.is_empty() {
        String::new()
    } else {
        format!(", with{options} as MetalLB's have them")
    };
    let namespace = &installed.namespace;
    let mut next = vec![Obstacle::advice(
        "Landfall's controllers go on from there".to_owned(),
        "start landfall controller with this configuration".to_owned(),
    )];
    let daemon_sets = installed.speaker.workloads.iter();
    for workload in daemon_sets.filter(|it| it.starts_with("daemonset/")) {
        next.push(Obstacle::advice(
            format!(
                "MetalLB's speakers announce on {} until Landfall's do; the two do not know of \
                 each other, so change all nodes at once",
                counted(installed.speaker.pods.len(), "node")
            ),
            format!("kubectl -n {namespace} patch {workload} --type merge -p '{PARK}'"),
        ));
    }
    next.push(Obstacle::advice(
        "Landfall's speakers announce".to_owned(),
        format!("kubectl apply -f deploy/speaker.yaml{with}"),
    ));
    next
}

/// Returns what starts MetalLB again.
pub fn start_again(installed: &Installed) -> Vec<Obstacle> {
    let namespace = &installed.namespace;
    vec![
        Obstacle::advice(
            "Landfall's speakers end, all of them".to_owned(),
            "kubectl delete -f deploy/speaker.yaml".to_owned(),
        ),
        Obstacle::advice(
            "MetalLB's speakers run on all nodes again".to_owned(),
            format!(
                "kubectl -n {namespace} patch daemonset speaker --type json -p \
                 '[{{\"op\":\"remove\",\"path\":\
                 \"/spec/template/spec/nodeSelector/landfall.dev~1metallb\"}}]'"
            ),
        ),
        Obstacle::advice(
            "MetalLB's controller finds the addresses in the status of the Services".to_owned(),
            format!("kubectl -n {namespace} scale deployment controller --replicas=1"),
        ),
        Obstacle::advice(
            "its webhooks, where they were deleted".to_owned(),
            "apply MetalLB's manifest or chart once more".to_owned(),
        ),
    ]
}

/// Returns what MetalLB would not go on with as it is: `rows` are the Services that are given back.
pub fn back(rows: &[Arc<ServiceRow>], electorate: &Electorate, world: &World) -> Vec<Obstacle> {
    let objects = world.pools().iter().filter(|row| row.resource.is_some());
    let objects: BTreeSet<&str> = objects.map(|row| row.name.as_str()).collect();
    let is_of_an_object = |address: IpAddr| {
        let pool = electorate.config().pools().pool_of(address);
        pool.is_some_and(|pool| objects.contains(pool.name().as_str()))
    };
    let mut holders: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for address in rows.iter().flat_map(|row| row.status.addresses()) {
        *holders.entry(address).or_default() += 1;
    }
    let shares = |address: IpAddr| holders.get(&address).is_some_and(|count| *count > 1);
    let mut back = Vec::new();
    let named_by = |lost: &dyn Fn(&ServiceRow, IpAddr) -> bool| {
        let lost = rows
            .iter()
            .filter(|row| row.status.addresses().any(|it| lost(row, it)));
        lost.map(|row| &row.key).collect::<Vec<_>>()
    };
    let without_pool = named_by(&|_, address| !is_of_an_object(address));
    if !without_pool.is_empty() {
        back.push(Obstacle::blocking(
            format!(
                "MetalLB would take the address of {} that is in no IPAddressPool object: {}",
                counted(without_pool.len(), "Service"),
                named(&without_pool)
            ),
            "create IPAddressPools for what landfall.yaml has under pools".to_owned(),
        ));
    }
    let keyless = named_by(&|row, address| {
        let keys = [
            "metallb.io/allow-shared-ip",
            "metallb.universe.tf/allow-shared-ip",
        ];
        shares(address) && !keys.iter().any(|key| row.annotations.contains_key(*key))
    });
    if !keyless.is_empty() {
        back.push(Obstacle::blocking(
            format!(
                "MetalLB would take the shared address of {} without its annotation: {}",
                counted(keyless.len(), "Service"),
                named(&keyless)
            ),
            "write metallb.io/allow-shared-ip beside landfall.dev/sharing-key".to_owned(),
        ));
    }
    back
}

/// Returns that MetalLB's controller runs, with the command that stops it.
pub fn running(installed: &Installed) -> Option<Obstacle> {
    let Part { workloads, pods } = &installed.controller;
    if !installed.controller.is_running() {
        return None;
    }
    let namespace = &installed.namespace;
    let names: Vec<&str> = workloads.iter().map(String::as_str).collect();
    let remedy = if names.is_empty() {
        let pods: Vec<&str> = pods.keys().map(String::as_str).collect();
        format!("kubectl -n {namespace} delete pod {}", pods.join(" "))
    } else {
        format!(
            "kubectl -n {namespace} scale {} --replicas=0",
            names.join(" ")
        )
    };
    Some(Obstacle {
        of_metallb: true,
        ..Obstacle::blocking(
            format!(
                "MetalLB's controller runs in {namespace} ({}): two controllers must never work \
                 on the same Services. Its speakers go on announcing without it",
                counted(pods.len(), "Pod")
            ),
            remedy,
        )
    })
}

/// Returns what could not be read: whether MetalLB runs is not known then.
fn unread(installed: &Installed) -> Vec<Obstacle> {
    let obstacle = |(why, is_needed): &(String, bool)| Obstacle {
        blocks: *is_needed,
        ..Obstacle::advice(
            why.clone(),
            "grant the right to this identity: what of MetalLB runs has to be known".to_owned(),
        )
    };
    installed.unread.iter().map(obstacle).collect()
}

fn outdated(installed: &Installed) -> Option<Obstacle> {
    (!installed.outdated.is_empty()).then(|| {
        Obstacle::advice(
            format!(
                "{} is not read: MetalLB 0.13 and later take IPAddressPools",
                installed.outdated.join(", ")
            ),
            "convert it with MetalLB's configmaptocrs if it is still meant".to_owned(),
        )
    })
}

/// Returns that Services of MetalLB would be left to no controller.
fn of_other_classes(unserved: &[Arc<ServiceRow>]) -> Vec<Obstacle> {
    let mut by_class: BTreeMap<Option<&str>, Vec<&ServiceKey>> = BTreeMap::new();
    for row in unserved.iter().filter(|row| row.wants_load_balancer) {
        let class = row.class.as_deref();
        by_class.entry(class).or_default().push(&row.key);
    }
    let obstacle = |(class, services): (Option<&str>, Vec<&ServiceKey>)| {
        let (of, remedy) = match class {
            Some(class) => (
                format!("have the class {class}"),
                format!("classNames: [{class}] for an instance with provider: metal"),
            ),
            None => (
                "have no class".to_owned(),
                "default: true for an instance with provider: metal".to_owned(),
            ),
        };
        let what = format!(
            "{} of MetalLB {of}, which no instance on bare metal serves: {}",
            counted(services.len(), "Service"),
            named(&services)
        );
        Obstacle::blocking(what, format!("write {remedy} into landfall.yaml"))
    };
    by_class.into_iter().map(obstacle).collect()
}

/// Returns the pools that only BGP would announce, and to no router.
fn without_routers(rows: &[Arc<ServiceRow>], electorate: &Electorate) -> Vec<Obstacle> {
    let config = electorate.config();
    if config.peers().next().is_some() {
        return Vec::new();
    }
    let is_alone = |row: &ServiceRow, address: IpAddr| {
        config.l2_of(address, &row.labels).is_empty()
            && !config.bgp_of(address, &row.labels).is_empty()
    };
    let mut by_pool: BTreeMap<String, BTreeSet<&ServiceKey>> = BTreeMap::new();
    for row in rows {
        for address in row.status.addresses().filter(|it| is_alone(row, *it)) {
            if let Some(pool) = config.pools().pool_of(address) {
                let services = by_pool.entry(pool.name().to_string()).or_default();
                services.insert(&row.key);
            }
        }
    }
    let obstacle = |(pool, services): (String, BTreeSet<&ServiceKey>)| {
        let services: Vec<&ServiceKey> = services.into_iter().collect();
        let what = format!(
            "{} of pool {pool} would not be announced: a BGPAdvertisement applies to them, no \
             L2Advertisement, and there is no BGPPeer: {}",
            counted(services.len(), "Service"),
            named(&services)
        );
        let remedy = format!("create a BGPPeer, or an L2Advertisement for pool {pool}");
        Obstacle::blocking(what, remedy)
    };
    by_pool.into_iter().map(obstacle).collect()
}

/// Returns that webhooks would refuse every change of MetalLB's resources.
fn webhooks(installed: &Installed, writes_pools: bool) -> Option<Obstacle> {
    let names: Vec<&str> = installed.webhooks.iter().map(String::as_str).collect();
    if names.is_empty() {
        return None;
    }
    let remedy = format!(
        "kubectl delete validatingwebhookconfiguration {}",
        names.join(" ")
    );
    let what = "MetalLB's webhooks refuse every change of its resources while its controller does \
                not run; its manifest or chart brings them back";
    let obstacle = Obstacle::advice(what.to_owned(), remedy);
    Some(Obstacle {
        blocks: writes_pools,
        of_metallb: true,
        ..obstacle
    })
}

fn conversion(installed: &Installed) -> Option<Obstacle> {
    installed.converts_peers.then(|| {
        let what = "BGPPeers that are stored in the version v1beta1 can't be read while MetalLB's \
                    controller, which converts them, does not run";
        Obstacle::advice(
            what.to_owned(),
            "kubectl apply -f deploy/crds.yaml".to_owned(),
        )
    })
}

fn named(services: &[&ServiceKey]) -> String {
    let mut text: Vec<String> = services
        .iter()
        .take(NAMED)
        .map(ToString::to_string)
        .collect();
    if services.len() > NAMED {
        text.push(format!("and {} more", services.len() - NAMED));
    }
    text.join(", ")
}
