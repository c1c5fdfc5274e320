//! From what exists to what shall. Pure.

use landfall_model::plan::{Plan, Upcoming};
use landfall_model::{Code, Intent, Reason};

use crate::objects::{
    CreateLoadBalancer, Id, LoadBalancer, LoadBalancerService, LoadBalancerState,
    UpdateLoadBalancer, UpdateService,
};
use crate::observed::{Observed, Refused};
use crate::options;
use crate::ownership::Owner;
use crate::settings::Settings;
use crate::step::{Change, Step};
use crate::target::{Build, Target, Wanted, WantedService};
use crate::waits;

/// What is to be done for a Service, and what of it can't be had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    pub plan: Plan<Change>,
    pub wanted: Wanted,
    /// Why something can't be had.
    pub refusals: Vec<Reason>,
    /// What the user should know of what can be had.
    pub remarks: Vec<Reason>,
}

/// Returns what is to be done for a Service.
///
/// # Errors
/// All reasons why it can't be had, where nothing of it exists.
pub(crate) fn plan(
    intent: &Intent,
    have: &Observed,
    settings: &Settings,
) -> Result<Plan<Step>, Vec<Reason>> {
    let mut plan = Plan::default();
    if let Some(wait) = &have.pending {
        plan.waits.push(wait.clone());
        return Ok(steps(intent, plan));
    }
    let Some(decision) = decide(intent, have, settings) else {
        for load_balancer in have.found.iter().chain(&have.surplus) {
            removal(&mut plan, intent, &have.owner, load_balancer);
        }
        return Ok(steps(intent, plan));
    };
    let Some(found) = &have.found else {
        let mut refusals = decision.refusals;
        refusals.extend(have.missing.clone());
        if !refusals.is_empty() {
            return Err(refusals);
        }
        return Ok(steps(intent, decision.plan));
    };
    match found.state {
        LoadBalancerState::Creating | LoadBalancerState::Deleting => {
            plan.waits.push(waits::of_state(found));
            Ok(steps(intent, plan))
        }
        _ => Ok(steps(intent, decision.plan)),
    }
}

/// Decides what shall be, and what is to be done toward it; `None`: nothing shall be.
pub(crate) fn decide(intent: &Intent, have: &Observed, settings: &Settings) -> Option<Decision> {
    let spec = intent.load_balancer.as_ref()?;
    let build = Build {
        intent,
        spec,
        settings,
        owner: &have.owner,
        pool: &have.pool,
        have: have.found.as_ref(),
    };
    let Target {
        wanted,
        refusals,
        remarks,
    } = build.target();
    let mut decision = Decision {
        wanted,
        refusals,
        remarks,
        ..Decision::default()
    };
    decision.given_id(intent, have);
    match &have.found {
        None => decision.create(&have.owner),
        Some(found) => decision.change(&have.owner, found, &have.refused),
    }
    Some(decision)
}

fn steps(intent: &Intent, plan: Plan<Change>) -> Plan<Step> {
    let service = &intent.uid;
    let mut all = Plan::default();
    for planned in plan.steps {
        let step = Step {
            service: service.clone(),
            change: planned.step,
        };
        all.push(step, planned.because);
    }
    all.waits = plan.waits;
    all.upcoming = plan.upcoming;
    all
}

/// Plans that nothing is left of a Service in an NLB.
fn removal(plan: &mut Plan<Change>, intent: &Intent, owner: &Owner, have: &LoadBalancer) {
    if have.state == LoadBalancerState::Deleting {
        plan.waits.push(waits::of_state(have));
        return;
    }
    let options = &intent.extensions.exoscale;
    let external = options.external.as_ref().is_some_and(|it| it.value);
    let name = options.name.as_ref().map(|it| it.value.clone());
    let name = name.unwrap_or_else(|| owner.load_balancer_name());
    let is_own = |it: &&LoadBalancerService| owner.owns_service(have, it);
    let load_balancer = &have.id;
    for service in have.services.iter().filter(is_own) {
        let change = Change::DeleteService {
            load_balancer: load_balancer.clone(),
            id: service.id.clone(),
        };
        plan.push(change, "the Service needs none");
    }
    let empty = have.services.iter().all(|it| owner.owns_service(have, it));
    if !external && empty && owner.owns(have, &name) {
        let load_balancer = load_balancer.clone();
        let change = Change::DeleteLoadBalancer { load_balancer };
        plan.push(change, "the Service needs none");
    }
}

