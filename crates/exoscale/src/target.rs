//! What shall exist for a Service. Pure.
//!
//! What is refused stands in `refusals`, and the value that is in use stays in its place: in this
//! port's NLB service, or in another one of the Service. So no mistake in an option keeps ports and
//! NodePorts from following the Service. Where no value is in use, the NLB service is left out.

mod healthcheck;

use landfall_model::dialect::ExoscaleOptions;
use landfall_model::intent::LoadBalancerSpec;
use landfall_model::listener::Algorithm;
use landfall_model::rows::Family;
use landfall_model::{Code, Intent, Listener, Reason};

use crate::objects::{
    CreateService, Id, LoadBalancer, LoadBalancerService, Protocol, Reference, Strategy,
};
use crate::options;
use crate::ownership::Owner;
use crate::settings::Settings;

pub use healthcheck::WantedHealthcheck;

/// The NLB of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Its description; empty: none.
    pub description: String,
    /// It was made by others: it is never created, renamed or deleted.
    pub external: bool,
    /// Its services, in the order of the Service's ports.
    pub services: Vec<WantedService>,
    /// All ports of the Service, also those that can't be had.
    pub ports: Vec<(u16, Protocol)>,
}

/// An NLB service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedService {
    /// Its name.
    pub name: String,
    /// Its description; empty: none.
    pub description: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port on the NLB's address.
    pub port: u16,
    /// The `NodePort`.
    pub target_port: u16,
    /// The pool, which exists.
    pub pool: Id,
    /// How an instance is chosen.
    pub strategy: Strategy,
    /// The health check, with all that its mode needs.
    pub healthcheck: WantedHealthcheck,
}

/// What shall exist, and what of the Service can't.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub wanted: Wanted,
    /// Why something can't be had. Nothing is created as long as there is any.
    pub refusals: Vec<Reason>,
    /// What the user should know of what can be had.
    pub remarks: Vec<Reason>,
}

/// The most services of an NLB.
pub const MAX_SERVICES: usize = 10;

/// What a target is made from.
pub(crate) struct Build<'a> {
    pub intent: &'a Intent,
    pub spec: &'a LoadBalancerSpec,
    pub settings: &'a Settings,
    pub owner: &'a Owner,
    /// The pool, or why none is known.
    pub pool: &'a Result<Id, Box<Reason>>,
    pub have: Option<&'a LoadBalancer>,
}

// === impl Build ===

