use http::Method;
use proptest::prelude::*;

use super::*;

fn get() -> RequestFacts {
    RequestFacts::of_http2(&Method::GET, Framing::Empty)
}

fn respond(
    head: &str,
    asked: RequestFacts,
    style: ResponseStyle,
) -> Result<(ResponseFacts, String), BadResponse> {
    let mut buffer = FieldBuffer::new();
    let head =
        ResponseHead::read(head.as_bytes(), &mut buffer, asked)?.expect("the head is complete");
    let mut out = Vec::new();
    head.write(style, &mut out);
    Ok((head.facts(), String::from_utf8(out).unwrap()))
}

const STYLE: ResponseStyle = ResponseStyle {
    version: Version::Http11,
    keep_alive: true,
    enchunk: false,
};

#[test]
fn a_response_passes_without_fields_for_one_hop() {
    let head = "HTTP/1.1 404 Nothing Here\r\nServer: s\r\nConnection: X-Once\r\nX-Once: 1\r\n\
                Keep-Alive: timeout=5\r\nContent-Length: 3\r\n\r\n";
    let (facts, out) = respond(head, get(), STYLE).unwrap();
    assert_eq!(
        out,
        "HTTP/1.1 404 Nothing Here\r\nServer: s\r\nContent-Length: 3\r\n\r\n"
    );
    assert_eq!(
        facts,
        ResponseFacts {
            length: head.len(),
            status: 404,
            framing: Framing::Length(3),
            keep_alive: true
        }
    );
}

#[test]
fn responses_are_framed_for_the_version_of_the_client() {
    let old = |keep_alive| ResponseStyle {
        version: Version::Http10,
        keep_alive,
        enchunk: false,
    };
    let close = ResponseStyle {
        keep_alive: false,
        ..STYLE
    };
    let enchunk = ResponseStyle {
        enchunk: true,
        ..STYLE
    };
    for (fields, style, wanted) in [
        (
            "Transfer-Encoding: chunked",
            STYLE,
            "Transfer-Encoding: chunked",
        ),
        (
            "Transfer-Encoding: chunked",
            old(false),
            "Connection: close",
        ),
        (
            "Content-Length: 3",
            old(true),
            "Content-Length: 3\r\nConnection: keep-alive",
        ),
        (
            "Content-Length: 3",
            close,
            "Content-Length: 3\r\nConnection: close",
        ),
        ("X: y", enchunk, "X: y\r\nTransfer-Encoding: chunked"),
    ] {
        let (_, out) = respond(
            &format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n"),
            get(),
            style,
        )
        .unwrap();
        assert_eq!(out, format!("HTTP/1.1 200 OK\r\n{wanted}\r\n\r\n"));
    }
}

#[test]
fn some_responses_never_have_a_body() {
    let head = RequestFacts {
        is_head: true,
        ..get()
    };
    for (line, asked, fields, written) in [
        (
            "200 OK",
            head,
            "Content-Length: 9\r\n",
            "Content-Length: 9\r\n",
        ),
        (
            "200 OK",
            head,
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\n",
        ),
        ("204 No Content", get(), "Content-Length: 9\r\n", ""),
        (
            "304 Not Modified",
            get(),
            "Content-Length: 9\r\n",
            "Content-Length: 9\r\n",
        ),
        ("100 Continue", get(), "", ""),
        ("103 Early Hints", get(), "Link: </x>\r\n", "Link: </x>\r\n"),
    ] {
        let text = format!("HTTP/1.1 {line}\r\n{fields}\r\n");
        let (facts, out) = respond(&text, asked, STYLE).unwrap();
        assert_eq!(facts.framing, Framing::Empty, "{text:?}");
        assert_eq!(out, format!("HTTP/1.1 {line}\r\n{written}\r\n"));
    }
}

#[test]
fn a_response_whose_end_is_unsure_is_refused() {
    for (head, wanted) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            BadResponse::Framing,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            BadResponse::Framing,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            BadResponse::Framing,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            BadResponse::Framing,
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            BadResponse::Framing,
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            BadResponse::Unasked,
        ),
        ("HTTP/1.1 099 What\r\n\r\n", BadResponse::Head),
        ("HTTP/1.1 OK\r\n\r\n", BadResponse::Head),
        ("220 mail.example ESMTP\r\n\r\n", BadResponse::Head),
    ] {
        assert_eq!(respond(head, get(), STYLE).unwrap_err(), wanted, "{head:?}");
    }
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}\r\n",
        "X: y\r\n".repeat(MAX_FIELDS + 1)
    );
    assert_eq!(
        respond(&many, get(), STYLE).unwrap_err(),
        BadResponse::TooManyFields
    );
}

#[test]
fn a_response_without_length_ends_with_its_connection() {
    let (facts, _) = respond("HTTP/1.1 200 OK\r\n\r\n", get(), STYLE).unwrap();
    assert_eq!(
        (facts.framing, facts.keep_alive),
        (Framing::UntilClose, false)
    );
    let (facts, _) = respond("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", get(), STYLE).unwrap();
    assert!(!facts.keep_alive);
}

#[test]
fn a_member_that_was_asked_may_switch_protocols() {
    let asked = RequestFacts {
        upgrade: true,
        ..get()
    };
    let head =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let (facts, out) = respond(head, asked, STYLE).unwrap();
    assert_eq!(facts.status, 101);
    assert_eq!(
        out,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    );
}

#[test]
fn a_response_for_an_http2_client_has_no_fields_for_one_hop() {
    let head = "HTTP/1.1 207 Multi\r\n\
               Connection: X-Once\r\n\
               X-Once: 1\r\n\
               Transfer-Encoding: chunked\r\n\
               Keep-Alive: x\r\n\
               Upgrade: h2c\r\n\
               Set-Cookie: a\r\n\
               Set-Cookie: b\r\n\
               \r\n";
    let mut buffer = FieldBuffer::new();
    let head = ResponseHead::read(head.as_bytes(), &mut buffer, get())
        .unwrap()
        .unwrap();
    let response = head.to_response();
    assert_eq!(response.status(), 207);
    let fields: Vec<_> = response.headers().iter().collect();
    assert_eq!(fields.len(), 2);
    assert!(fields.iter().all(|(name, _)| *name == "set-cookie"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = ResponseHead::read(&bytes, &mut FieldBuffer::new(), get()).map(|_| ());
    }
}