// === impl Decision ===

impl Decision {
    /// Refuses an invalid id. Nothing is created for it: a person meant an NLB that is there.
    fn given_id(&mut self, intent: &Intent, have: &Observed) {
        let given = intent.extensions.exoscale.load_balancer.as_ref();
        if let (Err(reason), None) = (options::id(given), &have.missing) {
            self.refusals.push(*reason);
        }
    }

    fn create(&mut self, owner: &Owner) {
        if self.wanted.external {
            return;
        }
        let description = Some(self.wanted.description.clone());
        let body = CreateLoadBalancer {
            name: self.wanted.name.clone(),
            description: description.filter(|text| !text.is_empty()),
            labels: owner.labels(),
        };
        // Its services follow when its id is known.
        let change = Change::CreateLoadBalancer { body };
        self.plan.push(change, "the Service has no load balancer");
    }

    fn change(&mut self, owner: &Owner, have: &LoadBalancer, refused: &[Refused]) {
        let own = owner.owns(have, &self.wanted.name);
        if own && !self.wanted.external {
            self.properties(owner, have);
        } else if !self.wanted.external {
            let message = format!("load balancer {} was not made for this Service", have.name);
            let reason = Reason::warning(Code::NotOurs, message);
            let remedy = "it is neither renamed nor deleted; set \
                          service.beta.kubernetes.io/exoscale-loadbalancer-external to true to \
                          confirm that";
            self.remarks.push(reason.remedy(remedy));
        }
        // First what goes: there is room for few.
        for service in &have.services {
            let port = (service.port, service.protocol.clone());
            if !self.wanted.ports.contains(&port) && owner.owns_service(have, service) {
                let change = Change::DeleteService {
                    load_balancer: have.id.clone(),
                    id: service.id.clone(),
                };
                self.plan.push(change, "the Service has no such port");
            }
        }
        for want in std::mem::take(&mut self.wanted.services) {
            let found = have.services.iter().find(|it| want.is(it));
            let taken = found.filter(|it| !owner.may_change(have, it, own) && !want.equals(it));
            if let Some(service) = taken {
                let port = format!("{}/{}", want.port, want.protocol);
                let message = format!("{port} of load balancer {} is {}", have.name, service.name);
                let reason = Reason::error(Code::PortInUse, message).at("spec.ports");
                let remedy = "choose another port, or remove that service";
                self.refusals.push(reason.remedy(remedy));
            } else {
                let mut want = want.clone();
                if let Some((reason, pool)) = pool_refusal(&want, found, refused) {
                    self.refusals.push(reason);
                    want.pool = pool;
                }
                let mut pools = have
                    .services
                    .iter()
                    .filter_map(|it| it.instance_pool.as_ref());
                let proven = pools.any(|it| it.id == want.pool);
                service(&mut self.plan, &have.id, &want, found, proven);
            }
            self.wanted.services.push(want);
        }
        self.without_refused(have, refused);
    }

    /// Name, description and labels of an NLB of ours.
    fn properties(&mut self, owner: &Owner, have: &LoadBalancer) {
        let wanted = &self.wanted;
        let mut body = UpdateLoadBalancer::default();
        if have.name != wanted.name {
            body.name = Some(wanted.name.clone());
        }
        if have.description != wanted.description && !wanted.description.is_empty() {
            body.description = Some(wanted.description.clone());
        }
        let load_balancer = have.id.clone();
        if body != UpdateLoadBalancer::default() {
            // Labels are only written with what is due anyway: taking over needs no write.
            let mut labels = have.labels.clone();
            labels.extend(owner.labels());
            body.labels = Some(labels).filter(|labels| *labels != have.labels);
            let change = Change::UpdateLoadBalancer {
                load_balancer: load_balancer.clone(),
                body,
            };
            self.plan
                .push(change, "its name or description is another one");
        }
        if wanted.description.is_empty() && !have.description.is_empty() {
            let change = Change::ResetDescription { load_balancer };
            self.plan.push(change, "it shall have no description");
        }
    }

    /// Takes out what the cloud has refused. What else follows the Service does so nevertheless:
    /// `NodePorts`, without the options that may be the cause.
    fn without_refused(&mut self, have: &LoadBalancer, refused: &[Refused]) {
        for mut planned in std::mem::take(&mut self.plan.steps) {
            let of = |change: &Change| refused.iter().find(|it| it.change == *change);
            if let Some(refusal) = of(&planned.step) {
                self.refusals.push(refusal.reason.clone());
                match following(&planned.step, have) {
                    Some(change) if of(&change).is_none() => planned.step = change,
                    _ => continue,
                }
            }
            self.plan.steps.push(planned);
        }
    }
}

