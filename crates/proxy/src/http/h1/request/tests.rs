use http::{Method, Request};
use landfall_model::listener::Http;
use proptest::prelude::*;

use super::*;
use crate::http::h1::head::MAX_FIELDS;

const NOTHING: Http = Http {
    forwarded_for: false,
    forwarded_proto: false,
    forwarded_port: false,
    member_http2: false,
    trusted_hops: None,
};
const EVERYTHING: Http = Http {
    forwarded_for: true,
    forwarded_proto: true,
    forwarded_port: true,
    member_http2: false,
    trusted_hops: None,
};

fn forwarding(http: Http) -> Forwarding {
    Forwarding::new(http, "192.0.2.7:5000".parse().unwrap(), false, 80)
}

/// Facts, and the head as a member gets it.
fn request(http: Http, head: &str) -> Result<(RequestFacts, String), Refusal> {
    let mut buffer = FieldBuffer::new();
    let head = RequestHead::read(head.as_bytes(), &mut buffer)?.expect("the head is complete");
    let mut out = Vec::new();
    head.write(&forwarding(http), &mut out);
    Ok((head.facts(), String::from_utf8(out).unwrap()))
}

fn refused(head: &str) -> Refusal {
    request(NOTHING, head).map(|(_, out)| out).unwrap_err()
}

fn facts(head: &str) -> RequestFacts {
    request(NOTHING, head).unwrap().0
}

#[test]
fn a_request_passes_with_its_host_and_order_and_case() {
    let head =
        "GET /a?b=c HTTP/1.1\r\nuser-AGENT: x\r\nHost: shop.example:8080\r\nAccept: */*\r\n\r\n";
    let (facts, out) = request(NOTHING, head).unwrap();
    assert_eq!(out, head);
    assert_eq!(
        facts,
        RequestFacts {
            length: head.len(),
            version: Version::Http11,
            framing: Framing::Empty,
            keep_alive: true,
            is_head: false,
            is_idempotent: true,
            expects_permission: false,
            upgrade: false,
        }
    );
}

#[test]
fn fields_for_one_hop_do_not_reach_the_member() {
    let (_, out) = request(
        NOTHING,
        "POST / HTTP/1.1\r\n\
        Host: a\r\n\
        Connection: keep-alive, X-Once, Content-Length\r\n\
        X-Once: 1\r\n\
        Keep-Alive: timeout=5\r\n\
        Proxy-Connection: keep-alive\r\n\
        TE: trailers\r\n\
        Upgrade: foo\r\n\
        Content-Length: 3\r\n\
        Cookie: c\r\n\
        \r\n",
    )
    .unwrap();
    assert_eq!(
        out,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nCookie: c\r\n\r\n"
    );
}

