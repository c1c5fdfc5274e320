use std::num::NonZeroU16;

use landfall_model::Protocol;
use landfall_model::listener::Listener;

use super::*;

const NOW: Timestamp = Timestamp::constant(1_700_000_000, 500_000_000);

fn note(log: AccessLog) -> Note {
    let key = Listener::new(Protocol::Tcp, NonZeroU16::new(80).unwrap()).key;
    let address = "192.0.2.1".parse().unwrap();
    let (service, client) = (ServiceKey::new("shop", "web"), "198.51.100.7:4711");
    let listener = ListenerId { address, key };
    let client = client.parse().unwrap();
    Note::new(
        &Arc::new(log),
        &Account::unlimited(),
        &service,
        listener,
        client,
    )
}

fn log(format: Format) -> (AccessLog, Receiver<Vec<u8>>) {
    AccessLog::new(format, Sample::ALL, false)
}

fn asked(note: &mut Note, target: &str, agent: &str) {
    note.asked("HTTP/1.1", ("GET", target), |name| match name {
        "host" => Some(b"shop.example"),
        "user-agent" => Some(agent.as_bytes()),
        _ => None,
    });
    let facts = note.facts();
    facts.member = Some("10.0.0.5:8080".parse().unwrap());
    (facts.status, facts.bytes_in, facts.bytes_out) = (200, 99, 1234);
    facts.first_byte = Some(Duration::from_millis(12));
    facts.end = OK;
}

fn write(format: Format, note: &Note) -> String {
    let took = Duration::from_millis(1500);
    String::from_utf8(line(format, &note.facts, NOW, took)).unwrap()
}

#[test]
fn a_request_is_one_line_of_each_format() {
    let mut note = note(log(Format::Json).0);
    asked(&mut note, "/cart?token=secret", "curl/8");
    assert_eq!(
        write(Format::Json, &note),
        "{\"time\":\"2023-11-14T22:13:19.000Z\",\"service\":\"shop/web\",\
         \"listener\":\"192.0.2.1:80/TCP\",\"client\":\"198.51.100.7:4711\",\
         \"version\":\"HTTP/1.1\",\"method\":\"GET\",\"host\":\"shop.example\",\
         \"target\":\"/cart\",\"userAgent\":\"curl/8\",\"member\":\"10.0.0.5:8080\",\
         \"end\":\"ok\",\"status\":200,\"bytesIn\":99,\"bytesOut\":1234,\
         \"firstByte\":0.012000,\"duration\":1.500000}\n"
    );
    let common = "198.51.100.7 - - [14/Nov/2023:22:13:19 +0000] \"GET /cart HTTP/1.1\" 200 1234";
    assert_eq!(write(Format::Common, &note), format!("{common}\n"));
    let combined = format!("{common} \"-\" \"curl/8\"\n");
    assert_eq!(write(Format::Combined, &note), combined);
}

#[test]
fn a_stream_is_one_line_of_each_format() {
    let mut note = note(log(Format::Json).0);
    note.facts().bytes_out = 5;
    let common = "198.51.100.7 - - [14/Nov/2023:22:13:19 +0000] \"TCP 192.0.2.1:80\" - 5\n";
    assert_eq!(write(Format::Common, &note), common);
    let json = write(Format::Json, &note);
    assert!(json.contains("\"end\":\"cut\",\"bytesIn\":0"), "{json}");
    assert!(
        !json.contains("status") && !json.contains("method"),
        "{json}"
    );
}

