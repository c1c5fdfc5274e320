//! The manifests that the demo serves: ordinary Kubernetes objects, pointed at its backends.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::backends::{Backends, FAILING_NAME, HTTP_NAMES, UDP_NAMES};

/// The files of the demo: name and content.
pub fn render(backends: &Backends) -> Vec<(&'static str, String)> {
    vec![
        ("web.yaml", web(backends)),
        ("api.yaml", api(backends)),
        ("echo.yaml", echo(backends)),
        ("later.yaml", LATER.to_owned()),
    ]
}

fn web(backends: &Backends) -> String {
    let pods: Vec<_> = HTTP_NAMES
        .iter()
        .zip(&backends.http)
        .map(|(name, address)| (*name, *address))
        .chain([(FAILING_NAME, backends.failing)])
        .collect();
    let mut text = String::from(
        "# Four pods behind one address; one of them fails its health check and gets no traffic.\n\
         apiVersion: v1\n\
         kind: Service\n\
         metadata:\n  \
           name: web\n  \
           namespace: demo\n  \
           annotations:\n    \
             landfall.dev/monitor: http\n    \
             landfall.dev/monitor-path: /healthz\n    \
             landfall.dev/monitor-delay: 1s\n    \
             landfall.dev/monitor-timeout: 1s\n\
         spec:\n  \
           type: LoadBalancer\n  \
           ports:\n  \
           - name: http\n    \
             port: 8080\n    \
             targetPort: http\n\
         ---\n",
    );
    slice(&mut text, "web", "http", "TCP", &pods);
    text
}

fn api(backends: &Backends) -> String {
    let mut endpoints = String::new();
    for (address, rest) in backends
        .http
        .iter()
        .zip([" weight=3", " weight=1", " backup"])
    {
        if !endpoints.is_empty() {
            endpoints.push_str(", ");
        }
        let _ = write!(endpoints, "{address}{rest}");
    }
    format!(
        "# HTTP mode: requests are distributed by weight, and members get the client's\n\
        # address. The third member is a backup for the first two.\n\
        apiVersion: v1\n\
        kind: Service\n\
        metadata:\n  \
        name: api\n  \
        namespace: demo\n  \
        annotations:\n    \
        landfall.dev/mode: http\n    \
        landfall.dev/endpoints: {endpoints}\n\
        spec:\n  \
        type: LoadBalancer\n  \
        ports:\n  \
        - name: http\n    \
        port: 8080\n"
    )
}

fn echo(backends: &Backends) -> String {
    let pods: Vec<_> = UDP_NAMES
        .iter()
        .copied()
        .zip(backends.udp.iter().copied())
        .collect();
    let mut text = String::from(
        "# Datagrams: each client port is a flow of its own.\n\
         apiVersion: v1\n\
         kind: Service\n\
         metadata:\n  \
           name: echo\n  \
           namespace: demo\n\
         spec:\n  \
           type: LoadBalancer\n  \
           ports:\n  \
           - name: echo\n    \
             protocol: UDP\n    \
             port: 8053\n    \
             targetPort: echo\n\
         ---\n",
    );
    slice(&mut text, "echo", "echo", "UDP", &pods);
    text
}

const LATER: &str = "# It gets its address at once, and reports why it does not answer yet.\n\
     apiVersion: v1\n\
     kind: Service\n\
     metadata:\n  \
       name: later\n  \
       namespace: demo\n\
     spec:\n  \
       type: LoadBalancer\n  \
       ports:\n  \
       - port: 8080\n";

fn slice(
    text: &mut String,
    service: &str,
    port_name: &str,
    protocol: &str,
    pods: &[(&str, SocketAddr)],
) {
    let port = pods.first().map_or(0, |(_, address)| address.port());
    let _ = write!(
        text,
        "apiVersion: discovery.k8s.io/v1\n\
         kind: EndpointSlice\n\
         metadata:\n  \
           name: {service}-1\n  \
           namespace: demo\n  \
           labels:\n    \
             kubernetes.io/service-name: {service}\n\
         addressType: IPv4\n\
         ports:\n\
         - name: {port_name}\n  \
           protocol: {protocol}\n  \
           port: {port}\n\
         endpoints:\n"
    );
    for (name, address) in pods {
        let _ = write!(
            text,
            "- addresses: [{}]\n  targetRef: {{kind: Pod, name: {name}}}\n",
            address.ip()
        );
    }
}
