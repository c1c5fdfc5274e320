//! Plans.

use landfall_model::{ServiceKey, Uid};

use super::*;
use crate::objects::{HealthcheckMode, LoadBalancerState, Protocol, Reference, Strategy};
use crate::record::Record;
use crate::target::WantedHealthcheck;

fn owner() -> Owner {
    Owner {
        cluster: "c1".to_owned(),
        uid: Uid::new("u1"),
        service: ServiceKey::new("default", "web"),
        record: None,
    }
}

fn port(port: u16) -> WantedService {
    WantedService {
        name: format!("u1-{port}"),
        description: String::new(),
        protocol: Protocol::Tcp,
        port,
        target_port: 30_000 + port,
        pool: Id::from("p"),
        strategy: Strategy::RoundRobin,
        healthcheck: WantedHealthcheck {
            mode: HealthcheckMode::Tcp,
            port: 30_000 + port,
            uri: None,
            interval: 10,
            timeout: 5,
            retries: 1,
            tls_sni: None,
        },
    }
}

fn wanted(ports: &[u16]) -> Wanted {
    Wanted {
        name: "k8s-u1".to_owned(),
        description: String::new(),
        external: false,
        services: ports.iter().map(|it| port(*it)).collect(),
        ports: ports.iter().map(|it| (*it, Protocol::Tcp)).collect(),
    }
}

/// The cloud after a plan for `wanted`.
fn made(wanted: &Wanted) -> LoadBalancer {
    let service = |it: &WantedService| LoadBalancerService {
        id: Id::from(format!("s{}", it.port).as_str()),
        name: it.name.clone(),
        description: it.description.clone(),
        protocol: it.protocol.clone(),
        port: it.port,
        target_port: it.target_port,
        strategy: it.strategy.clone(),
        instance_pool: Some(Reference {
            id: it.pool.clone(),
        }),
        healthcheck: it.healthcheck.body(),
        ..LoadBalancerService::default()
    };
    LoadBalancer {
        id: Id::from("lb"),
        name: wanted.name.clone(),
        description: wanted.description.clone(),
        state: LoadBalancerState::Running,
        labels: owner().labels(),
        services: wanted.services.iter().map(service).collect(),
        ..LoadBalancer::default()
    }
}

/// The changes in short.
fn steps(plan: &Plan<Change>) -> Vec<String> {
    let short = |change: &Change| match change {
        Change::CreateLoadBalancer { body } => format!("create {}", body.name),
        Change::UpdateLoadBalancer { body, .. } => format!("update {body:?}"),
        Change::ResetDescription { load_balancer } => format!("reset {load_balancer}"),
        Change::DeleteLoadBalancer { load_balancer } => format!("delete {load_balancer}"),
        Change::CreateService { body, .. } => {
            format!("add {} in {}", body.name, body.instance_pool.id)
        }
        Change::UpdateService { id, body, .. } => {
            let body = serde_json::to_value(body).unwrap();
            let fields: Vec<_> = body.as_object().unwrap().keys().cloned().collect();
            format!("change {} of {id}", fields.join(", "))
        }
        Change::ResetServiceDescription { id, .. } => format!("reset service {id}"),
        Change::DeleteService { id, .. } => format!("remove {id}"),
    };
    plan.steps.iter().map(|it| short(&it.step)).collect()
}

fn decided(wanted: &Wanted, have: Option<&LoadBalancer>, refused: &[Refused]) -> Decision {
    let mut decision = Decision {
        wanted: wanted.clone(),
        ..Decision::default()
    };
    match have {
        None => decision.create(&owner()),
        Some(have) => decision.change(&owner(), have, refused),
    }
    decision
}

fn planned(wanted: &Wanted, have: Option<&LoadBalancer>) -> (Vec<String>, Vec<Code>) {
    let decision = decided(wanted, have, &[]);
    let reasons = decision.remarks.iter().chain(&decision.refusals);
    (steps(&decision.plan), reasons.map(|it| it.code).collect())
}

fn only(steps: &[&str]) -> (Vec<String>, Vec<Code>) {
    (steps.iter().map(|it| (*it).to_owned()).collect(), vec![])
}

#[test]
fn what_is_as_wanted_needs_nothing_and_so_does_what_the_cloud_adds() {
    let want = wanted(&[80, 443]);
    assert_eq!(planned(&want, None), only(&["create k8s-u1"]));
    let mut have = made(&want);
    assert_eq!(planned(&want, Some(&have)), only(&[]));
    // Left from a check by HTTP.
    have.services[0].healthcheck.uri = Some("/".to_owned());
    have.services[0].healthcheck.retries = None;
    assert_eq!(planned(&want, Some(&have)), only(&[]));
    // Made by the reference.
    have.labels.clear();
    assert_eq!(planned(&want, Some(&have)), only(&[]));
    // Its user gave it another name, and does not any more: only the name showed whose it is.
    have.name = "web".to_owned();
    let (steps, remarks) = planned(&want, Some(&have));
    assert_eq!((steps.len(), remarks), (0, vec![Code::NotOurs]));
}

#[test]
fn a_port_that_goes_makes_room_for_the_one_that_comes() {
    let have = made(&wanted(&[80, 443]));
    let plan = planned(&wanted(&[443, 8080]), Some(&have));
    assert_eq!(plan, only(&["remove s80", "add u1-8080 in p"]));
}

