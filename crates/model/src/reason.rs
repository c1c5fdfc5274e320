//! Why something is refused, waits, or is ignored: a stable code, a sentence and a remedy.
//!
//! A [`Reason`] is data. The CLI, the status page, Kubernetes conditions, events and metrics only
//! render it, so they can never disagree.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One finding about one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// Stable, for alerts and for machines.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// The key it is about: `metadata.annotations[landfall.dev/drain]`, `spec.ports[1].port`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub field: Option<String>,
    /// The value, as the user wrote it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<String>,
    /// The problem: one sentence without a full stop.
    pub message: String,
    /// What to do about it; empty if nothing needs to be done.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub remedy: String,
    /// The file and line it comes from, for objects read from files.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub origin: Option<Origin>,
}

/// How much a reason matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Something asked for is ignored or done differently; the rest is applied.
    Warning,
    /// What was asked for can't be done. What worked before keeps working.
    Error,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The path as the user gave it; `-` is standard input.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: u32,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Stable codes, spelled in messages, metrics and conditions as they stand here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// Every code, in the order of the reference page.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The code as text.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What the code means, in one or two sentences.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

codes! {
    /// The manifest can't be read: broken YAML or JSON, or a field of the wrong type.
    InvalidManifest,
    /// Two documents describe the same object.
    DuplicateObject,
    /// The API server does not let this process read or write an object that it needs: a role lacks
    /// a rule.
    AccessDenied,
    /// An annotation has a value that its option does not take.
    InvalidAnnotation,
    /// No option has this annotation's name.
    UnknownAnnotation,
    /// The annotation has an old name, which still works.
    DeprecatedAnnotation,
    /// Two options, or an option and a field, contradict each other.
    ConflictingOptions,
    /// The option exists, but has no meaning for this provider.
    OptionNotApplicable,
    /// The provider does not support what the option asks for.
    OptionNotSupported,
    /// A field of the Service's `spec` has an invalid value.
    InvalidField,
    /// `loadBalancerClass` names no provider instance of this process.
    UnknownClass,
    /// The provider does not support the transport protocol.
    ProtocolNotSupported,
    /// A source range is not a prefix in CIDR notation.
    InvalidSourceRange,
    /// The Secret with the certificate does not exist (yet).
    CertificateNotFound,
    /// The Secret exists, but holds no usable certificate and key, or no usable authority.
    InvalidCertificate,
    /// TLS to members accepts any certificate, as configured.
    MembersNotVerified,
    /// The requested address is not an IP address.
    InvalidAddress,
    /// The requested address is in no address pool.
    AddressNotInPool,
    /// The requested address is held by another Service.
    AddressInUse,
    /// Sharing of the address was requested and is not possible.
    AddressNotShareable,
    /// The address is excluded by `avoidBuggyIPs`.
    AddressAvoided,
    /// The requested addresses do not fit the address families of the Service.
    AddressFamilyMismatch,
    /// No address pool has an address of a required family.
    NoAddressOfFamily,
    /// A limit on what one Service or one namespace may use is reached. What existed before stays.
    LimitReached,
    /// Every suitable address pool is exhausted.
    PoolExhausted,
    /// The named address pool does not exist.
    PoolNotFound,
    /// The address pool does not serve this namespace or these labels.
    PoolNotAllowed,
    /// The definition of an address pool is invalid.
    InvalidPool,
    /// A resource of group `metallb.io` is invalid, contradicts another one, or names one that does
    /// not exist.
    InvalidResource,
    /// No address pool is configured.
    NoPools,
    /// Address pools may be missing, because a source can't be read; until it can, no Service
    /// moves.
    PoolsIncomplete,
    /// The address pool of a claim is gone or changed, so the Service gets another address.
    AddressMoved,
    /// Another process listens on the port.
    PortInUse,
    /// The operating system does not let this process listen on the port.
    PortNotPermitted,
    /// The address is on no interface of this machine.
    AddressNotLocal,
    /// The listener could not be opened for another reason.
    ListenFailed,
    /// The process is short of file descriptors, UDP ports or buffer memory.
    Overloaded,
    /// No node is eligible as a member, so no traffic can be forwarded.
    NoEligibleNodes,
    /// An option about objects of the cloud is invalid.
    InvalidCloudOption,
    /// The cloud has no object of this id or name, or it belongs to another owner.
    CloudObjectNotFound,
    /// The load balancer belongs to another Service or another cluster.
    NotOurs,
    /// The cloud reports the load balancer as broken.
    LoadBalancerFailed,
    /// A quota of the cloud is exhausted.
    QuotaExceeded,
    /// The floating IP is in use by another object.
    FloatingIpInUse,
    /// Source ranges are set, and the provider can't enforce them.
    SourceRangesNotEnforced,
    /// No node announces the address, because no advertisement applies to it.
    NotAnnounced,
    /// The Service has no endpoint, so it has no member.
    NoEndpoints,
    /// The Service has endpoints, and none is ready.
    NoReadyEndpoints,
    /// Every member fails its health check, or can't be reached.
    NoHealthyMembers,
    /// An endpoint was left out of the pool.
    EndpointIgnored,
    /// An endpoint has an address that is not allowed for members: loopback, link-local, one of an
    /// address pool, a cluster IP, or one that the operator has not allowed.
    MemberNotAllowed,
    /// The provider is applying changes.
    Progressing,
    /// The provider failed or could not be reached; it is retried.
    ProviderFailed,
    /// The same changes were applied repeatedly without converging, so they are suspended for a
    /// while.
    NotConverging,
    /// Another program keeps rewriting the status of the Service.
    StatusContested,
    /// The last valid version is served, because the newest one has errors.
    ServingPreviousVersion,
    /// Files can't be watched, so that changes are noticed late.
    ChangesNoticedLate,
    /// The state directory can't be written: current changes would be lost at a restart.
    StateNotWritten,
    /// The API server has not answered completely since the start: the last known state is served.
    LastKnownState,
    /// The Service is converged.
    Ready,
    /// The newest version of the Service is valid.
    Accepted,
    /// The Service has its addresses.
    Assigned,
    /// A code of a newer version of Landfall, unknown to this one. It is replaced at the next
    /// reconcile of the Service.
    Unknown,
}

