//! What TLS must be like: of clients, and toward the members of a port.

use std::sync::Arc;

use landfall_model::dialect::{MemberTlsChoice, ModeChoice};
use landfall_model::listener::{Certificate, MemberTls, Redirect, TlsPolicy};
use landfall_model::{Code, Reason};

use super::ResolveContext;
use super::findings::Findings;
use super::layers::{Choice, Layers};
use super::secrets::{Kind, secret};

/// TLS toward members, as far as it is known.
pub(super) enum TowardMembers {
    /// As it shall be.
    Known(Option<MemberTls>),
    /// A Secret can't be read for now. Members must not be spoken to without it.
    Unreadable,
}

/// What is asked of the TLS of clients.
pub(super) fn policy(
    layers: Layers<'_>,
    mode: Option<&Choice<'_, ModeChoice>>,
    findings: &mut Findings<'_>,
) -> TlsPolicy {
    let ends_tls = mode.is_some_and(|mode| mode.given.value.ends_tls());
    let why_not = "this port does not terminate TLS: its mode is neither tls nor https";
    let minimum = layers.take_if(findings, ends_tls, why_not, |port| {
        &port.tls_minimum_version
    });
    let strict = layers.take_if(findings, ends_tls, why_not, |port| &port.tls_strict_names);
    TlsPolicy {
        minimum: minimum.copied().unwrap_or_default(),
        strict_names: strict.copied().unwrap_or_default(),
    }
}

/// Where requests are sent in place of a member.
pub(super) fn redirect(
    layers: Layers<'_>,
    mode: Option<&Choice<'_, ModeChoice>>,
    findings: &mut Findings<'_>,
) -> Option<Redirect> {
    let plain = mode.is_some_and(|mode| mode.given.value == ModeChoice::Http);
    let why_not = "only requests of a port in mode http can be redirected";
    let redirect = layers.take_if(findings, plain, why_not, |port| &port.https_redirect);
    redirect.copied().flatten()
}

/// TLS toward the members of a port.
pub(super) fn toward_members(
    scene: &ResolveContext<'_>,
    layers: Layers<'_>,
    tcp: bool,
    findings: &mut Findings<'_>,
) -> TowardMembers {
    let choice = layers.get(findings, |port| &port.member_tls);
    let Some(choice) = choice else {
        return TowardMembers::Known(None);
    };
    if !tcp {
        choice.reject(findings, "UDP ports have no TLS to members");
        return TowardMembers::Known(None);
    }
    let wanted = *choice.take(findings);
    let at = &choice.given.annotation;
    let mut unreadable = false;
    let authorities = match wanted {
        MemberTlsChoice::Off => return TowardMembers::Known(None),
        MemberTlsChoice::Insecure => {
            let reason = Reason::warning(
                Code::MembersNotVerified,
                "connections to members use TLS without verification of the certificate",
            )
            .remedy("write verify, and name a Secret with the authority in member-ca-secret");
            findings.push(findings.at(reason, at));
            None
        }
        MemberTlsChoice::Verify => {
            let Some(named) = layers.get(findings, |port| &port.member_ca_secret) else {
                let reason = Reason::error(
                    Code::ConflictingOptions,
                    "members are to be verified, and no authority is named",
                )
                .remedy(
                    "name a Secret whose ca.crt has the authority in landfall.dev/member-ca-secret",
                );
                findings.push(findings.at(reason, at));
                return TowardMembers::Known(None);
            };
            let name = named.take(findings);
            let found = secret(
                scene,
                name,
                Kind::Authorities,
                &named.given.annotation,
                findings,
            );
            unreadable |= found.is_none();
            found
        }
    };
    let certificate = layers
        .get(findings, |port| &port.member_client_secret)
        .and_then(|named| {
            let name = named.take(findings);
            let found = secret(
                scene,
                name,
                Kind::Certificate,
                &named.given.annotation,
                findings,
            );
            unreadable |= found.is_none();
            found
        });
    if unreadable {
        return TowardMembers::Unreadable;
    }
    TowardMembers::Known(Some(MemberTls {
        authorities,
        server_name: server_name(scene, layers, findings),
        certificate,
    }))
}

/// The name that members' certificates must cover: by default the one that the Service has in its
/// cluster, which is what certificates of members are mostly made for.
fn server_name(
    scene: &ResolveContext<'_>,
    layers: Layers<'_>,
    findings: &mut Findings<'_>,
) -> String {
    let given = layers.take(findings, |port| &port.member_server_name);
    given.cloned().unwrap_or_else(|| {
        let key = &scene.service.key;
        format!("{}.{}.svc", key.name(), key.namespace())
    })
}

/// The certificates that a version has of Secrets for its members.
pub(crate) fn certificates_of(tls: &MemberTls) -> impl Iterator<Item = &Arc<Certificate>> {
    tls.authorities.iter().chain(&tls.certificate)
}