#[test]
fn a_client_forges_no_line_and_speaks_to_no_terminal() {
    let mut note = note(AccessLog::new(Format::Json, Sample::ALL, true).0);
    let hostile = "/\r\n127.0.0.1 - - \"x\" \\\" \u{1b}[2J\u{9b}31m \u{202e}\0\u{7f}";
    asked(&mut note, hostile, hostile);
    for format in [Format::Json, Format::Common, Format::Combined] {
        let line = write(format, &note);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let printable = |letter: char| matches!(letter, ' '..='~' | '\n');
        assert!(line.chars().all(printable), "{line}");
    }
    let combined = write(Format::Combined, &note);
    assert!(combined.contains(r#"GET /\x0d\x0a127.0.0.1 - - \"x\" \\\" \x1b[2J"#));
    let json = write(Format::Json, &note);
    assert!(json.contains(r#""target":"/\u000d\u000a127.0.0.1 - - \"x\" \\\" \u001b"#));
}

#[test]
fn a_line_has_a_bounded_length() {
    let mut note = note(log(Format::Json).0);
    let long = "\u{1b}".repeat(32 * 1024);
    note.asked("HTTP/1.1", (&long, &long), |_| Some(long.as_bytes()));
    for format in [Format::Json, Format::Common, Format::Combined] {
        let length = write(format, &note).len();
        assert!(length <= MAX_LINE, "{length}");
    }
}

#[test]
fn queries_are_kept_only_where_that_was_asked_for() {
    for (keeps_query, target) in [(false, "/a"), (true, "/a?b=c")] {
        let mut note = note(AccessLog::new(Format::Json, Sample::ALL, keeps_query).0);
        asked(&mut note, "/a?b=c", "");
        let request = note.facts().request.clone().unwrap();
        assert_eq!(request.target, target.as_bytes());
    }
}

/// Puts a line of which this is drawn, at this time.
fn put(note: &Note, now: Instant, draw: u32) {
    let times = (note.began, now);
    note.log
        .put(&note.facts, note.account.failures(), times, draw);
}

#[test]
fn a_sample_has_its_share_of_lines_and_failures_beside_it() {
    assert!(!Sample::share(0.0).keeps(0));
    assert!(Sample::share(1.0).keeps(u32::MAX));
    assert!(Sample::share(0.25).keeps(u32::MAX / 4 - 1));
    assert!(!Sample::share(0.25).keeps(u32::MAX / 4 + 1));
    let (log, lines) = AccessLog::new(Format::Json, Sample::share(0.5), false);
    let mut note = note(log);
    asked(&mut note, "/", "");
    let now = note.began;
    put(&note, now, u32::MAX);
    assert_eq!(lines.try_iter().count(), 0);
    put(&note, now, 7);
    assert_eq!(lines.try_iter().count(), 1);
    note.facts().status = 503;
    put(&note, now, u32::MAX);
    note.facts().status = 200;
    note.facts().end = CLIENT_ABORT;
    put(&note, now, u32::MAX);
    assert_eq!(lines.try_iter().count(), 2);
    assert_eq!(note.log.left_out(), 0);
}

#[test]
fn clients_that_break_off_without_end_fill_no_disk() {
    let (log, lines) = AccessLog::new(Format::Json, Sample::share(0.0), false);
    let mut loud = note(log);
    loud.facts().end = CLIENT_ABORT;
    let start = loud.began;
    let written = |note: &Note, now| {
        (0..5000).for_each(|_| put(note, now, 0));
        lines.try_iter().count()
    };
    assert_eq!(written(&loud, start), 1000);
    assert_eq!(written(&loud, start + Duration::from_secs(3)), 30);
    assert_eq!(loud.log.left_out(), 10_000 - 1030);
    // Another Service has its own, and what is in the sample counts for none.
    let calm = Note {
        account: Account::unlimited(),
        log: loud.log.clone(),
        began: start,
        facts: loud.facts.clone(),
    };
    assert_eq!(written(&calm, start), 1000);
}

#[test]
fn where_every_line_is_asked_for_failures_are_written_without_a_limit() {
    let (log, lines) = log(Format::Json);
    let mut note = note(log);
    note.facts().end = CLIENT_ABORT;
    (0..3000).for_each(|_| put(&note, note.began, u32::MAX));
    assert_eq!((lines.try_iter().count(), note.log.left_out()), (3000, 0));
}

#[test]
fn a_line_without_room_is_counted_and_keeps_no_one_waiting() {
    let (log, lines) = log(Format::Json);
    let note = note(log);
    let log = note.log.clone();
    for _ in 0..QUEUE + 3 {
        put(&note, note.began, 0);
    }
    assert_eq!(log.lost(), 3);
    drop(lines);
    drop(note);
    assert_eq!(log.lost(), 4);
}