// === impl Code ===

impl Code {
    /// Returns whether something that another Service releases may resolve it.
    pub fn awaits_release(self) -> bool {
        matches!(
            self,
            Self::AddressInUse
                | Self::AddressNotShareable
                | Self::NoAddressOfFamily
                | Self::LimitReached
                | Self::PoolExhausted
                | Self::PortInUse
                | Self::QuotaExceeded
                | Self::FloatingIpInUse
        )
    }
}

// === impl Reason ===

impl Reason {
    /// Returns a reason why what was asked for can't be done.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, message)
    }

    /// Returns a reason for something that is ignored or done differently.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, message)
    }

    /// Returns a reason that is worth knowing.
    pub fn info(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Info, message)
    }

    fn new(code: Code, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            code,
            severity,
            field: None,
            value: None,
            message: shortened(message.into(), LONGEST_MESSAGE),
            remedy: String::new(),
            origin: None,
        }
    }

    /// Names the key it is about.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Names the annotation it is about.
    #[must_use]
    pub fn at_annotation(self, key: &str) -> Self {
        self.at(annotation_field(key))
    }

    /// Quotes what stood there. A very long text is cut, and ends in `…`.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(shortened(value.into(), LONGEST_VALUE));
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Names the place in a file.
    #[must_use]
    pub fn origin(mut self, origin: Option<Origin>) -> Self {
        self.origin = origin;
        self
    }
}

/// Reasons travel in conditions and events, which the API server bounds, and there is one for each
/// thing that is wrong: what users wrote, which may fill 256 KiB, is quoted only so far.
const LONGEST_VALUE: usize = 256;
const LONGEST_MESSAGE: usize = 1024;

fn shortened(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
    }
    text
}

/// How an annotation is named as a field: `metadata.annotations[KEY]`.
pub fn annotation_field(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

impl fmt::Display for Reason {
    /// `file:line: field: "value": message; remedy`, each part where it exists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        if let Some(value) = &self.value {
            write!(f, "{value:?}: ")?;
        }
        f.write_str(&self.message)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_reads_from_place_to_remedy() {
        let reason = Reason::error(Code::InvalidAnnotation, "not a duration")
            .at_annotation("landfall.dev/drain")
            .value("soon")
            .remedy("write a number with a unit, such as 30s")
            .origin(Some(Origin {
                file: "web.yaml".into(),
                line: 7,
            }));
        assert_eq!(
            reason.to_string(),
            "web.yaml:7: metadata.annotations[landfall.dev/drain]: \"soon\": not a duration; \
             write a number with a unit, such as 30s"
        );
    }

    #[test]
    fn a_very_long_text_is_quoted_only_so_far() {
        let reason = Reason::error(Code::InvalidField, "é".repeat(5000)).value("é".repeat(5000));
        let value = reason.value.unwrap();
        assert_eq!(value, format!("{}…", "é".repeat(128)));
        assert!(reason.message.len() < 1100 && reason.message.ends_with('…'));
    }

    #[test]
    fn every_code_says_what_it_means() {
        for code in Code::ALL {
            assert!(code.meaning().ends_with('.'), "{code}: {}", code.meaning());
        }
    }
}
