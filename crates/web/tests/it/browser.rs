//! A reader in front of the status page: a real Chromium, real sockets, canned facts.

use landfall_model::view::InstanceView;
use landfall_testkit::browser::{Browser, Page, Screen};
use serde_json::Value;

use crate::harness::Served;

/// A reader in front of the page of a served scene.
pub struct Reader {
    pub served: Served,
    pub page: Page,
    _browser: Browser,
}

/// Opens every card, and waits until it is filled.
const OPEN_ALL: &str = "document.querySelectorAll('details').forEach(one => one.open = true)";

// === impl Reader ===

impl Reader {
    /// Opens the page and waits for the first facts.
    pub async fn new(scene: InstanceView, screen: Screen) -> Self {
        Self::at("/", scene, screen).await
    }

    async fn at(path: &str, scene: InstanceView, screen: Screen) -> Self {
        let served = Served::new(scene).await;
        let browser = Browser::start()
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let page = browser.page(screen).await.unwrap();
        page.go(&served.url(path)).await.unwrap();
        page.wait_for("document.querySelector('#link').dataset.state === 'live'")
            .await
            .unwrap();
        Self {
            served,
            page,
            _browser: browser,
        }
    }

    pub async fn open_all(&self) {
        self.page.eval::<Value>(OPEN_ALL).await.unwrap();
        let filled =
            "[...document.querySelectorAll('details')].every(one => one.querySelector('.inside'))";
        self.page.wait_for(filled).await.unwrap();
    }

    pub async fn value(&self, script: &str) -> Value {
        self.page.eval(script).await.unwrap()
    }

    pub async fn shown_services(&self) -> Value {
        self.value(
            "[...document.querySelectorAll('.card')].filter(one => !one.hidden).map(one => \
                   one.dataset.key)",
        )
        .await
    }

    #[track_caller]
    pub fn assert_calm(&self) {
        assert_eq!(self.page.complaints(), Vec::<String>::new());
    }
}
