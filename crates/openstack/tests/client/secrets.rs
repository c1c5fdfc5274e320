//! No password and no token is ever seen: not in errors, not in the log, not in `Debug`.

use std::io::Write;
use std::sync::{Arc, Mutex};

use landfall_openstack::client::{CloudConfig, NoAnswer};
use landfall_openstack::objects::Id;
use serde_json::json;
use tracing::instrument::WithSubscriber;
use tracing_subscriber::fmt::MakeWriter;

use super::fake::{Fake, PASSWORD, Reply, fault, password};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn nothing_that_is_shown_has_a_secret() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let fake = Fake::new(|seen, _| {
        // Servers that repeat what they were sent.
        let token = seen.token.as_deref().unwrap_or("none");
        let echo = format!("token {token}, password {PASSWORD}");
        match seen.path.as_str() {
            "/octavia/v2.0/lbaas/pools" => Some(fault(400, &echo)),
            path if path.ends_with("/v1/secrets") => Some(Reply::Full(
                201,
                vec![],
                json!({"secret_ref": "http://cloud/barbican/v1/secrets/s"}).to_string(),
            )),
            "/octavia/v2.0/lbaas/listeners" => Some(Reply::None(NoAnswer::Lost(echo))),
            "/octavia/v2.0/lbaas/loadbalancers" => Some(Reply::Full(
                201,
                vec![("x-openstack-request-id", "req-7".to_owned())],
                json!({"loadbalancer": {"id": "a", "description": echo}}).to_string(),
            )),
            _ => None,
        }
    });
    let cloud = fake.cloud();
    let mut shown = Vec::new();
    let work = async {
        // Other tests of this process may reach the same callsites without a subscriber. With one
        // subscriber, `tracing` asks only the subscriber of that test's thread; with two it asks
        // them all.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        tracing::callsite::rebuild_interest_cache();
        cloud.check().await.unwrap();
        for error in [
            cloud
                .create_pool(&json!({"name": "pool"}))
                .await
                .unwrap_err(),
            cloud.create_listener(&json!({})).await.unwrap_err(),
        ] {
            assert!(
                error.message.contains("token [secret], password [secret]"),
                "{error}"
            );
            shown.push(format!("{error} {error:?}"));
        }
        cloud
            .create_load_balancer(&json!({"name": "seen"}))
            .await
            .unwrap();
        cloud.port(&Id::new("p")).await.unwrap();
        // A private key on its way to Barbican.
        let key = json!({"name": "certificate", "payload": "p4ss is the key"});
        let reference = cloud.create_secret(key).await.unwrap();
        assert_eq!(reference, "http://cloud/barbican/v1/secrets/s");
    };
    work.with_subscriber(subscriber).await;
    shown.push(format!("{cloud:?}"));
    shown.push(format!(
        "{:?}",
        CloudConfig::new("http://cloud", password())
    ));
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for part in [
        "cloud_request",
        "status=201",
        "request_id=\"req-7\"",
        "milliseconds=",
        "/octavia/v2.0/lbaas/loadbalancers",
        r#"{"loadbalancer":{"name":"seen"}}"#.replace('"', "\\\"").as_str(),
    ] {
        assert!(log.contains(part), "{part} not in {log}");
    }
    shown.push(log);
    for text in shown {
        for secret in [PASSWORD, "p4ss", "token-1"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
