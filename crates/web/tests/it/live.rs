//! The page while things change: facts, counters, the connection itself.

use landfall_model::view::Health;
use landfall_testkit::browser::Screen;
use serde_json::json;

use crate::browser::Reader;
use crate::stage::{build, scenes};

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
               mark.querySelector('details').open, document.querySelector('[data-key=\"shop/dns\"] \
               details').open]";
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
        .wait_for(
            "/^[0-9.]+ (kB|MB)\\/s$/.test(document.querySelectorAll('.figure \
                  .value')[3].textContent)",
        )
        .await
        .unwrap();
    reader
        .page
        .wait_for(
            "/ open · [0-9.]+\\/s · [0-9.]+ \
                  [kM]B\\/s/.test(document.querySelector('[data-key=\"shop/web\"] .member \
                  .rate').textContent)",
        )
        .await
        .unwrap();
    reader
        .page
        .wait_for("document.querySelector('.spark .line').getAttribute('d')")
        .await
        .unwrap();
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
        "Starting: waiting for the first read of examples/shop; 2 Services to be reconciled"
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
            view.services.len().min(100)
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
async fn of_five_hundred_services_a_page_is_shown_at_once_and_stays_in_place() {
    let reader = Reader::new(scenes::many(500), Screen::DESK).await;
    let page = &reader.page;
    page.wait_for("document.querySelectorAll('.card').length === 100")
        .await
        .unwrap();
    reader
        .value(
            "window.before = new Map([...document.querySelectorAll('.card')].map(one => \
               [one.dataset.key, one]))",
        )
        .await;
    let keys: Vec<String> = page.eval("[...before.keys()]").await.unwrap();
    let (turned, removed) = (&keys[50], &keys[60]);
    let mut next = scenes::many(500);
    let service = next
        .services
        .iter_mut()
        .find(|service| service.key.to_string() == *turned)
        .unwrap();
    let member = &mut service.listeners[0].members[2];
    *member = build::turned(member.clone(), Health::Down, "no answer within 3 s");
    next.services
        .retain(|service| service.key.to_string() != *removed);
    reader.served.stage.play(next);
    page.wait_for(&format!("!before.get('{removed}').isConnected"))
        .await
        .unwrap();
    page.wait_for(&format!("before.get('{turned}').dataset.state === 'warn'"))
        .await
        .unwrap();
    let same = "[...document.querySelectorAll('.card')].filter(one => before.get(one.dataset.key) \
               === one).length";
    assert_eq!(reader.value(same).await, 99);
    let first = "[...document.querySelectorAll('.card')].slice(0, 7).map(one => one.dataset.key)";
    let first = reader.value(first).await;
    assert!(
        first.as_array().unwrap().contains(&json!(turned)),
        "{first}"
    );
    reader.assert_calm();
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

#[tokio::test]
async fn browsers_that_can_not_move_elements_keep_the_focus_all_the_same() {
    let reader = Reader::new(scenes::shop(), Screen::DESK).await;
    let page = &reader.page;
    let without = json!({"source": "delete Element.prototype.moveBefore"});
    page.call("Page.addScriptToEvaluateOnNewDocument", without)
        .await
        .unwrap();
    page.go(&reader.served.url("/")).await.unwrap();
    page.wait_for("document.querySelectorAll('.card').length === 4")
        .await
        .unwrap();
    reader
        .value("document.querySelector('[data-key=\"shop/web\"] summary').focus()")
        .await;
    let mut scene = scenes::shop();
    scene.services.remove(0);
    scene.services.push(scenes::healthy().services.remove(0));
    reader.served.stage.play(scene);
    page.wait_for("document.querySelector('[data-key=\"shop/web\"]').dataset.state === 'ok'")
        .await
        .unwrap();
    let order = json!(["shop/mail", "shop/dns", "shop/postgres", "shop/web"]);
    assert_eq!(reader.shown_services().await, order);
    let focused = "document.activeElement.closest('.card').dataset.key";
    assert_eq!(reader.value(focused).await, "shop/web");
    reader.assert_calm();
}
