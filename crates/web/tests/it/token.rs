//! An endpoint that asks for a token.

use landfall_web::token::TokenFile;

use crate::harness::Served;
use crate::stage::scenes;

const TOKEN: &str = "0123456789abcdef";

/// Everything but probes and metrics.
const PROTECTED: [(&str, &str); 8] = [
    ("GET", "/"),
    ("GET", "/assets/page.js"),
    ("GET", "/api/v1/"),
    ("GET", "/api/v1/instance"),
    ("GET", "/api/v1/services"),
    ("GET", "/api/v1/services/shop/web"),
    ("POST", "/api/v1/plan"),
    ("GET", "/nowhere"),
];

#[tokio::test]
async fn without_the_token_only_probes_and_metrics_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    let served = Served::with(scenes::empty(), Some(TokenFile::new(path.clone()))).await;
    for probe in ["/healthz", "/livez", "/readyz", "/metrics"] {
        assert_ne!(served.get(probe).await.status, 401, "{probe}");
    }
    let wrong = [
        String::new(),
        "Authorization: Bearer 0123456789abcdeF\r\n".to_owned(),
        format!("Authorization: Bearer {TOKEN}0\r\n"),
        "Authorization: Bearer \r\n".to_owned(),
        format!("X-Token: {TOKEN}\r\n"),
    ];
    for (method, path) in PROTECTED {
        for header in &wrong {
            let answer = served
                .ask(
                    method,
                    path,
                    &[header.trim_end()][..usize::from(!header.is_empty())],
                    "",
                )
                .await;
            assert_eq!(
                answer.refusal(),
                (401, "Unauthorized".into()),
                "{path} {header}"
            );
            assert!(
                answer
                    .head
                    .to_lowercase()
                    .contains("www-authenticate: basic")
            );
        }
    }
    let right = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(
        served
            .ask("GET", "/api/v1/instance", &[&right], "")
            .await
            .status,
        200
    );
    assert_eq!(served.ask("GET", "/", &[&right], "").await.status, 200);
    // What a browser sends for any name and the token as password.
    let basic = "Authorization: Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==";
    assert_eq!(served.ask("GET", "/", &[basic], "").await.status, 200);
    // A new token counts at once, and the old one no more.
    std::fs::write(&path, "another-token-of-length").unwrap();
    assert_eq!(served.ask("GET", "/", &[&right], "").await.status, 401);
    let new = "Authorization: Bearer another-token-of-length";
    assert_eq!(served.ask("GET", "/", &[new], "").await.status, 200);
    // Without a file every request is refused.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        served.ask("GET", "/", &[new], "").await.refusal(),
        (503, "NoToken".into())
    );
    assert_eq!(served.get("/healthz").await.status, 200);
}
