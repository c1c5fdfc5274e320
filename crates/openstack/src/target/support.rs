//! What is asked for and what the load balancer's provider, or Octavia's version, can't do: refused
//! where a user would rely on it, reported where it can be left out.

use landfall_model::dialect::Given;
use landfall_model::listener::{AllowedSources, ProxyProtocol, Timeouts};
use landfall_model::rows::Family;
use landfall_model::{Code, Listener, Protocol, Reason};

use super::{ListenerBuilder, WantedListener};
use crate::objects::ListenerProtocol;

impl ListenerBuilder<'_> {
    /// What the provider of the load balancer can't do.
    pub(super) fn check(&mut self, listener: &Listener, protocol: &ListenerProtocol) {
        let features = self.features;
        let key = listener.key;
        if features.ovn
            && !matches!(
                protocol,
                ListenerProtocol::Tcp | ListenerProtocol::Udp | ListenerProtocol::Sctp
            )
        {
            self.refuse(format!(
                "the provider ovn forwards bytes unchanged, and port {key} needs {protocol}"
            ));
        }
        match listener.pool.proxy_protocol {
            Some(_) if features.ovn => {
                self.refuse("the provider ovn sends no PROXY headers".to_owned());
            }
            Some(_) if key.protocol != Protocol::Tcp => self.refuse(format!(
                "Octavia sends PROXY headers on TCP only, and port {key} is {}",
                key.protocol
            )),
            Some(ProxyProtocol::V2) if !features.proxy_v2() => self.refuse(format!(
                "PROXY headers of version 2 need version 2.22 of Octavia's API; this one has {}",
                features.version()
            )),
            _ => {}
        }
        if key.protocol == Protocol::Sctp && !features.sctp() {
            self.refuse(format!(
                "SCTP needs version 2.23 of Octavia's API; this one has {}",
                features.version()
            ));
        }
        if features.ovn && listener.connection_limit.is_some() {
            self.remark(Reason::warning(
                Code::OptionNotSupported,
                "the provider ovn has no connection limit",
            ));
        }
        if self.is_restricted(&listener.allowed) && !features.allowed_cidrs() {
            self.check_unfiltered();
        }
        if !features.timeouts() && listener.timeouts != Timeouts::default() {
            let why = self.lacks("timeouts of listeners", "2.1");
            self.lacking(why);
        }
        if features.ovn && listener.said.weights {
            self.lacking("the provider ovn has no weights of members".to_owned());
        }
        if features.ovn && listener.said.backups {
            self.lacking("the provider ovn has no backup members".to_owned());
        }
    }

    /// What concerns the Service as a whole.
    pub(super) fn check_service(&mut self, wanted: &[WantedListener]) {
        let asks = |given: &&Given<String>| !given.value.is_empty();
        let cloud = &self.intent.extensions.openstack;
        if let Some(given) = cloud.flavor.as_ref().filter(asks)
            && !self.features.flavors()
        {
            let reason = Reason::warning(
                Code::OptionNotSupported,
                self.lacks("flavors of load balancers", "2.6"),
            );
            self.remark(
                reason
                    .at_annotation(&given.annotation)
                    .value(given.value.as_str())
                    .remedy("remove it, or choose another provider of Octavia"),
            );
        }
        self.check_pods();
        self.check_unused(wanted);
    }

    /// All clients of the Service's families are all: others have no address to connect to.
    fn is_restricted(&self, allowed: &AllowedSources) -> bool {
        let AllowedSources::Only(prefixes) = allowed else {
            return false;
        };
        let whole = |family: &Family| {
            let mut prefixes = prefixes.iter();
            prefixes.any(|it| it.prefix_len() == 0 && Family::of(it.addr()) == *family)
        };
        !self.choice.families.iter().all(whole)
    }

    /// Why the load balancer has something not.
    pub(super) fn lacks(&self, what: &str, since: &str) -> String {
        if self.features.ovn {
            format!("the provider ovn has no {what}")
        } else {
            format!(
                "{what} need version {since} of Octavia's API; this one has {}",
                self.features.version()
            )
        }
    }

    /// What was asked for of this Service and is left out.
    pub(super) fn lacking(&mut self, why: String) {
        self.remark(
            Reason::warning(Code::OptionNotSupported, why)
                .remedy("remove the option, or choose another provider of Octavia"),
        );
    }

    /// OVN keeps the client's address, so that groups on the nodes can filter; otherwise nothing
    /// does.
    fn check_unfiltered(&mut self) {
        if self.features.ovn && self.settings.conf.manage_security_groups && !self.has_pods() {
            return;
        }
        let why = if self.features.ovn && self.has_pods() {
            "the provider ovn does not filter by source, and security groups of pods are not \
            managed"
                .to_owned()
        } else if self.features.ovn {
            "the provider ovn does not filter by source, and security groups are not managed"
                .to_owned()
        } else {
            format!(
                "source ranges need version 2.12 of Octavia's API; this one has {}",
                self.features.version()
            )
        };
        if self.settings.strict_source_ranges {
            self.remark(
                Reason::error(Code::SourceRangesNotEnforced, why)
                    .at("spec.loadBalancerSourceRanges")
                    .remedy(
                        "set manage-security-groups for the provider ovn, choose another provider, \
                        or set strictSourceRanges to false to expose the Service to all clients",
                    ),
            );
        } else {
            self.remark(
                Reason::warning(Code::SourceRangesNotEnforced, why)
                    .at("spec.loadBalancerSourceRanges"),
            );
        }
    }
}
