//! Limits of sources and of members.

use landfall_model::protection::{Protection, Rate, SourceLimits};

use super::*;

#[test]
fn limits_of_sources_and_members_reach_the_listener() {
    let asked = listener(
        web()
            .annotated("landfall.dev/mode", "http")
            .annotated("landfall.dev/source-connection-limit", "100")
            .annotated("landfall.dev/source-connection-rate", "600/m burst=50")
            .annotated("landfall.dev/source-request-rate", "20/s")
            .annotated("landfall.dev/member-connection-limit", "7")
            .annotated("landfall.dev/member-queue", "0")
            .annotated("landfall.dev/member-queue-timeout", "2s")
            .annotated("landfall.dev/slow-start", "30s")
            .annotated("landfall.dev/outlier-detection", "5")
            .annotated("landfall.dev/retry-budget", "0%"),
    );
    let rate = |count, seconds, burst| {
        Some(Rate {
            count,
            period: Duration::from_secs(seconds),
            burst,
        })
    };
    assert_eq!(
        asked.source_limits,
        SourceLimits {
            connections: Some(100),
            connection_rate: rate(600, 60, 50),
            request_rate: rate(20, 1, 20),
        }
    );
    assert_eq!(
        asked.pool.protection,
        Protection {
            connections: Some(7),
            queue: 0,
            queue_timeout: Duration::from_secs(2),
            slow_start: Duration::from_secs(30),
            outlier_failures: Some(5),
            retry_budget: 0,
        }
    );
}

#[test]
fn what_was_recorded_before_there_were_limits_has_none() {
    let mut recorded = serde_json::to_value(listener(web())).unwrap();
    assert_eq!(recorded.get("sourceLimits"), None);
    assert_eq!(recorded["pool"].get("protection"), None);
    recorded["pool"]["protection"] = serde_json::json!({"connections": 3});
    let read: Listener = serde_json::from_value(recorded).unwrap();
    let expected = Protection {
        connections: Some(3),
        ..Protection::default()
    };
    assert_eq!(read.pool.protection, expected);
}

#[test]
fn a_request_rate_of_a_port_that_reads_no_requests_is_an_error() {
    let service = svc("web").named_port("web", 80);
    let errors = errors(service.annotated("landfall.dev/source-request-rate.web", "5/s"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].code, Code::ConflictingOptions);
    assert!(
        errors[0].message.contains("parse requests"),
        "{}",
        errors[0]
    );
}

#[test]
fn a_queue_where_nothing_waits_is_remarked() {
    let (_, remarks) = spec(web().annotated("landfall.dev/member-queue", "5"));
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert_eq!(remarks[0].code, Code::OptionNotApplicable);
    assert_eq!(
        remarks[0].remedy,
        "set landfall.dev/member-connection-limit, or remove this"
    );
}

#[test]
fn an_invalid_rate_gets_a_valid_example() {
    let wrong = [
        "5",
        "0/s",
        "5/d",
        "5/s burst=0",
        "5/s burst",
        "5/s burst=1 now",
        "-1/s",
        "1000001/s",
        "5 /s",
    ];
    for text in wrong {
        let errors = errors(web().annotated("landfall.dev/source-connection-rate", text));
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert_eq!(errors[0].value.as_deref(), Some(text));
        assert!(errors[0].remedy.contains("600/m burst=50"), "{}", errors[0]);
    }
    for text in ["20", "101%", "-1%", "%"] {
        let errors = errors(web().annotated("landfall.dev/retry-budget", text));
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].remedy.contains("20%"), "{}", errors[0]);
    }
    for text in ["0", "1001", "on"] {
        let errors = errors(web().annotated("landfall.dev/outlier-detection", text));
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].remedy.ends_with("or off"), "{}", errors[0]);
    }
}
