//! The objects that fill a cluster, as manifests by number.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// A Service with one port, of Landfall's class or of none.
pub fn service(number: u32, served: bool) -> String {
    let class = if served {
        "  loadBalancerClass: landfall.dev/local\n"
    } else {
        ""
    };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web-{number}\n  labels: {{app: \
         web-{number}, team: team-{team}}}\nspec:\n  type: LoadBalancer\n{class}  \
         allocateLoadBalancerNodePorts: false\n  selector: {{app: web-{number}}}\n  ports:\n  \
         - {{name: http, port: 8080, targetPort: 8000}}\n---\n",
        team = number % 50
    )
}

/// Three endpoints on three nodes; each generation has other addresses.
pub fn slice(number: u32, generation: u8) -> String {
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1\n\
        kind: EndpointSlice\n\
        addressType: IPv4\n\
        metadata:\n  \
        name: web-{number}-1\n  \
        labels: {{kubernetes.io/service-name: web-{number}}}\n\
        ports:\n\
        - {{name: http, port: 8000, protocol: TCP}}\n\
        endpoints:\n"
    );
    for index in 0..3_u8 {
        let [_, _, third, fourth] = number.to_be_bytes();
        let address = Ipv4Addr::new(10, 100 + generation * 3 + index, third, fourth);
        let node = (number + u32::from(index)) % 500;
        let _ = writeln!(
            text,
            "- addresses: [{address}]\n  conditions: {{ready: true, serving: true, terminating: \
             false}}\n  nodeName: node-{node}\n  targetRef: {{kind: Pod, namespace: default, name: \
             web-{number}-{index}}}"
        );
    }
    text + "---\n"
}

/// A node in one of three zones.
pub fn node(number: u32) -> String {
    let [_, _, third, fourth] = number.to_be_bytes();
    format!(
        "apiVersion: v1\n\
        kind: Node\n\
        metadata:\n  \
        name: node-{number}\n  \
        labels: {{kubernetes.io/hostname: node-{number}, topology.kubernetes.io/zone: \
        zone-{zone}}}\n\
        status:\n  \
        addresses: [{{type: InternalIP, address: 10.1.{third}.{fourth}}}]\n  \
        conditions: [{{type: Ready, status: \"True\"}}]\n\
        ---\n",
        zone = number % 3
    )
}