#[test]
fn a_new_node_port_is_one_change_in_place() {
    let mut want = wanted(&[80]);
    let have = made(&want);
    want.services[0].target_port = 31_000;
    want.services[0].healthcheck.port = 31_000;
    let plan = planned(&want, Some(&have));
    assert_eq!(plan, only(&["change healthcheck, target-port of s80"]));
}

#[test]
fn another_pool_replaces_each_service_and_keeps_the_nlb() {
    let mut want = wanted(&[80, 443]);
    let have = made(&want);
    want.services
        .iter_mut()
        .for_each(|it| it.pool = Id::from("q"));
    let plan = planned(&want, Some(&have));
    assert_eq!(plan, only(&["remove s80"]));
    // The next port follows when the first one is served by the new pool.
    let mut moving = have.clone();
    let first = moving.services.remove(0);
    assert_eq!(planned(&want, Some(&moving)), only(&["add u1-80 in q"]));
    moving.services.push(LoadBalancerService {
        instance_pool: Some(Reference { id: Id::from("q") }),
        ..first
    });
    assert_eq!(planned(&want, Some(&moving)), only(&["remove s443"]));
}

#[test]
fn what_the_cloud_refuses_is_left_out_and_node_ports_follow() {
    let mut want = wanted(&[80]);
    let have = made(&want);
    want.services[0].target_port = 31_000;
    want.services[0].healthcheck.port = 31_000;
    want.services[0].strategy = Strategy::SourceHash;
    let whole = decided(&want, Some(&have), &[]).plan.steps.remove(0).step;
    let reason = Reason::error(Code::OptionNotSupported, "no");
    let refused = |change: &Change| Refused {
        change: change.clone(),
        reason: reason.clone(),
        before: None,
    };
    let decision = decided(&want, Some(&have), &[refused(&whole)]);
    assert_eq!(
        steps(&decision.plan),
        ["change healthcheck, target-port of s80"]
    );
    assert_eq!(decision.refusals, std::slice::from_ref(&reason));
    let following = &decision.plan.steps[0].step;
    let both = [refused(&whole), refused(following)];
    assert!(decided(&want, Some(&have), &both).plan.is_empty());
}

#[test]
fn what_belongs_to_others_is_never_touched() {
    let mut have = made(&wanted(&[22, 80]));
    for service in &mut have.services {
        service.name = format!("ssh-{}", service.port);
    }
    let want = wanted(&[80, 443]);
    // Of its own NLB the Service has each port that it asks for.
    let result = planned(&want, Some(&have));
    assert_eq!(result, only(&["change name of s80", "add u1-443 in p"]));
    // An NLB with the id of another Service, or of a cluster with the same name.
    have.name = "theirs".to_owned();
    have.labels
        .insert(crate::ownership::CLUSTER.to_owned(), "c2".to_owned());
    let result = planned(&want, Some(&have));
    let expected = vec![Code::NotOurs, Code::PortInUse];
    assert_eq!(result, (vec!["add u1-443 in p".to_owned()], expected));
    assert_eq!(steps_of_removal(&have), Vec::<String>::new());
    // What is on record is ours, whatever its name.
    let owner = recorded(&have, false, &["s22"]);
    assert_eq!(steps_of(&owner, &have), ["remove s22"]);
}

/// The Service with a record of an NLB.
fn recorded(have: &LoadBalancer, own: bool, services: &[&str]) -> Owner {
    let record = Record {
        load_balancer: have.id.clone(),
        own,
        inferred: None,
        services: services.iter().map(|id| Id::from(*id)).collect(),
        given: false,
    };
    Owner {
        record: Some(record),
        ..owner()
    }
}

fn steps_of(owner: &Owner, have: &LoadBalancer) -> Vec<String> {
    let intent = Intent::removal(owner.service.clone(), owner.uid.clone());
    let mut plan = Plan::default();
    removal(&mut plan, &intent, owner, have);
    steps(&plan)
}

fn steps_of_removal(have: &LoadBalancer) -> Vec<String> {
    steps_of(&owner(), have)
}

#[test]
fn what_was_once_used_as_the_nlb_of_others_stays_theirs() {
    let want = wanted(&[80]);
    let mut have = made(&want);
    have.labels.clear();
    have.name = "k8s-u1".to_owned();
    let owner = recorded(&have, false, &["s80"]);
    assert_eq!(steps_of(&owner, &have), ["remove s80"]);
    assert_eq!(
        steps_of(&recorded(&have, true, &[]), &have),
        ["remove s80", "delete lb"]
    );
}

#[test]
fn a_removal_leaves_nothing_of_ours_and_all_of_others() {
    let mut have = made(&wanted(&[80, 443]));
    assert_eq!(
        steps_of_removal(&have),
        ["remove s80", "remove s443", "delete lb"]
    );
    have.services[0].name = "u10-80".to_owned();
    assert_eq!(steps_of_removal(&have), ["remove s443"]);
}

#[test]
fn a_description_is_changed_and_emptied() {
    let mut want = wanted(&[80]);
    let mut have = made(&want);
    have.description = "old".to_owned();
    have.services[0].description = "old".to_owned();
    assert_eq!(
        planned(&want, Some(&have)),
        only(&["reset lb", "reset service s80"])
    );
    want.description = "new".to_owned();
    want.services[0].description = "new".to_owned();
    let (steps, _) = planned(&want, Some(&have));
    assert!(
        steps[0].contains("description: Some(\"new\")"),
        "{}",
        steps[0]
    );
    assert_eq!(steps[1..], ["change description of s80"]);
}
