//! What the page shows, and how: the path of the traffic, problems, colours, small screens, hostile
//! text.

use std::collections::BTreeSet;

use landfall_testkit::browser::Screen;
use serde_json::json;

use crate::browser::Reader;
use crate::stage::scenes;

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
                addresses: [...card.querySelectorAll('.address .values li')]
                    .map(one => one.textContent),
                listeners: [...card.querySelectorAll('.flow > .branch > li')].map(one => ({{
                    listener: {}, pool: {},
                    members: [...one.querySelectorAll('.members > li')]
                        .map(one => [{}, {}, one.dataset.health]),
                }})),
            }};
        }})()",
        text(".node .first strong"),
        text(".pool strong"),
        text(".member strong"),
        text(".where .mono"),
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
async fn a_listener_shows_what_it_refused_and_how_many_wait() {
    let reader = Reader::new(scenes::shop(), Screen::DESK).await;
    let script = "[...document.querySelectorAll('[data-key=\"shop/web\"] .flow > .branch > li')]
        .map(one => [one.querySelector('.failed').textContent,
            one.querySelector('.pool .first').nextElementSibling.textContent])";
    let reported = reader.value(script).await;
    let reported = reported.as_array().unwrap();
    let counted = json!([
        "1 failed: 1 no member · short of 2 ports",
        "2 of 3 members · 3 waiting"
    ]);
    assert!(reported.contains(&counted), "{reported:?}");
    assert!(
        reported.contains(&json!(["", "2 of 3 members"])),
        "{reported:?}"
    );
    reader.assert_calm();
}

#[tokio::test]
async fn routers_are_shown_with_their_session_and_what_they_are_sent() {
    let reader = Reader::new(scenes::routers(), Screen::DESK).await;
    let script = "[...document.querySelectorAll('#routers ul.pools > li')].map(one => [
        one.querySelector('h3').textContent, one.querySelector('.session').textContent,
        one.querySelector('.session').dataset.tone, one.querySelectorAll('.routes > li').length,
        one.querySelector('.routes > li').textContent,
        one.querySelector('.routes > li:last-child').textContent])";
    assert_eq!(
        reader.value(script).await,
        json!([
            [
                "tor",
                "Established for 1 min · 2 of 3 prefixes sent · BFD Up",
                "ok",
                21,
                "192.0.2.1/32 · localpref 300 · 64500:7 · shop/web",
                "and 5 more"
            ],
            [
                "spare",
                "Idle for 1 min · 0 of 3 prefixes sent",
                "bad",
                1,
                "192.0.2.1/32 · localpref 300 · 64500:7 · shop/web",
                "192.0.2.1/32 · localpref 300 · 64500:7 · shop/web"
            ],
        ])
    );
    let problem = reader
        .value("document.querySelector('#routers').textContent")
        .await;
    assert!(
        problem
            .as_str()
            .unwrap()
            .contains("start BGP on the router")
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
            "What to do: request another address, or give both Services the same \
             landfall.dev/sharing-key and different ports",
            "examples/shop/services.yaml:96  metadata.annotations[landfall.dev/addresses] = \
            \"192.0.2.1\"",
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
    assert!(text.contains("correct the YAML"), "{text}");
}

#[tokio::test]
async fn a_card_shows_next_steps_left_out_endpoints_and_conditions() {
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
            ["PoolExhausted", "requests any IPv4 address"],
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
    let conditions = "[...document.querySelectorAll('[data-key=\"shop/mail\"] .conditions \
                     li')].map(one => [one.querySelector('strong').textContent, one.dataset.met])";
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
async fn the_dark_page_is_dark_and_the_light_one_light() {
    let brightness = "(selector => { \
                     const style = getComputedStyle(document.querySelector(selector)); \
                     const parts = style.backgroundColor.match(/[0-9.]+/g).map(Number); \
                     return (parts[0] + parts[1] + parts[2]) / 765; })";
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
        let wide = "[...document.querySelectorAll('body *')].filter(one => !one.closest('.unseen, \
                   .skip, .choice input')) .filter(one => { const box = \
                   one.getBoundingClientRect(); return box.right > 360.5 || box.left < -0.5; }) \
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
    let foreign = "document.querySelectorAll('main img, main script, main iframe, [onerror], \
                  [onload], [href^=\"javascript\" i]').length";
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