impl Build<'_> {
    /// Returns what shall exist.
    pub fn target(&self) -> Target {
        let mut target = Target::default();
        let options = self.options();
        target.wanted = Wanted {
            name: self.name(&mut target),
            description: self.description(&mut target),
            external: options.external.as_ref().is_some_and(|it| it.value),
            ..Wanted::default()
        };
        let no_pool = self.pool.as_ref().err();
        target.refusals.extend(no_pool.map(|it| (**it).clone()));
        self.families(&mut target);
        for key in &self.spec.order {
            let listeners = self.spec.listeners.iter();
            let mut listeners = listeners.filter(|it| it.key == *key);
            let (Some(listener), Some(protocol)) = (listeners.next(), protocol(key.protocol))
            else {
                continue;
            };
            let port = (key.port.get(), protocol);
            target.wanted.ports.push(port.clone());
            let service = self.service(listener, port, &mut target);
            target.wanted.services.extend(service);
        }
        self.bound(&mut target);
        once(&mut target.refusals);
        once(&mut target.remarks);
        target
    }

    fn options(&self) -> &ExoscaleOptions {
        &self.intent.extensions.exoscale
    }

    fn is_own(&self, service: &LoadBalancerService) -> bool {
        let have = self.have;
        have.is_some_and(|have| self.owner.owns_service(have, service))
    }

    fn name(&self, target: &mut Target) -> String {
        let given = options::text(self.options().name.as_ref(), 1);
        let name = take(given, target, || self.have.map(|it| it.name.clone()));
        name.unwrap_or_else(|| self.owner.load_balancer_name())
    }

    fn description(&self, target: &mut Target) -> String {
        let given = options::text(self.options().description.as_ref(), 0);
        let kept = || self.have.map(|it| it.description.clone());
        take(given, target, kept).unwrap_or_default()
    }

    fn families(&self, target: &mut Target) {
        let families = &self.spec.address.families;
        if !families.contains(&Family::V6) {
            return;
        }
        let message = "a Network Load Balancer has an IPv4 address only";
        let reason = if families.contains(&Family::V4) {
            let reason = Reason::warning(Code::NoAddressOfFamily, message);
            reason.remedy("no action is needed unless clients use IPv6")
        } else {
            let reason = Reason::error(Code::NoAddressOfFamily, message);
            reason.remedy("add IPv4 to spec.ipFamilies")
        };
        let reason = reason.at("spec.ipFamilies");
        if families.contains(&Family::V4) {
            target.remarks.push(reason);
        } else {
            target.refusals.push(reason);
        }
    }

    /// Returns the NLB service of a port; `None`: it can't be had.
    fn service(
        &self,
        listener: &Listener,
        (port, protocol): (u16, Protocol),
        target: &mut Target,
    ) -> Option<WantedService> {
        let services = self.have.map_or(&[][..], |it| &it.services);
        let own = services
            .iter()
            .find(|it| (it.port, &it.protocol) == (port, &protocol));
        // Options hold for all ports alike.
        let in_use = own.or_else(|| services.iter().find(|it| self.is_own(it)));
        let target_port = self.node_port(listener, own, target);
        let strategy = match self.strategy(listener) {
            Ok(strategy) => Some(strategy),
            Err(reason) => {
                target.refusals.push(*reason);
                in_use.map(|it| it.strategy.clone())
            }
        };
        let healthcheck = match self.healthcheck(listener, &protocol, target_port?, target) {
            Ok(healthcheck) => Some(healthcheck),
            Err(reasons) => {
                target.refusals.extend(reasons);
                in_use.map(|it| WantedHealthcheck::kept(it, target_port.unwrap_or_default()))
            }
        };
        let (name, description) = self.texts(port, &protocol, own, target);
        let pool = own.and_then(|it| it.instance_pool.as_ref());
        let pool = self.pool.as_ref().ok().or(pool.map(|it| &it.id));
        Some(WantedService {
            name,
            description,
            protocol,
            port,
            target_port: target_port?,
            pool: pool?.clone(),
            strategy: strategy?,
            healthcheck: healthcheck?,
        })
    }

    /// Returns the port on the instances: as long as no node is a member, what is in use.
    fn node_port(
        &self,
        listener: &Listener,
        own: Option<&LoadBalancerService>,
        target: &mut Target,
    ) -> Option<u16> {
        if let Some(member) = listener.pool.members.first() {
            return Some(member.address.port());
        }
        let reason = if self.spec.nodes.is_empty() {
            let reason = Reason::error(
                Code::NoEligibleNodes,
                "no node is eligible as a member, so no traffic can be forwarded",
            );
            reason.remedy("check which nodes are excluded by labels or are being deleted")
        } else {
            let message = format!("port {} has no NodePort", listener.key);
            let reason = Reason::error(Code::InvalidField, message).at("spec.ports");
            reason.remedy("set spec.allocateLoadBalancerNodePorts to true")
        };
        target.refusals.push(reason);
        own.map(|it| it.target_port)
    }

    fn strategy(&self, listener: &Listener) -> Result<Strategy, Box<Reason>> {
        let given = options::strategy(self.options())?;
        match listener.pool.algorithm {
            Algorithm::RoundRobin => Ok(given.unwrap_or(Strategy::RoundRobin)),
            Algorithm::SourceIp => Ok(Strategy::SourceHash),
            Algorithm::LeastConnections | Algorithm::SourceIpPort => {
                let message = "a Network Load Balancer chooses by round robin or by source";
                let reason = Reason::error(Code::OptionNotSupported, message);
                let reason = reason.at_annotation("landfall.dev/algorithm");
                Err(Box::new(reason.remedy("write round-robin or source-ip")))
            }
        }
    }

    /// Returns name and description, which can only be given for the port of a Service with one.
    fn texts(
        &self,
        port: u16,
        protocol: &Protocol,
        own: Option<&LoadBalancerService>,
        target: &mut Target,
    ) -> (String, String) {
        let suffix = if *protocol == Protocol::Udp {
            "-udp"
        } else {
            ""
        };
        let default = format!("{}-{port}{suffix}", self.owner.uid);
        if self.spec.order.len() != 1 {
            return (default, String::new());
        }
        let options = self.options();
        let name = options::text(options.service_name.as_ref(), 1);
        let name = take(name, target, || own.map(|it| it.name.clone()));
        let description = options::text(options.service_description.as_ref(), 0);
        let kept = || own.map(|it| it.description.clone());
        let description = take(description, target, kept);
        (name.unwrap_or(default), description.unwrap_or_default())
    }

    /// Drops what an NLB has no room for: what is there stays, then the first ports do.
    fn bound(&self, target: &mut Target) {
        let have = self.have.map_or(&[][..], |it| &it.services);
        let ports = &target.wanted.ports;
        let is_of = |it: &&LoadBalancerService| ports.contains(&(it.port, it.protocol.clone()));
        let others = have
            .iter()
            .filter(|it| !is_of(it) && !self.is_own(it))
            .count();
        let services = &mut target.wanted.services;
        let is_there = |want: &WantedService| have.iter().any(|it| want.is(it));
        let there = services.iter().filter(|it| is_there(it)).count();
        let mut room = MAX_SERVICES.saturating_sub(others + there);
        let before = services.len();
        services.retain(|want| {
            is_there(want) || {
                let fits = room > 0;
                room = room.saturating_sub(1);
                fits
            }
        });
        if services.len() == before {
            return;
        }
        let message = format!(
            "{} ports; the load balancer has room for {}",
            ports.len(),
            MAX_SERVICES.saturating_sub(others)
        );
        let reason = Reason::error(Code::LimitReached, message).at("spec.ports");
        let remedy = format!(
            "a Network Load Balancer has at most {MAX_SERVICES} ports: use a second Service for \
             the others"
        );
        target.refusals.push(reason.remedy(remedy));
    }
}