#[test]
fn forwarding_fields_are_added_or_continued() {
    let (_, out) = request(EVERYTHING, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(
        out,
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Port: 80\r\n\r\n"
    );
    let lied = "GET / HTTP/1.1\r\n\
               Host: a\r\n\
               x-forwarded-for: 10.0.0.1\r\n\
               X-Forwarded-Proto: https\r\n\
               X-Forwarded-Port: 443\r\n\
               X-Forwarded-For: 10.0.0.2\r\n\
               \r\n";
    let (_, out) = request(EVERYTHING, lied).unwrap();
    assert_eq!(
        out,
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2, 192.0.2.7\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Port: 80\r\n\r\n"
    );
    assert_eq!(request(NOTHING, lied).unwrap().1, lied);
}

#[test]
fn a_client_cannot_take_the_forwarding_fields_out_again() {
    let head =
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Forwarded-For, X-Forwarded-Proto, Host\r\n\r\n";
    let (_, out) = request(EVERYTHING, head).unwrap();
    assert!(
        out.contains("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n"),
        "{out}"
    );
    assert!(out.contains("Host: a\r\n"), "{out}");
}

#[test]
fn targets_are_taken_in_the_forms_that_a_gateway_meets() {
    for (line, host, wanted) in [
        (
            "GET http://b.example:81/x?y HTTP/1.1",
            "a",
            "GET /x?y HTTP/1.1\r\nHost: b.example:81\r\n\r\n",
        ),
        (
            "GET HTTPS://b.example HTTP/1.1",
            "a",
            "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
        ),
        (
            "GET http://b.example?x=/y?z HTTP/1.1",
            "a",
            "GET /?x=/y?z HTTP/1.1\r\nHost: b.example\r\n\r\n",
        ),
        (
            "OPTIONS http://b.example:81? HTTP/1.1",
            "a",
            "OPTIONS /? HTTP/1.1\r\nHost: b.example:81\r\n\r\n",
        ),
        (
            "OPTIONS http://b.example HTTP/1.1",
            "a",
            "OPTIONS * HTTP/1.1\r\nHost: b.example\r\n\r\n",
        ),
        (
            "OPTIONS * HTTP/1.1",
            "a",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            "GET //x HTTP/1.1",
            "a",
            "GET //x HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
    ] {
        let (_, out) = request(NOTHING, &format!("{line}\r\nHost: {host}\r\n\r\n")).unwrap();
        assert_eq!(out, wanted);
    }
    let broken = Refusal::Malformed("the request target is broken");
    for (line, wanted) in [
        ("CONNECT a:443 HTTP/1.1", Refusal::Connect),
        ("GET * HTTP/1.1", broken),
        ("GET a.example/x HTTP/1.1", broken),
        ("GET ftp://a/ HTTP/1.1", broken),
        ("GET http:///x HTTP/1.1", broken),
        ("GET http://user@a/ HTTP/1.1", broken),
        ("GET http://?x HTTP/1.1", broken),
        ("GET http://user@a?x HTTP/1.1", broken),
    ] {
        assert_eq!(
            refused(&format!("{line}\r\nHost: a\r\n\r\n")),
            wanted,
            "{line}"
        );
    }
}

#[test]
fn a_target_that_is_a_query_alone_is_of_the_root_for_an_http2_member_too() {
    let mut buffer = FieldBuffer::new();
    let head = b"GET http://b.example?x HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = RequestHead::read(head, &mut buffer).unwrap().unwrap();
    assert_eq!(head.target(), "/?x");
    let request = head.to_http2(&forwarding(NOTHING)).unwrap();
    assert_eq!(request.uri(), "http://b.example/?x");
}

#[test]
fn a_target_with_a_fragment_is_refused() {
    for target in ["/a#b", "/#", "/a?b#c", "http://a/b#c", "http://a#/", "*#"] {
        for method in ["GET", "OPTIONS"] {
            assert_eq!(
                refused(&format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n")),
                Refusal::Malformed("the request target is broken"),
                "{method} {target}"
            );
        }
    }
}

#[test]
fn connection_names_no_more_fields_than_can_be_looked_for() {
    let head = |options: usize| {
        let options: Vec<_> = (0..options).map(|number| format!("x-{number}")).collect();
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\nConnection: {}\r\nX-31: 1\r\n\r\n",
            ", ".repeat(2000),
            options.join(",")
        )
    };
    let (_, out) = request(NOTHING, &head(32)).unwrap();
    assert_eq!(out, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        refused(&head(33)),
        Refusal::Malformed("the Connection field has too many options")
    );
}

#[test]
fn the_body_is_framed_by_one_field_or_the_request_is_refused() {
    let framing = |fields: &str| {
        request(
            NOTHING,
            &format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
        )
        .map(|(facts, _)| facts.framing)
    };
    assert_eq!(framing(""), Ok(Framing::Empty));
    assert_eq!(framing("Content-Length: 0\r\n"), Ok(Framing::Length(0)));
    assert_eq!(
        framing("Content-Length: 9223372036854775807\r\n"),
        Ok(Framing::Length(u64::MAX / 2))
    );
    assert_eq!(
        framing("Transfer-Encoding: Chunked\r\n"),
        Ok(Framing::Chunked)
    );
    assert_eq!(
        framing("Transfer-Encoding: gzip, chunked\r\n"),
        Err(Refusal::Coding)
    );
    assert_eq!(
        framing("Transfer-Encoding: identity\r\n"),
        Err(Refusal::Coding)
    );
    for smuggled in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 010\r\n",
        "Content-Length: 00\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length : 5\r\n",
        "X: 1\r\n Transfer-Encoding: chunked\r\n",
        "X: 1\r\n\tfolded\r\n",
        "Transfer\u{0}-Encoding: chunked\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
        "X: a\u{0}b\r\n",
    ] {
        let error = framing(smuggled).unwrap_err();
        assert!(
            matches!(error, Refusal::Malformed(_)),
            "{smuggled:?}: {error:?}"
        );
    }
    let old = refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old, Refusal::Malformed("Transfer-Encoding in HTTP/1.0"));
}

