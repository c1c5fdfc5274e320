//! Builders of rows for tests: `svc("web").port(80).annotated("landfall.dev/drain", "3s").row()`.
//!
//! They fill what a test does not care about with what Kubernetes would put there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::intent::Claim;
use landfall_model::listener::{Certificate, ListenerKey, Protocol};
use landfall_model::reason::Origin;
use landfall_model::rows::{
    Endpoint, Family, FamilyPolicy, NamespaceRow, NodeRow, SecretRow, ServicePort, ServiceRow,
    SlicePort, SliceRow, SourceMap, TargetPort,
};
use landfall_model::status::{IngressAddress, ServiceStatus};
use landfall_model::{ServiceKey, Uid};

/// A Service in the making.
#[derive(Clone, Debug)]
pub struct ServiceBuilder(ServiceRow);

/// An EndpointSlice in the making.
#[derive(Clone, Debug)]
pub struct SliceBuilder(SliceRow);

/// A Node in the making.
#[derive(Clone, Debug)]
pub struct NodeBuilder(NodeRow);

/// A LoadBalancer Service in the namespace `default`: IPv4, no ports yet, UID `uid-NAME`.
pub fn svc(name: &str) -> ServiceBuilder {
    ServiceBuilder(ServiceRow {
        key: ServiceKey::new("default", name),
        uid: Uid::new(&format!("uid-{name}")),
        generation: None,
        resource_version: None,
        recorded: None,
        created: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        finalized: false,
        deleting: false,
        wants_load_balancer: true,
        class: None,
        families: vec![Family::V4],
        family_policy: FamilyPolicy::SingleStack,
        headless: false,
        ports: Vec::new(),
        selector: BTreeMap::new(),
        external_local: false,
        health_check_node_port: None,
        affinity: None,
        load_balancer_ip: None,
        source_ranges: Vec::new(),
        publish_not_ready: false,
        allocate_node_ports: true,
        node_fields: BTreeMap::new(),
        status: ServiceStatus::default(),
        faults: Vec::new(),
        source: None,
    })
}

/// A slice of IPv4 endpoints of a Service in the namespace `default`, named `SERVICE-1`, without
/// ports or endpoints yet.
pub fn slice(service: &str) -> SliceBuilder {
    SliceBuilder(SliceRow {
        key: ServiceKey::new("default", &format!("{service}-1")),
        service: ServiceKey::new("default", service),
        family: Some(Family::V4),
        ports: Vec::new(),
        endpoints: Vec::new(),
        cut: false,
        source: None,
    })
}

/// A ready Node with the given internal address.
pub fn node(name: &str, address: &str) -> NodeBuilder {
    NodeBuilder(NodeRow {
        name: name.into(),
        labels: BTreeMap::new(),
        addresses: vec![ip(address)],
        provider_id: None,
        deleting: false,
        leaving: false,
        cordoned: false,
        ready: true,
        network_unavailable: false,
        pod_prefixes: Vec::new(),
    })
}

/// A Namespace with labels.
pub fn namespace(name: &str, labels: &[(&str, &str)]) -> Arc<NamespaceRow> {
    Arc::new(NamespaceRow {
        name: name.into(),
        labels: labels.iter().map(|(key, value)| pair(key, value)).collect(),
        annotations: BTreeMap::new(),
    })
}

/// A TLS Secret in the namespace `default`; its PEM texts are none.
pub fn secret(name: &str) -> Arc<SecretRow> {
    let key = ServiceKey::new("default", name);
    let certificate = Certificate {
        source: key.to_string(),
        chain_pem: b"chain".to_vec(),
        key_pem: b"key".to_vec(),
    };
    let authorities = Certificate {
        source: format!("{key}[ca.crt]"),
        chain_pem: b"authorities".to_vec(),
        key_pem: Vec::new(),
    };
    Arc::new(SecretRow {
        key,
        certificate: Ok(Arc::new(certificate)),
        authorities: Ok(Arc::new(authorities)),
        source: None,
    })
}

