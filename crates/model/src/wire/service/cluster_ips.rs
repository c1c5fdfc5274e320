//! The cluster IPs of a Service: what the API server assigned to it, and to nothing else.

use std::net::IpAddr;

use super::Service;

/// What takes the place of an address in a headless Service.
const HEADLESS: &str = "None";

impl Service {
    /// Returns its cluster IPs, in order: none of a headless Service and of a name outside of the
    /// cluster.
    ///
    /// The other addresses at which nodes forward for a Service are not among them: `externalIPs`
    /// and what a status publishes may be any that a user chooses, such as another tenant's pod's.
    pub fn cluster_ips(&self) -> Box<[IpAddr]> {
        let spec = &self.spec;
        if spec.kind.as_deref() == Some("ExternalName") {
            return Box::default();
        }
        let texts = spec.cluster_ip.iter().chain(&spec.cluster_ips);
        let assigned = texts.filter(|text| *text != HEADLESS);
        let mut addresses: Vec<IpAddr> = assigned.filter_map(|text| address(text)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.into_boxed_slice()
    }
}

/// Reads an address as the API server does, which stores what a user writes: with zeros in front of
/// its numbers.
fn address(text: &str) -> Option<IpAddr> {
    let read = text.parse::<IpAddr>();
    let read = read.or_else(|_| without_leading_zeros(text).parse());
    read.ok().map(|address| address.to_canonical())
}

fn without_leading_zeros(text: &str) -> String {
    let mut short = String::new();
    let mut rest = text.chars().peekable();
    let mut begins = true;
    while let Some(digit) = rest.next() {
        let goes_on = rest.peek().is_some_and(char::is_ascii_hexdigit);
        if !(begins && digit == '0' && goes_on) {
            begins = matches!(digit, '.' | ':');
            short.push(digit);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster_ips(spec: &Value, status: &Value) -> Vec<String> {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop"}, "spec": spec, "status": status,
        });
        let service: Service = serde_json::from_value(object).unwrap();
        let addresses = service.cluster_ips();
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn cluster_ips_are_those_of_both_families_and_nothing_that_a_user_may_write() {
        let spec = json!({
            "type": "LoadBalancer", "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7", "fd00::7"],
            "externalIPs": ["198.51.100.1"], "loadBalancerIP": "198.51.100.2",
            "ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}],
        });
        let status = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.3"}]}});
        assert_eq!(cluster_ips(&spec, &status), ["10.96.0.7", "fd00::7"]);
    }

    #[test]
    fn zeros_in_front_of_numbers_hide_no_cluster_ip() {
        for (text, address) in [
            ("010.096.000.0", "10.96.0.0"),
            ("10.96.00.077", "10.96.0.77"),
            ("fd00::00007", "fd00::7"),
            ("fd00::010.1.02.3", "fd00::a01:203"),
            ("::ffff:10.96.0.7", "10.96.0.7"),
        ] {
            assert_eq!(
                cluster_ips(&json!({"clusterIP": text}), &json!({})),
                [address],
                "{text}"
            );
        }
    }

    #[test]
    fn a_headless_service_a_name_and_what_is_yet_to_be_assigned_have_no_cluster_ips() {
        for spec in [
            json!({"clusterIP": "None", "clusterIPs": ["None"]}),
            json!({"type": "ExternalName", "clusterIP": "10.96.0.7"}),
            json!({"clusterIP": "", "clusterIPs": [""]}),
            json!({"clusterIP": "0", "clusterIPs": ["10.96.0.7.0", "..", "x"]}),
            json!({}),
        ] {
            let none: [&str; 0] = [];
            assert_eq!(cluster_ips(&spec, &json!({})), none, "{spec}");
        }
    }
}