// === impl WantedService ===

impl WantedService {
    /// Returns whether an NLB service is that of this port.
    pub fn is(&self, service: &LoadBalancerService) -> bool {
        (service.port, &service.protocol) == (self.port, &self.protocol)
    }

    /// Returns whether an NLB service differs from it in nothing.
    pub(crate) fn equals(&self, service: &LoadBalancerService) -> bool {
        self.is(service)
            && service.name == self.name
            && service.description == self.description
            && service.target_port == self.target_port
            && service.strategy == self.strategy
            && service.instance_pool.as_ref().map(|it| &it.id) == Some(&self.pool)
            && self.healthcheck.is(&service.healthcheck)
    }

    /// Returns the request that creates it.
    pub fn create(&self) -> CreateService {
        let description = Some(self.description.clone());
        CreateService {
            name: self.name.clone(),
            description: description.filter(|text| !text.is_empty()),
            instance_pool: Reference {
                id: self.pool.clone(),
            },
            protocol: self.protocol.clone(),
            strategy: self.strategy.clone(),
            port: self.port,
            target_port: self.target_port,
            healthcheck: self.healthcheck.body(),
        }
    }
}

/// Returns the API's word for a protocol, if it has one.
pub(crate) fn protocol(protocol: landfall_model::Protocol) -> Option<Protocol> {
    match protocol {
        landfall_model::Protocol::Tcp => Some(Protocol::Tcp),
        landfall_model::Protocol::Udp => Some(Protocol::Udp),
        landfall_model::Protocol::Sctp => None,
    }
}

/// Returns what was given; what is refused is noted, and what is in use is kept.
fn take<T>(
    parsed: options::Parsed<T>,
    target: &mut Target,
    kept: impl FnOnce() -> Option<T>,
) -> Option<T> {
    parsed.unwrap_or_else(|reason| {
        target.refusals.push(*reason);
        kept()
    })
}

/// Ports share their options: each reason once.
fn once(reasons: &mut Vec<Reason>) {
    let mut once = Vec::with_capacity(reasons.len());
    for reason in std::mem::take(reasons) {
        if !once.contains(&reason) {
            once.push(reason);
        }
    }
    *reasons = once;
}

#[cfg(test)]
mod tests;