/// A TLS Secret in the namespace `default` that is of no use.
pub fn bad_secret(name: &str, why: &str) -> Arc<SecretRow> {
    Arc::new(SecretRow {
        key: ServiceKey::new("default", name),
        certificate: Err(why.to_owned()),
        authorities: Err(why.to_owned()),
        source: None,
    })
}

/// An endpoint that is ready, without node or name.
pub fn endpoint(address: &str) -> Endpoint {
    Endpoint {
        address: ip(address),
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        name: None,
    }
}

/// A port number of a test.
///
/// # Panics
/// On zero.
#[expect(
    clippy::expect_used,
    reason = "a wrong test should fail where it is wrong"
)]
pub fn number(port: u16) -> NonZeroU16 {
    NonZeroU16::new(port).expect("ports of tests are not zero")
}

/// Returns the claim of a Service that has this address for all of its ports.
pub fn claim_of(row: &ServiceRow, address: &str) -> Claim {
    let ports = row.ports.iter().map(|port| ListenerKey {
        protocol: port.protocol,
        port: port.port,
    });
    Claim {
        service: row.key.clone(),
        uid: row.uid.clone(),
        addresses: vec![ip(address)],
        requested: Vec::new(),
        sharing_key: None,
        backend_key: String::new(),
        ports: ports.collect(),
    }
}

/// An address of a test.
///
/// # Panics
/// When it is invalid.
#[expect(
    clippy::expect_used,
    reason = "a wrong test should fail where it is wrong"
)]
pub fn ip(address: &str) -> IpAddr {
    address.parse().expect("addresses of tests are valid")
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

// === impl ServiceBuilder ===

impl ServiceBuilder {
    /// The row.
    pub fn row(self) -> Arc<ServiceRow> {
        Arc::new(self.0)
    }

    /// Changes whatever no other method changes.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut ServiceRow)) -> Self {
        change(&mut self.0);
        self
    }

    /// Puts it into another namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.0.key = ServiceKey::new(namespace, self.0.key.name());
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.0.annotations.extend([pair(key, value)]);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.0.labels.extend([pair(key, value)]);
        self
    }

    /// Adds a label to the selector.
    #[must_use]
    pub fn selecting(mut self, key: &str, value: &str) -> Self {
        self.0.selector.extend([pair(key, value)]);
        self
    }

    /// Adds a TCP port without a name.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.any_port("", Protocol::Tcp, port)
    }

    /// Adds a TCP port with a name.
    #[must_use]
    pub fn named_port(self, name: &str, port: u16) -> Self {
        self.any_port(name, Protocol::Tcp, port)
    }

    /// Adds a UDP port with a name.
    #[must_use]
    pub fn udp_port(self, name: &str, port: u16) -> Self {
        self.any_port(name, Protocol::Udp, port)
    }

    /// Adds a port whose target has the same number.
    #[must_use]
    pub fn any_port(mut self, name: &str, protocol: Protocol, port: u16) -> Self {
        self.0.ports.push(ServicePort {
            name: name.to_owned(),
            protocol,
            port: number(port),
            target: TargetPort::Number(number(port)),
            node_port: None,
            app_protocol: None,
        });
        self
    }

    /// Gives the latest port an `appProtocol`.
    #[must_use]
    pub fn app_protocol(mut self, protocol: &str) -> Self {
        if let Some(port) = self.0.ports.last_mut() {
            port.app_protocol = Some(protocol.to_owned());
        }
        self
    }

    /// Gives the latest port a NodePort.
    #[must_use]
    pub fn node_port(mut self, node_port: u16) -> Self {
        if let Some(port) = self.0.ports.last_mut() {
            port.node_port = Some(number(node_port));
        }
        self
    }

    /// Sets families and policy.
    #[must_use]
    pub fn families(mut self, families: &[Family], policy: FamilyPolicy) -> Self {
        self.0.families = families.to_vec();
        self.0.family_policy = policy;
        self
    }

    /// `externalTrafficPolicy: Local`.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.0.external_local = true;
        self
    }

    /// `sessionAffinity: ClientIP`.
    #[must_use]
    pub fn affinity(mut self, timeout: Duration) -> Self {
        self.0.affinity = Some(timeout);
        self
    }

    /// `spec.loadBalancerIP`.
    #[must_use]
    pub fn load_balancer_ip(mut self, address: &str) -> Self {
        self.0.load_balancer_ip = Some(address.to_owned());
        self
    }

    /// Adds an entry to `spec.loadBalancerSourceRanges`.
    #[must_use]
    pub fn source_range(mut self, range: &str) -> Self {
        self.0.source_ranges.push(range.to_owned());
        self
    }

    /// Lets its status hold an address.
    #[must_use]
    pub fn holding(mut self, address: &str) -> Self {
        self.0.status.ingress.push(IngressAddress {
            ip: Some(ip(address)),
            ..IngressAddress::default()
        });
        self
    }

    /// Lets it come from a file, where these fields stand in these lines.
    #[must_use]
    pub fn from_file(mut self, file: &str, lines: &[(&str, u32)]) -> Self {
        self.0.source = Some(Arc::new(SourceMap {
            document: Origin {
                file: file.into(),
                line: 1,
            },
            lines: lines
                .iter()
                .map(|(field, line)| ((*field).to_owned(), *line))
                .collect(),
            newest_invalid: Vec::new(),
        }));
        self
    }
}

