//! The objects of the cluster on the bench.

use std::fmt::Write as _;

use super::layout::{ADDRESSES, NAMESPACE};

/// How addresses are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// By ARP, from one node each.
    Layer2,
    /// By BGP: each from the node with its endpoint.
    Bgp,
}

// === impl Announced ===

impl Announced {
    /// A pool, an advertisement, and Services with an endpoint each.
    pub fn objects(self) -> String {
        let (kind, policy) = match self {
            Self::Layer2 => ("L2Advertisement", "Cluster"),
            Self::Bgp => ("BGPAdvertisement", "Local"),
        };
        let mut all = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n---\n\
             apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {{name: lan, \
             namespace: {NAMESPACE}}}\nspec: {{addresses: [10.78.2.0/24]}}\n---\n\
             apiVersion: metallb.io/v1beta1\nkind: {kind}\nmetadata: {{name: all, namespace: \
             {NAMESPACE}}}\nspec: {{}}\n"
        );
        for number in 0..ADDRESSES {
            let node = number + 1;
            // The last one has no node of its own with BGP, and all announce it.
            let policy = if node == ADDRESSES { "Cluster" } else { policy };
            let _ = write!(
                all,
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: web-{number}, namespace: \
                 default}}\nspec: {{type: LoadBalancer, externalTrafficPolicy: {policy}, ports: \
                 [{{port: 80}}]}}\n---\n\
                 apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
                 metadata:\n  name: web-{number}-1\n  namespace: default\n  labels: \
                 {{kubernetes.io/service-name: web-{number}}}\nports: [{{name: \"\", port: 80}}]\n\
                 endpoints: [{{addresses: [10.79.0.1], nodeName: node-{node}, conditions: {{ready: \
                 true}}}}]\n"
            );
        }
        all
    }
}
