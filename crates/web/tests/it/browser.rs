//! The status page as a reader meets it: a real Chromium, real sockets, canned facts.

use std::collections::BTreeSet;

use landfall_model::view::Health;
use landfall_testkit::browser::{Browser, Page, Screen};
use serde_json::{Value, json};

use crate::harness::Served;
use crate::stage::{build, scenes};

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
    pub async fn new(scene: landfall_model::view::InstanceView, screen: Screen) -> Self {
        Self::at("/", scene, screen).await
    }

    async fn at(path: &str, scene: landfall_model::view::InstanceView, screen: Screen) -> Self {
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

    async fn value(&self, script: &str) -> Value {
        self.page.eval(script).await.unwrap()
    }

    async fn shown_services(&self) -> Value {
        self.value("[...document.querySelectorAll('.card')].filter(one => !one.hidden).map(one => one.dataset.key)").await
    }

    #[track_caller]
    fn assert_calm(&self) {
        assert_eq!(self.page.complaints(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_service_is_shown_as_the_path_its_traffic_takes() {
    let reader = Reader::new(scenes::shop(), Screen::DESK).await;
    let text = |selector: &str| format!("one.querySelector('{selector}').textContent");
    let script = format!(
        "(() => {{
            const card = document.querySelector('[data-key=\"shop/web\"]');
            return {{
                name: card.querySelector('h3').textContent,
                state: card.querySelector('.state').textContent,
                addresses: [...card.querySelectorAll('.address .values li')].map(one => one.textContent),
                listeners: [...card.querySelectorAll('.flow > .branch > li')].map(one => ({{
                    listener: {}, pool: {},
                    members: [...one.querySelectorAll('.members > li')].map(one => [{}, {}, one.dataset.health]),
                }})),
            }};
        }})()",
        text(".node .first strong"), text(".pool strong"), text(".member strong"), text(".where .mono"),
    );
    let members = json!([
        ["web-6d4b75cb6d-hj2kd", "10.244.1.17:8080", "up"],
        ["web-6d4b75cb6d-n8x4t", "10.244.2.9:8080", "up"],
        ["web-6d4b75cb6d-zq7vw", "10.244.3.21:8080", "down"],
    ]);
    assert_eq!(
        reader.value(&script).await,
        json!({
            "name": "shop/web", "state": "Needs attention", "addresses": ["192.0.2.1"],
            "listeners": [
                {"listener": "80/TCP", "pool": "Round robin", "members": members},
                {"listener": "443/TCP", "pool": "Least connections", "members": members},
            ],
        })
    );
    reader.assert_calm();
}

#[tokio::test]
async fn problems_stand_first_with_their_reason_place_and_remedy() {
    let reader = Reader::new(scenes::shop(), Screen::DESK).await;
    assert_eq!(
        reader.shown_services().await,
        json!(["shop/mail", "shop/web", "shop/dns", "shop/postgres"])
    );
    assert_eq!(
        reader.value("document.title").await,
        "2 problems · Landfall"
    );
    let reason = reader
        .value("document.querySelector('[data-key=\"shop/mail\"] .reason').innerText.split('\\n')")
        .await;
    assert_eq!(
        reason,
        json!([
            "Error:",
            "192.0.2.1 is held by shop/web AddressInUse",
            "What to do: ask for another address, or give both Services the same \
             landfall.dev/sharing-key and different ports",
            "examples/shop/services.yaml:96  metadata.annotations[landfall.dev/addresses] = \"192.0.2.1\"",
        ])
    );
}

#[tokio::test]
async fn what_is_wrong_with_the_sources_stands_on_top() {
    let reader = Reader::new(scenes::broken(), Screen::DESK).await;
    let above = "document.querySelector('#problems').getBoundingClientRect().top \
                 < document.querySelector('#figures').getBoundingClientRect().top";
    assert_eq!(reader.value(above).await, true);
    let text = reader
        .value("document.querySelector('#problems').innerText")
        .await;
    let text = text.as_str().unwrap();
    assert!(text.contains("examples/shop/cart.yaml:14"), "{text}");
    assert!(text.contains("mend the YAML"), "{text}");
}

#[tokio::test]
async fn a_card_tells_next_steps_left_out_endpoints_and_conditions() {
    let reader = Reader::new(scenes::broken(), Screen::DESK).await;
    reader.open_all().await;
    let inside =
        |key: &str| format!("document.querySelector('[data-key=\"{key}\"] .inside').textContent");
    for (key, texts) in [
        (
            "shop/queue",
            [
                "Next steps",
                "listen on 192.0.2.7:5672/TCP because the Service has port amqp",
            ],
        ),
        (
            "shop/dns",
            [
                "Endpoints that get no traffic",
                "dns-2 10.244.3.42:5353 the endpoint is not ready",
            ],
        ),
        (
            "shop/search",
            ["PoolExhausted", "asked for any IPv4 address"],
        ),
        (
            "shop/api",
            ["another process listens on 192.0.2.6:8443", "no member"],
        ),
        ("shop/images", ["ServingPreviousVersion", "10.0.0.0/33"]),
        (
            "shop/cart",
            ["connection refused, 3 times", "0 of 2 members"],
        ),
    ] {
        let text = reader.value(&inside(key)).await;
        let text = text.as_str().unwrap();
        for expected in texts {
            assert!(
                text.contains(expected),
                "{key}: {expected:?} is not in\n{text}"
            );
        }
    }
    let conditions = "[...document.querySelectorAll('[data-key=\"shop/mail\"] .conditions li')].map(one => [one.querySelector('strong').textContent, one.dataset.met])";
    assert_eq!(
        reader.value(conditions).await,
        json!([
            ["Accepted", "yes"],
            ["Addressed", "no"],
            ["Programmed", "no"]
        ])
    );
    reader.assert_calm();
}

#[tokio::test]
async fn changes_show_without_a_reload_and_leave_the_rest_of_the_page_alone() {
    let reader = Reader::new(scenes::healthy(), Screen::DESK).await;
    reader
        .value(
            "window.mark = document.querySelector('[data-key=\"shop/web\"]');
             document.querySelector('[data-key=\"shop/dns\"] details').open = false;
             window.member = mark.querySelector('.member');
             mark.querySelector('summary').focus()",
        )
        .await;
    reader.served.stage.play(scenes::shop());
    reader
        .page
        .wait_for("document.querySelectorAll('.card').length === 4")
        .await
        .unwrap();
    reader
        .page
        .wait_for("mark.dataset.state === 'warn'")
        .await
        .unwrap();
    let kept = "[mark.isConnected, member.isConnected, mark.contains(document.activeElement), \
                mark.querySelector('details').open, document.querySelector('[data-key=\"shop/dns\"] details').open]";
    assert_eq!(
        reader.value(kept).await,
        json!([true, true, true, true, false])
    );
    let said = reader
        .value("document.querySelector('#said').textContent")
        .await;
    assert_eq!(said, "shop/mail: Not serving. shop/web: Needs attention");

    reader.served.stage.play(scenes::empty());
    reader
        .page
        .wait_for("document.querySelectorAll('.card').length === 0")
        .await
        .unwrap();
    let empty = reader
        .value("document.querySelector('#empty').textContent")
        .await;
    assert_eq!(
        empty,
        "No Service of type LoadBalancer yet. Add a manifest, and it shows up here."
    );
    reader.assert_calm();
}

#[tokio::test]
async fn counters_become_rates() {
    let reader = Reader::new(scenes::healthy(), Screen::DESK).await;
    reader
        .page
        .wait_for("/^[0-9.]+ (kB|MB)\\/s$/.test(document.querySelectorAll('.figure .value')[3].textContent)")
        .await
        .unwrap();
    reader
        .page
        .wait_for("/ open · [0-9.]+\\/s · [0-9.]+ [kM]B\\/s/.test(document.querySelector('[data-key=\"shop/web\"] .member .rate').textContent)")
        .await
        .unwrap();
    reader
        .page
        .wait_for("document.querySelector('.spark .line').getAttribute('d')")
        .await
        .unwrap();
}

#[tokio::test]
async fn the_filter_finds_by_name_address_member_and_reason_and_stays_in_the_address_bar() {
    let reader = Reader::new(scenes::shop(), Screen::DESK).await;
    let page = &reader.page;
    page.press("/").await.unwrap();
    page.type_text("postgres-1").await.unwrap();
    assert_eq!(reader.shown_services().await, json!(["shop/postgres"]));
    assert_eq!(
        reader
            .value("document.querySelector('#count').textContent")
            .await,
        "1 of 4 Services"
    );
    for (query, found) in [
        ("198.51.100.9", json!(["shop/dns"])),
        ("ADDRESSINUSE", json!(["shop/mail"])),
        ("443/tcp down", json!(["shop/web"])),
        (
            "shop node-",
            json!(["shop/web", "shop/dns", "shop/postgres"]),
        ),
        ("no such thing", json!([])),
    ] {
        reader
            .value("document.querySelector('#filter').select()")
            .await;
        page.type_text(query).await.unwrap();
        assert_eq!(reader.shown_services().await, found, "{query}");
    }
    let text = reader
        .value("document.querySelector('#empty').innerText")
        .await;
    assert_eq!(text, "No Service matches “no such thing”.");
    page.press("Escape").await.unwrap();
    assert_eq!(reader.shown_services().await.as_array().unwrap().len(), 4);

    page.click(".choice label:last-child span").await.unwrap();
    assert_eq!(
        reader.shown_services().await,
        json!(["shop/mail", "shop/web"])
    );
    page.press("/").await.unwrap();
    page.type_text("mail").await.unwrap();
    let address: String = page.eval("location.href").await.unwrap();
    assert_eq!(address, reader.served.url("/?q=mail&show=problems"));
    page.go(&address).await.unwrap();
    page.wait_for("document.querySelectorAll('.card').length === 4")
        .await
        .unwrap();
    assert_eq!(reader.shown_services().await, json!(["shop/mail"]));
    reader.assert_calm();
}

#[tokio::test]
async fn everything_can_be_reached_with_the_keyboard() {
    let reader = Reader::new(scenes::shop(), Screen::DESK).await;
    let page = &reader.page;
    let focused = "(() => { const at = document.activeElement; return at.id || at.name || at.className || at.closest('.card')?.dataset.key || at.tagName; })()";
    let mut order = Vec::new();
    for _ in 0..7 {
        page.press("Tab").await.unwrap();
        order.push(page.eval::<String>(focused).await.unwrap());
    }
    assert_eq!(
        order,
        [
            "skip",
            "filter",
            "show",
            "toggle",
            "shop/mail",
            "shop/web",
            "open"
        ]
    );
    let open = "document.querySelector('[data-key=\"shop/mail\"] details').open";
    reader
        .value("document.querySelector('[data-key=\"shop/mail\"] summary').focus()")
        .await;
    page.press("Enter").await.unwrap();
    page.wait_for(&format!("!{open}")).await.unwrap();
    page.press("Enter").await.unwrap();
    page.wait_for(open).await.unwrap();
}

#[tokio::test]
async fn all_cards_open_and_close_with_one_button() {
    let reader = Reader::new(scenes::broken(), Screen::DESK).await;
    let page = &reader.page;
    let open = "document.querySelectorAll('details[open]').length";
    assert_eq!(reader.value(open).await, 0);
    page.click("#toggle").await.unwrap();
    assert_eq!(reader.value(open).await, 8);
    page.wait_for("document.querySelector('#toggle').textContent === 'Close all'")
        .await
        .unwrap();
    page.click("#toggle").await.unwrap();
    assert_eq!(reader.value(open).await, 0);
}

#[tokio::test]
async fn the_dark_page_is_dark_and_the_light_one_light() {
    let brightness = "(selector => { const parts = getComputedStyle(document.querySelector(selector)).backgroundColor.match(/[0-9.]+/g).map(Number); return (parts[0] + parts[1] + parts[2]) / 765; })";
    let reader = Reader::new(scenes::shop(), Screen::DESK).await;
    let page = &reader.page;
    for selector in ["body", ".card", ".node", "#filter"] {
        let at = format!("{brightness}('{selector}')");
        page.set_screen(Screen::DESK).await.unwrap();
        assert!(
            page.eval::<f64>(&at).await.unwrap() > 0.9,
            "{selector} in the light"
        );
        page.set_screen(Screen::DESK.dark()).await.unwrap();
        assert!(
            page.eval::<f64>(&at).await.unwrap() < 0.2,
            "{selector} in the dark"
        );
    }
}

#[tokio::test]
async fn nothing_is_wider_than_a_small_telephone() {
    let reader = Reader::new(scenes::shop(), Screen::PHONE).await;
    for scene in scenes::NAMES {
        if scene == "many" {
            continue;
        }
        reader.served.stage.play(scenes::by_name(scene).unwrap());
        let marked = scenes::by_name(scene).unwrap().services.len();
        let there = format!("document.querySelectorAll('.card').length === {marked}");
        reader.page.wait_for(&there).await.unwrap();
        reader.open_all().await;
        let wide = "[...document.querySelectorAll('body *')].filter(one => !one.closest('.unseen, .skip, .choice input')) \
                    .filter(one => { const box = one.getBoundingClientRect(); return box.right > 360.5 || box.left < -0.5; }) \
                    .map(one => one.outerHTML.slice(0, 120))";
        assert_eq!(reader.value(wide).await, json!([]), "{scene}");
        assert_eq!(
            reader.value("document.documentElement.scrollWidth").await,
            360,
            "{scene}"
        );
    }
    reader.assert_calm();
}

#[tokio::test]
async fn text_of_users_stays_text() {
    let reader = Reader::new(scenes::hostile(), Screen::DESK).await;
    reader.open_all().await;
    assert_eq!(reader.value("typeof window.pwned").await, "undefined");
    let foreign = "document.querySelectorAll('main img, main script, main iframe, [onerror], [onload], [href^=\"javascript\" i]').length";
    assert_eq!(reader.value(foreign).await, 0);
    let text: String = reader.page.eval("document.body.innerText").await.unwrap();
    assert!(
        text.contains("<img src=x onerror=\"window.pwned=1\">"),
        "{text}"
    );
    assert!(
        text.contains("\\u{202e}"),
        "the turned writing direction is spelled out: {text}"
    );
    assert!(!text.contains('\u{202e}'));
    let links: BTreeSet<String> = reader
        .page
        .eval("[...document.links].map(one => one.href)")
        .await
        .unwrap();
    for link in links {
        let own = link.starts_with(&reader.served.url("/"));
        let service = link.starts_with("http://192.0.2.") || link.starts_with("https://192.0.2.");
        assert!(own || service, "{link}");
    }
    reader.assert_calm();
}

#[tokio::test]
async fn a_lost_connection_is_said_and_taken_up_again() {
    let mut reader = Reader::new(scenes::healthy(), Screen::DESK).await;
    assert_eq!(
        reader.value("document.querySelector('#lost').hidden").await,
        true
    );
    reader.served.stop().await;
    reader
        .page
        .wait_for("!document.querySelector('#lost').hidden")
        .await
        .unwrap();
    let banner: String = reader
        .page
        .eval("document.querySelector('#lost').innerText")
        .await
        .unwrap();
    assert!(
        banner.starts_with("The connection to this instance is lost: this was true at "),
        "{banner}"
    );
    assert_eq!(
        reader
            .value("document.querySelector('#link').textContent")
            .await,
        "Connection lost"
    );
    assert_eq!(
        reader
            .value("document.querySelectorAll('.card').length")
            .await,
        3
    );

    reader.served.stage.play(scenes::shop());
    reader.served.start().await;
    reader
        .page
        .wait_for("document.querySelector('#lost').hidden")
        .await
        .unwrap();
    reader
        .page
        .wait_for("document.querySelectorAll('.card').length === 4")
        .await
        .unwrap();
    assert_eq!(
        reader
            .value("document.querySelector('#link').textContent")
            .await,
        "Live"
    );
}

#[tokio::test]
async fn an_instance_that_starts_says_what_it_waits_for() {
    let reader = Reader::new(scenes::starting(), Screen::DESK).await;
    assert_eq!(
        reader
            .value("document.querySelector('#starting').innerText")
            .await,
        "Starting: waiting for the first look at examples/shop; 2 Services to be handled"
    );
    reader.served.stage.play(scenes::empty());
    reader
        .page
        .wait_for("document.querySelector('#starting').hidden")
        .await
        .unwrap();
}

#[tokio::test]
async fn no_scene_causes_complaints_and_no_request_leaves_the_origin() {
    let reader = Reader::new(scenes::empty(), Screen::DESK).await;
    for scene in scenes::NAMES {
        let view = scenes::by_name(scene).unwrap();
        let there = format!(
            "document.querySelectorAll('.card').length === {}",
            view.services.len()
        );
        reader.served.stage.play(view);
        reader.page.wait_for(&there).await.unwrap();
    }
    let origin = reader.served.url("/");
    let requests = reader.page.requests();
    assert!(requests.len() > 8, "{requests:?}");
    for request in requests {
        assert!(request.starts_with(&origin), "{request}");
    }
    reader.assert_calm();
}

#[tokio::test]
async fn five_hundred_services_are_shown_at_once_and_stay_in_place() {
    let reader = Reader::new(scenes::many(500), Screen::DESK).await;
    let page = &reader.page;
    page.wait_for("document.querySelectorAll('.card').length === 500")
        .await
        .unwrap();
    reader
        .value("window.before = new Map([...document.querySelectorAll('.card')].map(one => [one.dataset.key, one]))")
        .await;
    let mut next = scenes::many(500);
    let member = &mut next.services[250].listeners[0].members[2];
    *member = build::turned(member.clone(), Health::Down, "no answer within 3 s");
    next.services.remove(100);
    reader.served.stage.play(next);
    page.wait_for("document.querySelectorAll('.card').length === 499")
        .await
        .unwrap();
    page.wait_for("before.get('team-10/app-250').dataset.state === 'warn'")
        .await
        .unwrap();
    let same =
        "[...document.querySelectorAll('.card')].every(one => before.get(one.dataset.key) === one)";
    assert_eq!(reader.value(same).await, true);
    let first = "[...document.querySelectorAll('.card')].slice(0, 7).map(one => one.dataset.key)";
    let first = reader.value(first).await;
    assert!(
        first
            .as_array()
            .unwrap()
            .contains(&json!("team-10/app-250")),
        "{first}"
    );
    reader.assert_calm();
}

#[tokio::test]
async fn a_large_pool_shows_the_members_that_do_not_serve_and_the_rest_when_asked() {
    let mut scene = scenes::healthy();
    let member =
        |at: usize| build::member(&format!("web-{at}"), &format!("10.9.0.{}:80", at + 1), 1);
    let mut members: Vec<_> = (0..40).map(member).collect();
    members[39] = build::turned(members[39].clone(), Health::Down, "connection refused");
    scene.services[0].listeners.truncate(1);
    scene.services[0].listeners[0].members = members;
    let reader = Reader::new(scene, Screen::DESK).await;
    let names = "[...document.querySelectorAll('[data-key=\"shop/web\"] .member strong')].map(one => one.textContent)";
    let shown = reader.value(names).await;
    let shown = shown.as_array().unwrap();
    assert_eq!((shown.len(), &shown[11]), (12, &json!("web-39")));
    reader.page.click(".more").await.unwrap();
    assert_eq!(reader.value(names).await.as_array().unwrap().len(), 40);
    reader.page.click(".more").await.unwrap();
    assert_eq!(reader.value(names).await.as_array().unwrap().len(), 12);
}

#[tokio::test]
async fn without_a_place_for_its_stream_the_page_polls() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let reader = Reader::new(scenes::empty(), Screen::DESK).await;
    reader.page.go("about:blank").await.unwrap();
    let mut streams = Vec::new();
    while streams.len() < 64 {
        let mut stream = tokio::net::TcpStream::connect(reader.served.address)
            .await
            .unwrap();
        stream
            .write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut part = [0; 12];
        stream.read_exact(&mut part).await.unwrap();
        if &part == b"HTTP/1.1 200" {
            streams.push(stream);
        }
    }
    reader.page.go(&reader.served.url("/")).await.unwrap();
    reader
        .page
        .wait_for("document.querySelector('#link').dataset.state === 'live'")
        .await
        .unwrap();
    reader.served.stage.play(scenes::shop());
    reader
        .page
        .wait_for("document.querySelectorAll('.card').length === 4")
        .await
        .unwrap();
}
