//! What a tenant can write against another one.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::certificates::Certificate;

/// The name under which the victim's clients ask.
pub const HOST: &str = "shop.example";

/// Where checks hang.
pub const TARPIT: u16 = 8009;

/// Limits that are few enough to be reached, and many enough for the victim.
pub const LIMITS: &str = "        addressesPerNamespace: 8\nlimits: {portsPerService: 500, \
                          portsPerNamespace: 600}\n";

/// How it shows that an attack reached a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// It is the reason of a Service of the attacker.
    Reported(&'static str),
    /// A number of the metrics rises.
    Counted(&'static str),
}

/// The limit that an attack has to reach, so that it is no weaker than it seems.
pub fn limit(attack: &str) -> Option<Limit> {
    match attack {
        "60 Services" | "900 ports" | "3 Services of 300 ports" | "1,024 Secrets" => {
            Some(Limit::Reported("LimitReached"))
        }
        "endless checks" => Some(Limit::Counted("landfall_checks_delayed_total")),
        "8 Services of 64 Secrets" => Some(Limit::Counted("landfall_secrets_refused")),
        _ => None,
    }
}

/// A Service with its annotations, ports, and whatever else its spec has.
pub fn service(name: &str, annotations: &[(&str, String)], ports: &[u16], spec: &str) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations:\n    \
         example.org/of: test\n"
    );
    for (key, value) in annotations {
        let _ = writeln!(text, "    {key}: {value:?}");
    }
    let _ = write!(text, "spec:\n  type: LoadBalancer\n{spec}  ports:\n");
    for port in ports {
        let _ = writeln!(text, "  - {{name: p{port}, port: {port}}}");
    }
    text
}

pub fn slice(service: &str, port: u16, addresses: &[&str]) -> String {
    let mut text = format!(
        "---\n\
        apiVersion: discovery.k8s.io/v1\n\
        kind: EndpointSlice\n\
        addressType: IPv4\n\
        metadata:\n  \
        name: {service}-1\n  \
        labels: {{kubernetes.io/service-name: {service}}}\n\
        ports: [{{name: p{port}, port: 8000}}]\n\
        endpoints:\n"
    );
    for address in addresses {
        let _ = writeln!(text, "- {{addresses: [{address}]}}");
    }
    text
}

/// What the attacker writes: each of its means against each thing of the victim that it can name.
/// `held` is where the victim serves bytes, `secure` where it ends TLS.
pub fn all(held: &str, secure: &str, admin: SocketAddr) -> Vec<(String, String)> {
    let own = |name: &str| format!("landfall.dev/{name}");
    let mut attacks = Vec::new();
    let targets = [
        format!("{held}:8080"),
        format!("{secure}:8443"),
        format!("[::ffff:{held}]:8080"),
        "127.0.0.1:22".to_owned(),
        "[::1]:22".to_owned(),
        "169.254.169.254:80".to_owned(),
        "10.77.0.11:8000".to_owned(),
        admin.to_string(),
    ];
    for target in targets {
        let annotations = [(own("endpoints"), target.clone())];
        let annotations = annotations
            .each_ref()
            .map(|(key, value)| (key.as_str(), value.clone()));
        let text = service("attack", &annotations, &[8080], "");
        attacks.push((format!("endpoints {target}"), text));
    }
    for key in ["s3cret-key", "guess", ""] {
        for port in [8080, 8081] {
            for asks in [true, false] {
                let (sharing, addresses) = (own("sharing-key"), own("addresses"));
                let mut annotations = Vec::new();
                if !key.is_empty() {
                    annotations.push((sharing.as_str(), key.to_owned()));
                }
                if asks {
                    annotations.push((addresses.as_str(), held.to_owned()));
                }
                let text = service(
                    "attack",
                    &annotations,
                    &[port],
                    "  selector: {app: vault}\n",
                );
                attacks.push((
                    format!("share by {key:?}, port {port}, asking {asks}"),
                    text,
                ));
            }
        }
    }
    let field = format!("  loadBalancerIP: {held}\n");
    attacks.push((
        "loadBalancerIP".to_owned(),
        service("attack", &[], &[8080], &field),
    ));
    for addresses in [
        &[held][..],
        &["10.77.200.1", "10.77.200.2"],
        &["240.0.0.1"],
        &["255.255.255.255"],
    ] {
        let text = [
            service("attack", &[], &[8080], ""),
            slice("attack", 8080, addresses),
        ];
        attacks.push((format!("slice {addresses:?}"), text.concat()));
    }
    let [there, back] = ["10.77.200.9", "10.77.200.10"];
    let mut round = String::new();
    for (name, own, other) in [("attack", there, back), ("back", back, there)] {
        let addresses = [("landfall.dev/addresses", own.to_owned())];
        round += &service(name, &addresses, &[8080], "");
        round += &slice(name, 8080, &[other]);
    }
    attacks.push(("two Services that name each other".to_owned(), round));
    let many: String = (0..60)
        .map(|number| service(&format!("many-{number}"), &[], &[8080], ""))
        .collect();
    attacks.push(("60 Services".to_owned(), many));
    for secret in ["victim-cert", "victim/victim-cert"] {
        let annotations = [
            (own("mode"), "tls".to_owned()),
            (own("tls-secret"), secret.to_owned()),
        ];
        let annotations = annotations
            .each_ref()
            .map(|(key, value)| (key.as_str(), value.clone()));
        let text = service("attack", &annotations, &[8080], "");
        attacks.push((format!("the Secret {secret}"), text));
    }
    attacks.extend(of_certificates(secure));
    let ports: Vec<u16> = (20_000..20_900).collect();
    attacks.push(("900 ports".to_owned(), service("attack", &[], &ports, "")));
    let ports: Vec<u16> = (20_000..20_300).collect();
    let several = (0..3).map(|number| service(&format!("ports-{number}"), &[], &ports, ""));
    attacks.push(("3 Services of 300 ports".to_owned(), several.collect()));
    attacks.push(("endless checks".to_owned(), endless_checks()));
    attacks.extend(of_many_secrets());
    attacks
}

