//! What failures of the data plane mean: a code, what to do, and when to try again. Pure.

use landfall_model::provider::{ProviderError, Retry, Scope};
use landfall_model::reason::{Code, Reason};
use landfall_proxy::ListenError;

/// What a listener that could not be opened means to an operator.
pub(crate) fn listen_failure(error: &ListenError) -> ProviderError {
    let (code, remedy) = match error {
        ListenError::InUse { .. } => (
            Code::PortInUse,
            "stop the process that listens there (`ss -ltnup` names it), or use another port or \
             address",
        ),
        ListenError::Permission { .. } => (
            Code::PortNotPermitted,
            "use a port from 1024 up, run with CAP_NET_BIND_SERVICE, or lower \
             net.ipv4.ip_unprivileged_port_start",
        ),
        ListenError::AddressNotHere { .. } => (
            Code::AddressNotLocal,
            "put the address on an interface (`ip address add ADDRESS/32 dev lo`), or use a pool \
             of addresses of this machine",
        ),
        ListenError::Sctp { .. } | ListenError::NeedsTcp { .. } => {
            (Code::ProtocolNotSupported, "use TCP or UDP for this port")
        }
        ListenError::Certificate { .. } => (
            Code::InvalidCertificate,
            "put a PEM certificate chain into tls.crt and its private key into tls.key",
        ),
        ListenError::Descriptors { .. } => (
            Code::ListenFailed,
            "use fewer ports, or raise the limit of open files (`LimitNOFILE=`)",
        ),
        _ => (Code::ListenFailed, ""),
    };
    let retry = match error {
        ListenError::Sctp { .. }
        | ListenError::NeedsTcp { .. }
        | ListenError::Certificate { .. } => Retry::OnChange,
        _ => Retry::Backoff,
    };
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    ProviderError {
        reason: Reason::error(code, message).remedy(remedy),
        retry,
        scope: Scope::Step,
    }
}
