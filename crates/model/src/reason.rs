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
    /// What stood there, as the user wrote it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<String>,
    /// What is the matter: one sentence without a full stop.
    pub message: String,
    /// What the reader can do about it; empty where nothing needs doing.
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
    /// Something asked for is ignored or done differently; the rest goes on.
    Warning,
    /// The wish can't be had as it stands. What worked before goes on working.
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
    /// The API server does not let this process read or write something that it needs: a role lacks a
    /// rule.
    AccessDenied,
    /// An annotation has a value that its option does not take.
    InvalidAnnotation,
    /// No option has this annotation's name.
    UnknownAnnotation,
    /// The annotation has an old name, which still works.
    DeprecatedAnnotation,
    /// Two options, or an option and a field, contradict each other.
    ConflictingOptions,
    /// The option exists, but means nothing to this provider.
    OptionNotApplicable,
    /// The provider can't do what the option asks for.
    OptionNotSupported,
    /// A field of the Service's `spec` has a value that can't be.
    InvalidField,
    /// `loadBalancerClass` names no provider instance of this process.
    UnknownClass,
    /// The transport protocol can't be carried.
    ProtocolNotSupported,
    /// A source range is not a prefix in CIDR notation.
    InvalidSourceRange,
    /// The Secret with the certificate does not exist (yet).
    CertificateNotFound,
    /// The Secret exists, but holds no usable certificate and key, or no usable authority.
    InvalidCertificate,
    /// TLS toward members takes any certificate, as was asked for.
    MembersNotVerified,
    /// The requested address is no IP address.
    InvalidAddress,
    /// The requested address is in no pool.
    AddressNotInPool,
    /// The requested address is held by another Service.
    AddressInUse,
    /// Sharing the address was asked for and is not possible.
    AddressNotShareable,
    /// The address is set aside by `avoidBuggyIPs`.
    AddressAvoided,
    /// The requested addresses do not fit the address families of the Service.
    AddressFamilyMismatch,
    /// No pool has an address of a needed family.
    NoAddressOfFamily,
    /// A limit on what one Service or one namespace may ask for is reached, so that others have
    /// their share. What was there before stays.
    LimitReached,
    /// Every suitable pool is used up.
    PoolExhausted,
    /// The named address pool does not exist.
    PoolNotFound,
    /// The pool does not serve this namespace or these labels.
    PoolNotAllowed,
    /// An address pool is not usable as it is written.
    InvalidPool,
    /// No address pool is configured.
    NoPools,
    /// Address pools may be missing, because a source can't be read; until it can, no Service moves.
    PoolsInDoubt,
    /// The pool of a held address is gone or changed, so the address moves.
    AddressMoved,
    /// Another process listens on the port.
    PortInUse,
    /// The operating system does not let this process listen on the port.
    PortNotPermitted,
    /// The address is on no interface of this machine.
    AddressNotLocal,
    /// The listener could not be opened for another reason.
    ListenFailed,
    /// File descriptors, UDP ports or memory for buffers of the process run short.
    Overloaded,
    /// No node may be a member, so that there is nothing to send traffic to.
    NoEligibleNodes,
    /// An option about things of the cloud can't be followed as it stands.
    InvalidCloudOption,
    /// The cloud has no object of this id or name, or it is not ours to use.
    CloudObjectNotFound,
    /// The load balancer belongs to another Service or another cluster.
    NotOurs,
    /// The cloud says that the load balancer is broken.
    LoadBalancerFailed,
    /// The load balancer that the Service had is gone.
    LoadBalancerLost,
    /// A quota of the cloud is used up.
    QuotaExceeded,
    /// The floating IP is in use by something else.
    FloatingIpInUse,
    /// Who may connect was restricted, and the provider can't hold others off.
    SourceRangesNotEnforced,
    /// The Service has no endpoint: no member can serve.
    NoEndpoints,
    /// There are endpoints, and none is ready.
    NoReadyEndpoints,
    /// Every member fails its health check, or cannot be reached.
    NoHealthyMembers,
    /// An endpoint was left out of the pool.
    EndpointIgnored,
    /// An endpoint has an address that no member may have here: loopback, link-local, one of an
    /// address pool, or one that the operator does not let be a member.
    MemberNotAllowed,
    /// The provider is carrying out changes.
    Progressing,
    /// The provider could not be reached or failed; it is tried again.
    ProviderFailed,
    /// The same changes were made again and again without an end, so they are left alone for a while.
    NotConverging,
    /// Another program keeps rewriting the status of the Service.
    StatusContested,
    /// The last good version is served, because the newest one has errors.
    ServingPreviousVersion,
    /// Files can't be watched, so that changes are noticed late.
    ChangesNoticedLate,
    /// The state directory can't be written: what happens now would be forgotten at a restart.
    StateNotWritten,
    /// The API server has not told everything since the start: what was served before it is served.
    LastKnownState,
    /// A change was held back because it would remove too much at once.
    ChangeHeldBack,
    /// The Service is being removed.
    Removing,
    /// Everything that was asked for is there.
    Ready,
    /// The wish is valid.
    Accepted,
    /// The Service holds its addresses.
    Assigned,
    /// A newer version wrote a code that this one does not know. It is written over as soon as the
    /// Service is looked at.
    Unknown,
}

// === impl Reason ===

impl Reason {
    /// Something that makes the wish impossible as it stands.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, message)
    }

    /// Something that is ignored or done differently.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, message)
    }

    /// Something worth knowing.
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