// === impl SliceBuilder ===

impl SliceBuilder {
    /// The row.
    pub fn row(self) -> Arc<SliceRow> {
        Arc::new(self.0)
    }

    /// Gives the slice a name of its own.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.0.key = ServiceKey::new(self.0.service.namespace(), name);
        self
    }

    /// Leaves endpoints out, for which its namespace has no room.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.0.cut = true;
        self
    }

    /// Sets the family; `None` is the type `FQDN`.
    #[must_use]
    pub fn family(mut self, family: Option<Family>) -> Self {
        self.0.family = family;
        self
    }

    /// Adds a TCP port.
    #[must_use]
    pub fn port(self, name: &str, port: u16) -> Self {
        self.any_port(name, Protocol::Tcp, Some(port))
    }

    /// Adds a port.
    #[must_use]
    pub fn any_port(mut self, name: &str, protocol: Protocol, port: Option<u16>) -> Self {
        self.0.ports.push(SlicePort {
            name: name.to_owned(),
            protocol,
            port: port.map(number),
        });
        self
    }

    /// Adds a ready endpoint.
    #[must_use]
    pub fn ready(self, address: &str) -> Self {
        self.endpoint(endpoint(address))
    }

    /// Adds a ready endpoint of a pod.
    #[must_use]
    pub fn pod(self, name: &str, address: &str) -> Self {
        self.endpoint(Endpoint {
            name: Some(name.into()),
            ..endpoint(address)
        })
    }

    /// Adds an endpoint that is not ready.
    #[must_use]
    pub fn not_ready(self, address: &str) -> Self {
        self.endpoint(Endpoint {
            ready: false,
            serving: false,
            ..endpoint(address)
        })
    }

    /// Adds an endpoint that terminates and still serves.
    #[must_use]
    pub fn draining(self, address: &str) -> Self {
        self.endpoint(Endpoint {
            ready: false,
            terminating: true,
            ..endpoint(address)
        })
    }

    /// Adds an endpoint.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.0.endpoints.push(endpoint);
        self
    }
}

// === impl NodeBuilder ===

impl NodeBuilder {
    /// The row.
    pub fn row(self) -> Arc<NodeRow> {
        Arc::new(self.0)
    }

    /// Adds a label.
    #[must_use]
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.0.labels.extend([pair(key, value)]);
        self
    }

    /// Changes whatever no other method changes.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut NodeRow)) -> Self {
        change(&mut self.0);
        self
    }
}
