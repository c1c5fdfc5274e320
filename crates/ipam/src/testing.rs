//! Builders for this crate's tests.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::rows::Family;
use landfall_model::{ListenerKey, Protocol, ServiceKey, Uid};

use crate::{
    Addresses, AllocationSpec, Allocator, BackendKey, Claimant, Decision, ExpressionSpec, Labels,
    Pool, PoolName, PoolSet, PoolSpec, Proposal, Refusal, Request, SelectorSpec, SharingKey, Terms,
    WantedFamilies,
};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// `"10.0.0.1 fd00::1"`: the addresses in it.
pub(crate) fn ips(text: &str) -> Addresses {
    text.split_whitespace().map(ip).collect()
}

pub(crate) fn name(text: &str) -> PoolName {
    PoolName::new(text)
}

pub(crate) fn labels(text: &str) -> Labels {
    text.split_whitespace()
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

pub(crate) fn selector(text: &str) -> SelectorSpec {
    SelectorSpec {
        match_labels: labels(text),
        match_expressions: Vec::new(),
    }
}

pub(crate) fn exists(key: &str) -> SelectorSpec {
    let expression = ExpressionSpec {
        key: key.into(),
        operator: "Exists".into(),
        values: Vec::new(),
    };
    SelectorSpec {
        match_labels: Labels::new(),
        match_expressions: vec![expression],
    }
}

/// A pool of the entries in `text`, which are separated by commas.
pub(crate) fn pool(name: &str, text: &str) -> PoolSpec {
    PoolSpec::new(name, text.split(',').map(str::trim))
}

impl PoolSpec {
    pub(crate) fn manual(mut self) -> Self {
        self.auto_assign = false;
        self
    }

    pub(crate) fn avoiding(mut self) -> Self {
        self.avoid_buggy_ips = true;
        self
    }

    pub(crate) fn across_namespaces(mut self) -> Self {
        self.share_across_namespaces = true;
        self
    }

    pub(crate) fn per_namespace(mut self, most: u32) -> Self {
        self.addresses_per_namespace = Some(most);
        self
    }

    pub(crate) fn allocation(&mut self) -> &mut AllocationSpec {
        self.allocation.get_or_insert_default()
    }

    pub(crate) fn priority(mut self, priority: i64) -> Self {
        self.allocation().priority = priority;
        self
    }

    pub(crate) fn namespace(mut self, namespace: &str) -> Self {
        self.allocation().namespaces.push(namespace.into());
        self
    }

    pub(crate) fn namespaces_with(mut self, spec: SelectorSpec) -> Self {
        self.allocation().namespace_selectors.push(spec);
        self
    }

    pub(crate) fn services_with(mut self, spec: SelectorSpec) -> Self {
        self.allocation().service_selectors.push(spec);
        self
    }
}

pub(crate) fn pool_set<const N: usize>(specs: [PoolSpec; N]) -> PoolSet {
    PoolSet::new(
        specs
            .into_iter()
            .map(|spec| Pool::parse(&spec).unwrap())
            .collect(),
    )
    .unwrap()
}

pub(crate) fn allocator<const N: usize>(specs: [PoolSpec; N]) -> Allocator {
    Allocator::new(pool_set(specs))
}

/// A Service `default/NAME`, or `NAMESPACE/NAME`, on TCP 80, that wants one IPv4 address.
pub(crate) fn svc(name: &str) -> Request {
    let service: ServiceKey = name
        .parse()
        .unwrap_or_else(|_| ServiceKey::new("default", name));
    let claimant = Claimant {
        uid: Uid::new(&format!("uid-of-{service}")),
        service,
        terms: Terms {
            key: None,
            backend: BackendKey::Cluster,
            ports: tcp(&[80]),
        },
    };
    Request::new(claimant, WantedFamilies::Only(Family::V4))
}

pub(crate) fn tcp(numbers: &[u16]) -> std::collections::BTreeSet<ListenerKey> {
    numbers
        .iter()
        .map(|number| ListenerKey {
            protocol: Protocol::Tcp,
            port: (*number).try_into().unwrap(),
        })
        .collect()
}

impl Request {
    pub(crate) fn uid(&self) -> &Uid {
        &self.claimant.uid
    }

    fn with_terms(mut self, change: impl FnOnce(&mut Terms)) -> Self {
        change(&mut Arc::make_mut(&mut self.claimant).terms);
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.with_terms(|terms| terms.key = SharingKey::new(key))
    }

    pub(crate) fn ports(self, numbers: &[u16]) -> Self {
        self.with_terms(|terms| terms.ports = tcp(numbers))
    }

    pub(crate) fn udp(self, number: u16) -> Self {
        let port = ListenerKey {
            protocol: Protocol::Udp,
            port: number.try_into().unwrap(),
        };
        self.with_terms(|terms| terms.ports = [port].into())
    }

    pub(crate) fn local(self, selector: &str) -> Self {
        self.with_terms(|terms| terms.backend = BackendKey::local(&labels(selector)))
    }

    pub(crate) fn asks(mut self, addresses: &str) -> Self {
        self.addresses = ips(addresses);
        self
    }

    pub(crate) fn in_pool(mut self, pool: &str) -> Self {
        self.pool = Some(name(pool));
        self
    }

    pub(crate) fn labelled(mut self, text: &str) -> Self {
        self.labels = labels(text);
        self
    }

    pub(crate) fn in_namespace_labelled(mut self, text: &str) -> Self {
        self.namespace_labels = labels(text);
        self
    }

    pub(crate) fn families(mut self, families: WantedFamilies) -> Self {
        self.families = families;
        self
    }

    pub(crate) fn v6(self) -> Self {
        self.families(WantedFamilies::Only(Family::V6))
    }

    pub(crate) fn require_dual(self) -> Self {
        self.families(WantedFamilies::RequireDual)
    }

    pub(crate) fn prefer_dual(self, first: Family) -> Self {
        self.families(WantedFamilies::PreferDual { first })
    }
}

impl Allocator {
    /// Proposes and claims; proposing again must then change nothing and say the same.
    pub(crate) fn settle(&mut self, request: &Request) -> Result<Proposal, Refusal> {
        let proposal = self.propose(request)?;
        self.claim(request, &proposal).unwrap();
        self.free(request.uid());
        let again = self.propose(request);
        if proposal.addresses.is_empty() {
            assert_eq!(
                again.err(),
                proposal.unmet,
                "after giving up the same refusal stays"
            );
        } else {
            let expected = Proposal {
                decision: Decision::Keep,
                ..proposal.clone()
            };
            assert_eq!(again.as_ref(), Ok(&expected), "a claimed proposal is kept");
        }
        Ok(proposal)
    }

    /// Settles, and returns what the Service holds then.
    pub(crate) fn give(&mut self, request: &Request) -> Addresses {
        self.settle(request).unwrap().addresses
    }

    pub(crate) fn holds(&self, request: &Request) -> Addresses {
        self.held_addresses(request.uid())
    }
}
