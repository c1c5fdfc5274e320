//! Finding one's way: filter, keyboard, opening and closing.

use landfall_model::view::Health;
use landfall_testkit::browser::Screen;
use serde_json::json;

use crate::browser::Reader;
use crate::stage::{build, scenes};

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
    page.wait_for("document.querySelectorAll('.card').length === 1")
        .await
        .unwrap();
    assert_eq!(reader.shown_services().await, json!(["shop/mail"]));
    reader.assert_calm();
}

#[tokio::test]
async fn everything_can_be_reached_with_the_keyboard() {
    let reader = Reader::new(scenes::shop(), Screen::DESK).await;
    let page = &reader.page;
    let focused = "(() => { const at = document.activeElement; return at.id || at.name || \
                  at.className || at.closest('.card')?.dataset.key || at.tagName; })()";
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
async fn of_many_services_a_page_is_shown_and_the_filter_finds_the_others() {
    let reader = Reader::new(scenes::many(500), Screen::DESK).await;
    let page = &reader.page;
    let cards = "document.querySelectorAll('.card').length";
    assert_eq!(reader.value(cards).await, 100);
    let more = "document.querySelector('#more').textContent";
    assert_eq!(reader.value(more).await, "Show 100 more of 400");
    page.click("#more").await.unwrap();
    assert_eq!(reader.value(cards).await, 200);
    let focused =
        "[...document.querySelectorAll('.card')].indexOf(document.activeElement.closest('.card'))";
    assert_eq!(reader.value(focused).await, 100);
    // The last in order is on no page yet.
    let last = scenes::many(500)
        .services
        .iter()
        .map(|service| service.key.to_string())
        .max()
        .unwrap();
    page.press("/").await.unwrap();
    page.type_text(&last).await.unwrap();
    assert_eq!(reader.shown_services().await, json!([last]));
    assert_eq!(
        reader.value("document.querySelector('#more').hidden").await,
        true
    );
    reader.assert_calm();
}

#[tokio::test]
async fn a_card_that_was_opened_is_open_again_after_it_was_filtered_out() {
    let reader = Reader::new(scenes::broken(), Screen::DESK).await;
    let page = &reader.page;
    let open = "document.querySelectorAll('details[open]').length";
    reader
        .value("document.querySelector('.card summary').click()")
        .await;
    page.wait_for(&format!("{open} === 1")).await.unwrap();
    page.press("/").await.unwrap();
    page.type_text("no such thing").await.unwrap();
    assert_eq!(reader.shown_services().await, json!([]));
    page.press("Escape").await.unwrap();
    assert_eq!(reader.value(open).await, 1);
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
    let names = "[...document.querySelectorAll('[data-key=\"shop/web\"] .member strong')].map(one \
                => one.textContent)";
    let shown = reader.value(names).await;
    let shown = shown.as_array().unwrap();
    assert_eq!((shown.len(), &shown[11]), (12, &json!("web-39")));
    for count in [40, 12] {
        reader.page.click(".more").await.unwrap();
        let drawn = format!("{names}.length === {count}");
        reader.page.wait_for(&drawn).await.unwrap();
    }
}
