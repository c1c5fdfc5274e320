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
        &ErrorFormat::COMMON,
        "POST /v1/listeners",
        status,
        &map,
        body.as_bytes(),
    )
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
    // One header must not hold requests back for a year.
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
        &[("location", "https://cloud.example/v1/listeners")],
    );
    assert_eq!(error.kind, ErrorKind::Unreadable);
    assert!(error.message.contains("https://cloud.example"), "{error}");
    let to = Some("https://cloud.example/v1/listeners");
    assert_eq!(error.redirect.as_deref(), to);
}

#[test]
fn an_error_reads_as_request_status_words_and_id() {
    let error = answer_with(409, r#"{"message": "no"}"#, &[("x-request-id", "req-1")]);
    assert_eq!(error.to_string(), "POST /v1/listeners: 409 no (req-1)");
}

#[test]
fn long_words_are_cut_between_letters() {
    let text = shortened(&"ä".repeat(2000));
    assert_eq!(text.chars().count(), MAX_MESSAGE + 3);
}

#[test]
fn only_what_can_pass_by_itself_is_transient() {
    use ErrorKind::*;
    let transient = [
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
        assert_eq!(error.is_transient(), transient.contains(&kind), "{kind:?}");
    }
    assert!(!ApiError::ours(Unreachable, "POST /", "").may_be_done());
    assert!(ApiError::ours(Lost, "POST /", "").may_be_done());
}

#[test]
fn messages_and_codes_of_the_usual_shapes_are_read() {
    for (body, message, code) in [
        (r#"{"message": "gone", "code": "E1"}"#, "gone", Some("E1")),
        (r#"{"error": "down"}"#, "down", None),
        (
            r#"{"error": {"message": "no", "code": "E2"}}"#,
            "no",
            Some("E2"),
        ),
        (
            r#"{"title": "Invalid Request Body", "detail": "port: too large"}"#,
            "port: too large",
            None,
        ),
        (
            r#"{"title": "Invalid Request Body"}"#,
            "Invalid Request Body",
            None,
        ),
        (r#"{"other": 1}"#, "Bad Request", None),
    ] {
        let error = answer(400, body);
        assert_eq!(error.kind, ErrorKind::Invalid);
        let read = (error.message.as_str(), error.code.as_deref());
        assert_eq!(read, (message, code), "{body}");
    }
}

#[test]
fn each_kind_says_when_to_try_again() {
    let retry = |kind, after: Option<u64>| {
        let mut error = ApiError::ours(kind, "GET /", "");
        error.retry_after = after.map(Duration::from_secs);
        error.retry()
    };
    let after = |seconds| Retry::After(Duration::from_secs(seconds));
    assert_eq!(retry(ErrorKind::Throttled, Some(30)), after(30));
    assert_eq!(retry(ErrorKind::Throttled, None), after(5));
    assert_eq!(retry(ErrorKind::Stale, None), Retry::Now);
    assert_eq!(retry(ErrorKind::Halved, None), Retry::Now);
    assert_eq!(retry(ErrorKind::Unavailable, Some(30)), Retry::Backoff);
}
