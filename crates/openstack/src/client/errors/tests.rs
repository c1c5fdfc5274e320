use http::HeaderMap;
use landfall_rest::ApiError;

use super::*;

fn answer(status: u16, body: &str) -> ApiError {
    answer_with(status, body, &[])
}

fn answer_with(status: u16, body: &str, headers: &[(&'static str, &str)]) -> ApiError {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, value.parse().unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    ApiError::answered(
        &FORMAT,
        "POST /v2/lbaas/listeners",
        status,
        &map,
        body.as_bytes(),
    )
}

fn octavia(text: &str) -> String {
    serde_json::json!({"faultcode": "Client", "faultstring": text, "debuginfo": null}).to_string()
}

fn neutron(code: &str, text: &str) -> String {
    serde_json::json!({"NeutronError": {"type": code, "message": text, "detail": ""}}).to_string()
}

#[test]
fn each_refusal_of_octavia_has_its_kind() {
    use ErrorKind::*;
    let id = "8dc7e3b8-2a4e-4a3e-93c2-8f4c0e3c8b11";
    for (status, text, kind) in [
        (
            409,
            format!("Load Balancer {id} is immutable and cannot be updated."),
            Busy,
        ),
        (
            409,
            format!("Invalid state PENDING_UPDATE of loadbalancer resource {id}"),
            Busy,
        ),
        (
            409,
            "Another Listener on this Load Balancer is already using protocol TCP and \
              protocol_port 80"
                .to_owned(),
            Conflict,
        ),
        (
            409,
            "This listener already has a default pool".to_owned(),
            Conflict,
        ),
        (
            409,
            format!(
                "The VIP IP address is already in use: IP address 10.0.0.5 already allocated \
                      in subnet {id}"
            ),
            Conflict,
        ),
        (
            409,
            "The VIP IP address is already in use: Quota exceeded for resources: \
              ['port']."
                .to_owned(),
            Quota,
        ),
        (
            409,
            format!(
                "The VIP IP address is already in use: No more IP addresses available on \
                      network {id}."
            ),
            NoAddresses,
        ),
        (
            403,
            "Quota has been met for resources: Load Balancer".to_owned(),
            Quota,
        ),
        (
            403,
            "Policy does not allow this request to be performed.".to_owned(),
            Forbidden,
        ),
        (404, format!("Load Balancer {id} not found."), NotFound),
        (
            400,
            "Validation failure: it has children".to_owned(),
            Invalid,
        ),
        (
            501,
            "Provider 'ovn' does not support a requested option: OVN provider does not support \
              allowed_cidrs option"
                .to_owned(),
            Unsupported,
        ),
        (
            500,
            "Provider 'ovn' reports error: no".to_owned(),
            Unavailable,
        ),
        (413, "Request is too large.".to_owned(), TooLarge),
        (413, "Quota exceeded for instances".to_owned(), Quota),
    ] {
        let error = answer(status, &octavia(&text));
        assert_eq!((error.kind, error.message.as_str()), (kind, text.as_str()));
    }
}

#[test]
fn each_refusal_of_neutron_has_its_kind_and_name() {
    use ErrorKind::*;
    for (status, code, text, kind) in [
        (
            409,
            "OverQuota",
            "Quota exceeded for resources: ['floatingip'].",
            Quota,
        ),
        (
            409,
            "IpAddressGenerationFailure",
            "No more IP addresses available on network n.",
            NoAddresses,
        ),
        (
            400,
            "ExternalIpAddressExhausted",
            "Unable to find any IP address on external network n.",
            NoAddresses,
        ),
        (
            409,
            "SecurityGroupInUse",
            "Security Group s in use.",
            Conflict,
        ),
        (
            409,
            "SecurityGroupRuleExists",
            "Security group rule already exists. Rule id is r.",
            Conflict,
        ),
        (
            412,
            "RevisionNumberConstraintFailed",
            "Constrained to 3, but current revision is 4",
            Stale,
        ),
        (
            403,
            "PolicyNotAuthorized",
            "rule:create_floatingip is disallowed by policy",
            Forbidden,
        ),
        (
            404,
            "ExternalGatewayForFloatingIPNotFound",
            "External network n is not reachable from subnet s.",
            NotFound,
        ),
        (
            400,
            "HTTPBadRequest",
            "Attribute 'tags' not allowed in POST",
            Invalid,
        ),
    ] {
        let error = answer(status, &neutron(code, text));
        assert_eq!((error.kind, error.message.as_str()), (kind, text));
        assert_eq!(error.code.as_deref(), Some(code));
    }
}

#[test]
fn words_of_keystone_barbican_and_old_services_are_found() {
    let keystone = r#"{"error": {"code": 401,
        "message": "The request you have made requires authentication.",
        "title": "Unauthorized"}}"#;
    let error = answer(401, keystone);
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert_eq!(
        error.message,
        "The request you have made requires authentication."
    );
    let barbican = r#"{"code": 404, "title": "Not Found", "description": "Secret not found."}"#;
    let error = answer(404, barbican);
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::NotFound, "Secret not found.")
    );
    let old = r#"{"overLimit": {"code": 413, "message": "This request was rate-limited."}}"#;
    let error = answer_with(413, old, &[("retry-after", "4")]);
    assert_eq!(error.kind, ErrorKind::Throttled);
    assert_eq!(error.message, "This request was rate-limited.");
}