/// Returns why an NLB service can't get its instance pool, and the one that it keeps: the cloud has
/// refused to delete it, or a port with that pool, for which it would be deleted. One that is gone
/// for the sake of another pool gets the one that it had.
fn pool_refusal(
    want: &WantedService,
    have: Option<&LoadBalancerService>,
    refused: &[Refused],
) -> Option<(Reason, Id)> {
    let refusal = refused.iter().find(|it| match &it.change {
        Change::CreateService { body, .. } => {
            let same_port = (body.port, &body.protocol) == (want.port, &want.protocol);
            (same_port || have.is_some()) && body.instance_pool.id == want.pool
        }
        Change::DeleteService { id, .. } => have.is_some_and(|have| have.id == *id),
        _ => false,
    })?;
    let pool = match have {
        Some(have) => have.instance_pool.as_ref().map(|it| &it.id),
        None => refusal.before.as_ref(),
    };
    let pool = pool.filter(|it| **it != want.pool)?;
    Some((refusal.reason.clone(), pool.clone()))
}

/// Plans one port; `proven`: the NLB has a service of the wanted instance pool.
fn service(
    plan: &mut Plan<Change>,
    load_balancer: &Id,
    want: &WantedService,
    have: Option<&LoadBalancerService>,
    proven: bool,
) {
    let create = || Change::CreateService {
        load_balancer: load_balancer.clone(),
        body: want.create(),
    };
    let Some(have) = have else {
        plan.push(create(), "the Service has this port");
        return;
    };
    let (load_balancer, id) = (load_balancer.clone(), have.id.clone());
    if have.instance_pool.as_ref().map(|it| &it.id) != Some(&want.pool) {
        // A pool can't be changed, and two can't have one port.
        let what = create().to_string();
        let change = Change::DeleteService { load_balancer, id };
        // One port after the other, and while the cloud may refuse the pool, only the first one.
        let wants_pool = |change: &Change| {
            let Change::CreateService { body, .. } = change else {
                return false;
            };
            body.instance_pool.id == want.pool
        };
        let tried = plan.steps.iter().any(|it| wants_pool(&it.step));
        if plan.upcoming.is_empty() && (proven || !tried) {
            plan.push(change, "it has another instance pool");
        } else {
            let because = "it has another instance pool";
            let what = change.to_string();
            plan.upcoming.push(Upcoming { what, because });
        }
        let because = "it gets another instance pool";
        plan.upcoming.push(Upcoming { what, because });
        return;
    }
    let describe = have.description != want.description && !want.description.is_empty();
    let body = UpdateService {
        name: (have.name != want.name).then(|| want.name.clone()),
        description: describe.then(|| want.description.clone()),
        strategy: (have.strategy != want.strategy).then(|| want.strategy.clone()),
        target_port: (have.target_port != want.target_port).then_some(want.target_port),
        healthcheck: (!want.healthcheck.is(&have.healthcheck)).then(|| want.healthcheck.body()),
        ..UpdateService::default()
    };
    if body != UpdateService::default() {
        let change = Change::UpdateService {
            load_balancer: load_balancer.clone(),
            id: id.clone(),
            body,
        };
        plan.push(change, "it differs from the Service");
    }
    if want.description.is_empty() && !have.description.is_empty() {
        let change = Change::ResetServiceDescription { load_balancer, id };
        plan.push(change, "it shall have no description");
    }
}

/// Returns of a change of an NLB service what follows the `NodePort`, with all options as they are.
fn following(change: &Change, have: &LoadBalancer) -> Option<Change> {
    let Change::UpdateService {
        load_balancer,
        id,
        body,
    } = change
    else {
        return None;
    };
    let service = have.services.iter().find(|it| it.id == *id)?;
    let target_port = body.target_port?;
    let mut healthcheck = service.healthcheck.clone();
    let follows = healthcheck.port == Some(service.target_port);
    healthcheck.port = follows.then_some(target_port);
    let change = Change::UpdateService {
        load_balancer: load_balancer.clone(),
        id: id.clone(),
        body: UpdateService {
            target_port: Some(target_port),
            healthcheck: follows.then_some(healthcheck),
            ..UpdateService::default()
        },
    };
    Some(change)
}

#[cfg(test)]
mod tests;
