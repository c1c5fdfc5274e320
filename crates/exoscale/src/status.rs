//! What can be said of a Service in the observed state. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_model::dialect::exoscale::{INSTANCE_POOL_ID, LOAD_BALANCER_ID};
use landfall_model::provider::ProviderStatus;
use landfall_model::status::{IngressAddress, IpMode, RECORD};
use landfall_model::{Code, Intent, Reason};

use crate::objects::{HealthcheckResult, Id, LoadBalancer, LoadBalancerState};
use crate::observed::Observed;
use crate::options;
use crate::plan::{self, Decision};
use crate::record::{Record, is_given};
use crate::settings::Settings;

/// Returns how far a Service is.
pub(crate) fn status(intent: &Intent, have: &Observed, settings: &Settings) -> ProviderStatus {
    let mut status = ProviderStatus::default();
    let (Some(spec), Some(decision)) =
        (&intent.load_balancer, plan::decide(intent, have, settings))
    else {
        return status;
    };
    status.remarks.clone_from(&decision.remarks);
    let Some(found) = &have.found else {
        // Why there is none, planning reports.
        status.marks.clone_from(&intent.marks);
        return status;
    };
    status.remarks.extend(decision.refusals.iter().cloned());
    status.marks = marks(intent, have, &decision, found);
    status.remarks.extend(corrected_id(intent, have, found));
    for other in &have.surplus {
        let message = format!(
            "load balancer {} has NLB services of the Service, too",
            other.id
        );
        let reason = Reason::warning(Code::NotOurs, message);
        status
            .remarks
            .push(reason.remedy("it is not used any more, and is deleted with the Service"));
    }
    match found.state {
        LoadBalancerState::Error => {
            let message = format!("Exoscale reports load balancer {} as broken", found.id);
            let reason = Reason::error(Code::LoadBalancerFailed, message);
            let remedy = "ask Exoscale's support, or delete it: Landfall creates another one";
            status.waiting.push(reason.remedy(remedy));
        }
        LoadBalancerState::Creating | LoadBalancerState::Deleting => {
            status.waiting.push(progressing(found));
            return status;
        }
        _ => {}
    }
    let Some(ip) = found.ip else {
        status.waiting.push(progressing(found));
        return status;
    };
    let hostname = spec.hostname.clone();
    let ip = hostname.is_none().then_some(IpAddr::V4(ip));
    status.ingress.push(IngressAddress {
        ip_mode: ip.map(|_| IpMode::Vip),
        ip,
        hostname,
        ports: Vec::new(),
    });
    if have.pending.is_some() || !decision.plan.steps.is_empty() {
        status.waiting.push(progressing(found));
    } else {
        let unserved = unserved(&decision, have, found);
        status.waiting.extend(unserved);
        status.waiting.extend(without_members(&decision, found));
    }
    status
}

/// Returns why the annotation with the id does not stay as it is, if a person wrote it: neither is
/// it the id of the NLB that is used, nor that of the one that was used before. What is no id at
/// all is refused.
fn corrected_id(intent: &Intent, have: &Observed, found: &LoadBalancer) -> Option<Reason> {
    let given = intent.extensions.exoscale.load_balancer.as_ref()?;
    let id = options::id(Some(given)).ok().flatten()?;
    let was_used = have.owner.record.as_ref().map(|it| &it.load_balancer);
    if id == found.id || was_used == Some(&id) {
        return None;
    }
    let message = format!(
        "the zone has no such load balancer; the Service keeps load balancer {}",
        found.id
    );
    let reason =
        Reason::warning(Code::CloudObjectNotFound, message).at_annotation(&given.annotation);
    let remedy = "write the id of one that exists in the zone of the instance";
    Some(reason.value(given.value.as_str()).remedy(remedy))
}

/// Returns the ports without an NLB service of the Service: why, a refusal says.
fn unserved(decision: &Decision, have: &Observed, found: &LoadBalancer) -> Vec<Reason> {
    let own = have.owner.owns(found, &decision.wanted.name);
    let wanted = decision.wanted.services.iter();
    let unserved = wanted.filter(|want| {
        !found
            .services
            .iter()
            .any(|it| want.is(it) && (have.owner.may_change(found, it, own) || want.equals(it)))
    });
    unserved
        .map(|want| {
            let (port, protocol) = (want.port, &want.protocol);
            let message = format!(
                "load balancer {} has no service for port {port}/{protocol}",
                found.id
            );
            Reason::info(Code::Progressing, message)
        })
        .collect()
}

fn progressing(found: &LoadBalancer) -> Reason {
    let message = format!("Exoscale is working on load balancer {}", found.id);
    Reason::info(Code::Progressing, message)
}

/// Returns the ports whose instances all fail their health checks.
fn without_members(decision: &Decision, found: &LoadBalancer) -> Vec<Reason> {
    let wanted = decision.wanted.services.iter();
    let services = wanted.filter_map(|want| found.services.iter().find(|it| want.is(it)));
    let down = services.filter(|it| {
        let mut health = it.healthcheck_status.iter();
        !it.healthcheck_status.is_empty()
            && health.all(|it| it.status == Some(HealthcheckResult::Failure))
    });
    down.map(|it| {
        let (port, protocol) = (it.port, &it.protocol);
        let message = format!("all instances fail the health check of port {port}/{protocol}");
        let remedy = "check the pods, and whether the security group of the instances admits the \
                      health checks";
        Reason::warning(Code::NoHealthyMembers, message).remedy(remedy)
    })
    .collect()
}

/// Returns the annotations that the Service shall have.
fn marks(
    intent: &Intent,
    have: &Observed,
    decision: &Decision,
    found: &LoadBalancer,
) -> BTreeMap<String, String> {
    let own = !decision.wanted.external && have.owner.owns(found, &decision.wanted.name);
    let given = !own && is_given(intent);
    let services = found.services.iter().filter(|service| {
        service.id != Id::default()
            && decision.wanted.services.iter().any(|it| it.is(service))
            && (have.owner.may_change(found, service, own)
                || decision.wanted.services.iter().any(|it| it.equals(service)))
    });
    let leaving = found.services.iter().filter(|it| {
        let record = have.owner.record.as_ref();
        record.is_some_and(|record| record.services.contains(&it.id))
    });
    let inferred = have.pool.as_ref().ok().filter(|_| have.inferred);
    let before = have.owner.record.as_ref();
    let record = Record {
        load_balancer: found.id.clone(),
        own,
        inferred: inferred.cloned().or_else(|| {
            before
                .and_then(|it| it.inferred.clone())
                .filter(|_| have.inferred)
        }),
        services: services.chain(leaving).map(|it| it.id.clone()).collect(),
        given,
    };
    let mut marks = BTreeMap::from([(RECORD.to_owned(), record.to_string())]);
    if !given {
        marks.insert(LOAD_BALANCER_ID.to_owned(), found.id.to_string());
    }
    let as_it_is = intent.extensions.exoscale.instance_pool.as_ref();
    let pool = match &have.pool {
        Ok(pool) => Some(pool.to_string()),
        Err(_) => as_it_is.map(|it| it.value.clone()),
    };
    marks.extend(pool.map(|pool| (INSTANCE_POOL_ID.to_owned(), pool)));
    marks
}
