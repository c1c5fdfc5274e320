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
    ApiError::answered("POST /v2/lbaas/listeners", status, &map, body.as_bytes())
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
    let keystone = r#"{"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}}"#;
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

#[test]
fn a_404_of_a_proxy_does_not_say_that_an_object_is_gone() {
    for body in [
        "<html><title>404</title><h1>No such site</h1></html>",
        "",
        "{}",
        "[]",
        "null",
    ] {
        assert_eq!(answer(404, body).kind, ErrorKind::Unreadable, "{body}");
    }
    assert_eq!(
        answer(404, "<h1>No  such</h1>\n site").message,
        "No such site"
    );
}

#[test]
fn retry_after_is_read_as_seconds_and_as_a_date() {
    let error = answer_with(429, "", &[("retry-after", "7")]);
    assert_eq!(
        (error.kind, error.retry_after),
        (ErrorKind::Throttled, Some(Duration::from_secs(7)))
    );
    let dates = [
        ("retry-after", "Fri, 20 Nov 2026 10:00:30 GMT"),
        ("date", "Fri, 20 Nov 2026 10:00:00 GMT"),
    ];
    let error = answer_with(503, "", &dates);
    assert_eq!(
        (error.kind, error.retry_after),
        (ErrorKind::Throttled, Some(Duration::from_secs(30)))
    );
    assert_eq!(
        answer_with(429, "", &[("retry-after", "soon")]).retry_after,
        None
    );
    // Nobody waits for a year because of one header.
    for far in ["301", "31536000", "18446744073709551615"] {
        let error = answer_with(503, "", &[("retry-after", far)]);
        assert_eq!(error.retry_after, Some(Duration::from_secs(300)), "{far}");
    }
    let error = answer_with(
        503,
        "",
        &[("retry-after", "Thu, 20 Nov 2031 10:00:00 GMT"), dates[1]],
    );
    assert_eq!(error.retry_after, Some(Duration::from_secs(300)));
    let past = [dates[0], ("date", "Fri, 20 Nov 2026 11:00:00 GMT")];
    assert_eq!(
        answer_with(503, "", &past).retry_after,
        Some(Duration::ZERO)
    );
    assert_eq!(answer(503, "").kind, ErrorKind::Unavailable);
    assert_eq!(answer(429, "").kind, ErrorKind::Throttled);
}

#[test]
fn a_redirect_is_an_error_that_names_where_to() {
    let error = answer_with(
        301,
        "",
        &[("location", "https://cloud.example/v2/lbaas/listeners")],
    );
    assert_eq!(error.kind, ErrorKind::Unreadable);
    assert!(error.message.contains("https://cloud.example"), "{error}");
    let to = Some("https://cloud.example/v2/lbaas/listeners");
    assert_eq!(error.redirect.as_deref(), to);
}

#[test]
fn an_error_reads_as_request_status_words_and_id() {
    let error = answer_with(409, &octavia("no"), &[("x-openstack-request-id", "req-1")]);
    assert_eq!(
        error.to_string(),
        "POST /v2/lbaas/listeners: 409 no (req-1)"
    );
}

#[test]
fn long_words_are_cut_between_letters() {
    let text = shortened(&"ä".repeat(2000));
    assert_eq!(text.chars().count(), LONGEST_MESSAGE + 3);
}

#[test]
fn only_what_can_pass_by_itself_is_passing() {
    use ErrorKind::*;
    let passing = [
        Busy,
        Halved,
        Stale,
        Throttled,
        Unavailable,
        Unreachable,
        Lost,
        Unreadable,
    ];
    for kind in [
        Busy,
        Conflict,
        NotFound,
        Forbidden,
        Quota,
        NoAddresses,
        TooLarge,
        Halved,
        Invalid,
        Unsupported,
        Unauthorized,
        Stale,
        Throttled,
        Unavailable,
        Unreachable,
        Lost,
        Unreadable,
        NoService,
        Moved,
    ] {
        let error = ApiError::ours(kind, "GET /", "");
        assert_eq!(error.is_passing(), passing.contains(&kind), "{kind:?}");
    }
    assert!(!ApiError::ours(Unreachable, "POST /", "").may_be_done());
    assert!(ApiError::ours(Lost, "POST /", "").may_be_done());
}