#[test]
fn a_chunked_request_stays_chunked_with_one_plain_field() {
    let head =
        "POST / HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\nHost: a\r\nTrailer: Digest\r\n\r\n";
    let (_, out) = request(NOTHING, head).unwrap();
    assert_eq!(
        out,
        "POST / HTTP/1.1\r\nHost: a\r\nTrailer: Digest\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
}

#[test]
fn a_request_names_its_host_exactly_once() {
    assert_eq!(facts("GET / HTTP/1.0\r\n\r\n").version, Version::Http10);
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    ] {
        assert!(matches!(refused(head), Refusal::Malformed(_)), "{head:?}");
    }
}

#[test]
fn what_is_not_http_is_refused() {
    assert_eq!(
        refused("GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
        Refusal::Version
    );
    assert_eq!(
        refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
        Refusal::Version
    );
    for head in [
        "\u{16}\u{3}\u{1}\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        "G@T / HTTP/1.1\r\n\r\n",
    ] {
        assert!(matches!(refused(head), Refusal::Malformed(_)), "{head:?}");
    }
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: y\r\n".repeat(MAX_FIELDS)
    );
    assert_eq!(refused(&many), Refusal::HeadTooLarge);
}

#[test]
fn the_connection_goes_on_as_the_version_says_unless_a_field_says_otherwise() {
    for (version, fields, keep) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: foo\r\nConnection: x, CLOSE\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(facts(&head).keep_alive, keep, "{head:?}");
    }
}

#[test]
fn upgrades_pass_except_to_http_itself() {
    let upgrade = |fields: &str| {
        request(
            NOTHING,
            &format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
        )
        .unwrap()
    };
    let (facts, out) = upgrade("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket\r\n");
    assert!(facts.upgrade);
    assert_eq!(
        out,
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    );
    // Clients in Go say so of each POST without a body: kubectl exec, docker attach.
    let (facts, out) = upgrade("Connection: upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n");
    assert!(facts.upgrade);
    assert!(out.contains("Upgrade: SPDY/3.1\r\n"), "{out}");
    for fields in [
        "Upgrade: websocket\r\n",
        "Connection: upgrade\r\n",
        "Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        "Connection: upgrade\r\nUpgrade: websocket, h2c\r\n",
        "Connection: upgrade\r\nUpgrade: HTTP/2.0\r\n",
        "Connection: upgrade\r\nUpgrade: H2C-14\r\n",
        "Connection: upgrade\r\nUpgrade: TLS/1.2\r\n",
        "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n",
    ] {
        let (facts, out) = upgrade(fields);
        assert!(
            !facts.upgrade && !out.to_lowercase().contains("upgrade"),
            "{fields:?}: {out:?}"
        );
    }
    let old = "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert!(!self::facts(old).upgrade);
}

#[test]
fn a_field_that_only_looks_like_one_of_the_proxy_reaches_no_member() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 6.6.6.6\r\n\
                X-Forwarded_Proto: https\r\nTransfer_Encoding: chunked\r\nContent_Length: 5\r\n\
                X_Own: 1\r\n\r\n";
    let (facts, out) = request(NOTHING, head).unwrap();
    assert_eq!(facts.framing, Framing::Empty);
    assert_eq!(out, "POST / HTTP/1.1\r\nHost: a\r\nX_Own: 1\r\n\r\n");
    let none_believed = Http {
        trusted_hops: Some(0),
        ..NOTHING
    };
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Client-Cert: By=evil\r\n\r\n";
    let (_, out) = request(none_believed, head).unwrap();
    assert_eq!(out, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(request(NOTHING, head).unwrap().1, head);
}

#[test]
fn expectations_mean_nothing_in_http_1_0() {
    let head = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    let (_, out) = request(NOTHING, head).unwrap();
    assert_eq!(
        out,
        "POST / HTTP/1.1\r\nHost: \r\nContent-Length: 1\r\n\r\n"
    );
}

#[test]
fn a_request_for_an_http2_member_has_its_host_in_the_authority() {
    let mut buffer = FieldBuffer::new();
    let head = b"POST /x HTTP/1.1\r\nHost: a.example\r\nConnection: x-once\r\nX-Once: 1\r\n\
                 X-Forwarded-For: 10.0.0.1\r\nTransfer-Encoding: chunked\r\nX-Kept: 1\r\n\r\n";
    let head = RequestHead::read(head, &mut buffer).unwrap().unwrap();
    let request = head.to_http2(&forwarding(EVERYTHING)).unwrap();
    assert_eq!(request.uri(), "http://a.example/x");
    assert_eq!(request.method(), "POST");
    let mut fields: Vec<_> = request.headers().iter().collect();
    fields.sort_by_key(|(name, _)| name.as_str());
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    assert_eq!(
        fields,
        [
            "x-forwarded-for: 10.0.0.1, 192.0.2.7",
            "x-forwarded-port: 80",
            "x-forwarded-proto: http",
            "x-kept: 1",
        ]
    );
}

