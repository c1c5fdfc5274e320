//! Manifests as people write them: YAML text, made by a few words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// A Service of type LoadBalancer.
#[derive(Clone, Debug)]
pub struct Svc {
    namespace: Option<String>,
    name: String,
    annotations: BTreeMap<String, String>,
    spec: Vec<String>,
    ports: Vec<String>,
}

/// A Service with this name in the namespace `default`, and no port yet.
pub fn svc(name: &str) -> Svc {
    Svc {
        namespace: None,
        name: name.to_owned(),
        annotations: BTreeMap::new(),
        spec: Vec::new(),
        ports: Vec::new(),
    }
}

/// An EndpointSlice for the port `name` of a Service: pods by name and address.
pub fn slice(
    service: &str,
    port_name: &str,
    protocol: &str,
    pods: &[(&str, SocketAddr)],
) -> String {
    let port = pods.first().map_or(1, |(_, address)| address.port());
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1\n\
         kind: EndpointSlice\n\
         metadata:\n  \
           name: {service}-1\n  \
           labels: {{kubernetes.io/service-name: {service}}}\n\
         addressType: IPv4\n\
         ports: [{{name: {port_name:?}, protocol: {protocol}, port: {port}}}]\n\
         endpoints:\n"
    );
    for (name, address) in pods {
        assert_eq!(address.port(), port, "pods of a slice share their port");
        let ip = address.ip();
        writeln!(
            text,
            "- {{addresses: [{ip}], targetRef: {{kind: Pod, name: {name}}}}}"
        )
        .unwrap();
    }
    text
}

/// A MetalLB address pool.
pub fn pool(name: &str, addresses: &[String], more: &[&str]) -> String {
    let mut text = format!(
        "apiVersion: metallb.io/v1beta1\n\
         kind: IPAddressPool\n\
         metadata: {{name: {name}, namespace: metallb-system}}\n\
         spec:\n  \
           addresses: {addresses:?}\n"
    );
    for line in more {
        writeln!(text, "  {line}").unwrap();
    }
    text
}

/// A Secret with a certificate and its key, both PEM.
pub fn tls_secret(name: &str, chain: &str, key: &str) -> String {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    format!(
        "apiVersion: v1\n\
         kind: Secret\n\
         metadata: {{name: {name}}}\n\
         type: kubernetes.io/tls\n\
         data:\n  \
           tls.crt: {}\n  \
           tls.key: {}\n",
        encode(chain),
        encode(key)
    )
}

/// The number, counted from 1, of the only line that contains `word`.
pub fn line_of(text: &str, word: &str) -> u32 {
    let mut lines = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| line.contains(word));
    let (_, number) = lines.next().expect("the word stands in the text");
    assert_eq!(lines.next(), None, "{word} stands in more than one line");
    number
}

// === impl Svc ===

impl Svc {
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// An unnamed TCP port.
    pub fn tcp(mut self, port: u16) -> Self {
        self.ports.push(format!("{{port: {port}}}"));
        self
    }

    pub fn port(mut self, name: &str, protocol: &str, port: u16) -> Self {
        self.ports.push(format!(
            "{{name: {name}, protocol: {protocol}, port: {port}}}"
        ));
        self
    }

    /// A portable option: `landfall.dev/KEY`.
    pub fn option(self, key: &str, value: &str) -> Self {
        self.annotation(&format!("landfall.dev/{key}"), value)
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Literal members.
    pub fn members(self, members: &[SocketAddr]) -> Self {
        let members: Vec<_> = members.iter().map(ToString::to_string).collect();
        self.option("endpoints", &members.join(", "))
    }

    /// One more line of `spec`.
    pub fn spec(mut self, line: impl Into<String>) -> Self {
        self.spec.push(line.into());
        self
    }

    pub fn yaml(&self) -> String {
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: {}\n",
            self.name
        );
        if let Some(namespace) = &self.namespace {
            writeln!(text, "  namespace: {namespace}").unwrap();
        }
        if !self.annotations.is_empty() {
            text.push_str("  annotations:\n");
        }
        for (key, value) in &self.annotations {
            writeln!(text, "    {key}: {value:?}").unwrap();
        }
        text.push_str("spec:\n  type: LoadBalancer\n");
        for line in &self.spec {
            writeln!(text, "  {line}").unwrap();
        }
        text.push_str("  ports:\n");
        for port in &self.ports {
            writeln!(text, "  - {port}").unwrap();
        }
        text
    }
}
