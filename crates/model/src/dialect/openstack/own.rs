//! Options that the reference does not have: of listeners that end TLS, and tags in Neutron.

use super::parse::{extension, list, some};
use super::{NO_CLOUD_OBJECT, THE_DEFAULT_OF_OCTAVIA};
use crate::dialect::given::{Given, put};
use crate::dialect::value::Refusal;
use crate::dialect::{AnnotationError, OptionRow, Outcome, Text};
use crate::reason::Severity;

/// Octavia's words for versions of TLS.
const VERSION_WORDS: [&str; 5] = ["SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
/// Octavia's words for protocols that are offered by ALPN.
const PROTOCOL_WORDS: [&str; 3] = ["http/1.0", "http/1.1", "h2"];

pub(super) const SNI_CONTAINERS: OptionRow = extension(
    "sni-container-refs",
    "URLs of Barbican secrets or containers with commas between them",
    "Further certificates beside `default-tls-container-ref`: clients get the one of the name that \
     they ask for.",
    "https://barbican.example.org/v1/containers/11111111-1111-1111-1111-111111111111",
    Severity::Warning,
    "the certificates are in Barbican, which is not used here; landfall.dev/tls-secret names \
     several Secrets",
    |service, it| list(&mut service.extensions.openstack.sni_containers, it),
);

pub(super) const VERSIONS: OptionRow = extension(
    "tls-versions",
    "`SSLv3`, `TLSv1`, `TLSv1.1`, `TLSv1.2` or `TLSv1.3`, with commas between them",
    "The versions of TLS of all ports that terminate it; needs API 2.17. Without it a listener \
     keeps what it has.",
    "TLSv1.2,TLSv1.3",
    Severity::Warning,
    "landfall.dev/tls-minimum-version sets the oldest version",
    |service, it| {
        let slot = &mut service.extensions.openstack.tls_versions;
        words(slot, it, &VERSION_WORDS)
    },
);

pub(super) const CIPHERS: OptionRow = extension(
    "tls-ciphers",
    "names of OpenSSL with colons between them",
    "The ciphers of all ports that terminate TLS; needs API 2.15. Without it a listener keeps what \
     it has.",
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256",
    Severity::Warning,
    THE_DEFAULT_OF_OCTAVIA,
    |service, it| some(&mut service.extensions.openstack.tls_ciphers, it),
);

pub(super) const ALPN: OptionRow = extension(
    "alpn-protocols",
    "`http/1.0`, `http/1.1` or `h2`, with commas between them",
    "What ports that terminate TLS offer by ALPN, in this order; needs API 2.20. Without it a \
     listener keeps what it has.",
    "h2,http/1.1",
    Severity::Warning,
    THE_DEFAULT_OF_OCTAVIA,
    |service, it| {
        let slot = &mut service.extensions.openstack.alpn_protocols;
        words(slot, it, &PROTOCOL_WORDS)
    },
);

pub(super) const FLOATING_IP_TAGS: OptionRow = extension(
    "floating-ip-tags",
    "tags with commas between them",
    "Additional tags of the floating IP, if a controller created it.",
    "team-a",
    Severity::Info,
    NO_CLOUD_OBJECT,
    |service, it| list(&mut service.extensions.openstack.floating_ip_tags, it),
);

pub(super) const GROUP_TAGS: OptionRow = extension(
    "security-group-tags",
    "tags with commas between them",
    "Additional tags of the Service's security group; the group that all nodes share has none.",
    "team-a",
    Severity::Info,
    NO_CLOUD_OBJECT,
    |service, it| list(&mut service.extensions.openstack.group_tags, it),
);

/// Words of a closed set, with commas between them.
fn words(
    slot: &mut Option<Given<Vec<String>>>,
    text: Text<'_>,
    known: &[&str],
) -> Result<Outcome, AnnotationError> {
    let words = text.value.split(',').map(str::trim);
    let mut listed: Vec<String> = Vec::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !known.contains(&word) {
            let refusal = Refusal::new(
                format!("{word:?} is none of Octavia's words"),
                format!("write {}", known.join(", ")),
            );
            return Err(refusal.into());
        }
        if !listed.iter().any(|it| it == word) {
            listed.push(word.to_owned());
        }
    }
    if listed.is_empty() {
        return Ok(Outcome::Nothing);
    }
    put(slot, text, listed)
}