/// Far more checks than may run at once, none of which ends before its timeout, and one of the
/// victim's member.
fn endless_checks() -> String {
    let monitor = [
        ("landfall.dev/monitor", "http".to_owned()),
        ("landfall.dev/monitor-delay", "1h".to_owned()),
        ("landfall.dev/monitor-timeout", "1h".to_owned()),
        ("landfall.dev/monitor-port", TARPIT.to_string()),
    ];
    let members: Vec<String> = (11..91).map(|last| format!("10.77.0.{last}")).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let services = (0..8).map(|number| {
        let name = format!("check-{number}");
        service(&name, &monitor, &[8080], "") + &slice(&name, 8080, &members)
    });
    services.collect()
}

/// More Secrets than one Service may name, and than are watched for one namespace.
fn of_many_secrets() -> Vec<(String, String)> {
    let own = |name: &str| format!("landfall.dev/{name}");
    let mut attacks = Vec::new();
    let secrets = (0..16).map(|port| {
        let names: Vec<String> = (0..64).map(|name| format!("s-{port}-{name}")).collect();
        (
            own(&format!("tls-secret.p{}", 8000 + port)),
            names.join(","),
        )
    });
    let mode = (own("mode"), "tls".to_owned());
    let secrets: Vec<(String, String)> = secrets.chain([mode]).collect();
    let secrets: Vec<(&str, String)> = secrets
        .iter()
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect();
    let ports: Vec<u16> = (8000..8016).collect();
    attacks.push((
        "1,024 Secrets".to_owned(),
        service("attack", &secrets, &ports, ""),
    ));
    let several = (0..8).map(|number| {
        let names: Vec<String> = (0..64).map(|name| format!("s-{number}-{name}")).collect();
        let annotations = [
            ("landfall.dev/mode", "tls".to_owned()),
            ("landfall.dev/tls-secret", names.join(",")),
        ];
        service(&format!("secrets-{number}"), &annotations, &[8443], "")
    });
    attacks.push(("8 Services of 64 Secrets".to_owned(), several.collect()));
    attacks
}

/// Secrets of the attacker's own, called as the victim's: for the victim's name, and broken ones.
fn of_certificates(secure: &str) -> Vec<(String, String)> {
    let own = |name: &str| format!("landfall.dev/{name}");
    let forged = Certificate::of(&[HOST]).secret("victim-cert");
    let broken = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: victim-cert}\n\
                  type: kubernetes.io/tls\nstringData: {tls.crt: none, tls.key: none}\n";
    let mut attacks = Vec::new();
    for (what, secret) in [("forged", forged.as_str()), ("broken", broken)] {
        for asked in ["addresses", "sharing-key"] {
            let value = if asked == "addresses" {
                secure
            } else {
                "s3cret-key"
            };
            let annotations = [
                (own("mode"), "tls".to_owned()),
                (own("tls-secret"), "victim-cert".to_owned()),
                (own(asked), value.to_owned()),
            ];
            let annotations = annotations
                .each_ref()
                .map(|(key, value)| (key.as_str(), value.clone()));
            let text = [
                secret.to_owned(),
                service("attack", &annotations, &[8443], ""),
                slice("attack", 8443, &["10.77.0.13"]),
            ];
            attacks.push((format!("a {what} Secret, by {asked}"), text.concat()));
        }
    }
    attacks
}
