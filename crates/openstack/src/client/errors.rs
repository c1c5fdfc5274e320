//! How the services of OpenStack word their errors.

use http::StatusCode;
use landfall_rest::{ErrorBody, ErrorFormat, ErrorKind};
use serde_json::{Map, Value};

/// The format of Octavia, Neutron, Keystone and Barbican.
pub(super) const FORMAT: ErrorFormat = ErrorFormat {
    request_id: "x-openstack-request-id",
    read,
    classify,
};

/// Reads Octavia's `faultstring`; Neutron's `NeutronError.message`; Keystone's `error.message`;
/// Barbican's `description`; of older services and proxies, an object with `message` under any one
/// name.
fn read(body: &Map<String, Value>) -> ErrorBody {
    let inner = body
        .get("NeutronError")
        .or_else(|| body.get("error"))
        .or_else(|| body.values().find(|value| value["message"].is_string()));
    let message = ["faultstring", "message", "description"]
        .iter()
        .find_map(|key| body.get(*key).and_then(Value::as_str))
        .or_else(|| inner.and_then(|inner| inner["message"].as_str().or(inner.as_str())))
        .or_else(|| body.get("title").and_then(Value::as_str));
    let code = inner.and_then(|inner| inner["type"].as_str());
    ErrorBody {
        message: message.map(str::to_owned),
        code: code.map(str::to_owned),
    }
}

/// Finds what the status alone does not say.
fn classify(status: StatusCode, text: &str, code: Option<&str>) -> Option<ErrorKind> {
    let is = |name: &str| code == Some(name);
    let no_addresses = is("IpAddressGenerationFailure")
        || is("ExternalIpAddressExhausted")
        || text.contains("No more IP addresses")
        || text.contains("Unable to find any IP address on external network");
    let quota = is("OverQuota")
        || text.contains("Quota exceeded for resources")
        || text.contains("Quota has been met")
        || text.contains("uota exceeded");
    match status.as_u16() {
        403 | 409 | 413 if quota => Some(ErrorKind::Quota),
        400 | 403 | 409 if no_addresses => Some(ErrorKind::NoAddresses),
        409 if text.contains("is immutable") || text.contains("Invalid state ") => {
            Some(ErrorKind::Busy)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