#[test]
fn what_others_said_of_the_client_reaches_an_http2_member_once() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    for (http, wanted) in [(NOTHING, "192.0.2.1"), (EVERYTHING, "192.0.2.1, 192.0.2.7")] {
        let mut buffer = FieldBuffer::new();
        let head = RequestHead::read(head, &mut buffer).unwrap().unwrap();
        let client = "192.0.2.7:5000".parse().unwrap();
        let request = head
            .to_http2(&Forwarding::new(http, client, false, 80))
            .unwrap();
        let values: Vec<_> = request
            .headers()
            .get_all("x-forwarded-for")
            .iter()
            .collect();
        assert_eq!(values, [wanted]);
    }
}

#[test]
fn a_request_that_came_over_http2_is_written_as_an_ordinary_one() {
    let write = |request: http::request::Builder, is_empty| {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut out = Vec::new();
        let framing = write_request(&parts, "a.example", is_empty, &mut out);
        (framing, String::from_utf8(out).unwrap())
    };
    let request = Request::get("http://a.example/x?y")
        .header("cookie", "a=1")
        .header("accept", "*/*")
        .header("cookie", "b=2");
    assert_eq!(
        write(request, true),
        (
            Framing::Empty,
            "GET /x?y HTTP/1.1\r\nhost: a.example\r\naccept: */*\r\ncookie: a=1; b=2\r\n\r\n"
                .into()
        )
    );
    for (request, is_empty, framing, line) in [
        (
            Request::post("/"),
            true,
            Framing::Empty,
            "content-length: 0\r\n",
        ),
        (
            Request::post("/"),
            false,
            Framing::Chunked,
            "transfer-encoding: chunked\r\n",
        ),
        (
            Request::put("/").header("content-length", 5),
            false,
            Framing::Length(5),
            "content-length: 5\r\n",
        ),
        (Request::delete("/"), true, Framing::Empty, ""),
    ] {
        let (found, out) = write(request, is_empty);
        assert_eq!(found, framing);
        assert!(
            out.ends_with(&format!(" / HTTP/1.1\r\nhost: a.example\r\n{line}\r\n")),
            "{out}"
        );
    }
    let (_, out) = write(Request::builder().method(Method::OPTIONS).uri("*"), true);
    assert!(out.starts_with("OPTIONS * HTTP/1.1\r\n"), "{out}");
}

#[test]
fn an_incomplete_head_is_waited_for() {
    let whole = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for end in 0..whole.len() {
        let mut buffer = FieldBuffer::new();
        let head = RequestHead::read(&whole.as_bytes()[..end], &mut buffer);
        assert!(matches!(head, Ok(None)), "{end}");
    }
}

proptest! {
    /// Whatever passes must be read by the next parser as it was read here.
    #[test]
    fn what_is_written_reads_as_the_same_request(
        head in "(GET|POST|HEAD) (/[a-z]{0,3}|http://[a-z]{1,3}/) HTTP/1\\.[01]\r\n\
                ((Host: [a-z]|X-[A-Z]: [ -~]{0,4}|Connection: (close|upgrade|x-[a-z])|Upgrade: \
                [a-z]|Content-Length: [0-9]{0,2}|Transfer-Encoding: (chunked|gzip)|TE: \
                trailers|[a-zA-Z:\t ]{1,6})\r?\n\
                ){0,5}\r\n",
    ) {
        if let Ok((facts, out)) = request(EVERYTHING, &head) {
            let again = request(NOTHING, &out.replacen("\r\n", "\r\nHost: a\r\n",
                usize::from(!out.contains("\r\nHost: "))));
            let (again, _) = again.expect("what the proxy writes is never refused");
            prop_assert_eq!(again.framing, facts.framing);
            prop_assert_eq!(again.is_head, facts.is_head);
            prop_assert_eq!(again.upgrade, facts.upgrade);
            prop_assert_eq!(again.version, Version::Http11);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RequestHead::read(&bytes, &mut FieldBuffer::new()).map(|_| ());
    }
}
