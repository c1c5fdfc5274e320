//! Whether the page can be read: contrast of every text with what is behind it (WCAG 2.2, 1.4.3),
//! and what a screen reader gets.

use landfall_testkit::browser::Screen;
use serde_json::{Value, json};

use crate::browser::Reader;
use crate::stage::scenes;

/// Texts with too little contrast: 4.5 to 1, or 3 to 1 for large letters.
const FAINT: &str = r"(() => {
    const parse = (text) => {
        const [red, green, blue, alpha = 1] = text.match(/[0-9.]+/g).map(Number);
        return [red, green, blue, alpha];
    };
    const over = (top, below) => [0, 1, 2]
        .map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
    const light = (color) => {
        const [red, green, blue] = color.slice(0, 3).map((part) => {
            const share = part / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const behind = (element) => {
        const layers = [];
        for (let at = element; at; at = at.parentElement) {
            layers.push(parse(getComputedStyle(at).backgroundColor));
        }
        return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const faint = [];
    let texts = 0;
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim()) continue;
        if (!element.checkVisibility({ contentVisibilityAuto: true })) continue;
        if (element.closest('.unseen, .skip, noscript, :disabled')) continue;
        texts += 1;
        const style = getComputedStyle(element);
        const back = behind(element);
        const [one, other] = [light(over(parse(style.color), back)), light(back)]
            .sort((a, b) => b - a);
        const ratio = (one + 0.05) / (other + 0.05);
        const size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        if (ratio < (large ? 3 : 4.5)) {
            const text = walker.currentNode.data.slice(0, 40);
            faint.push([text, ratio.toFixed(2), style.color]);
        }
    }
    return { texts: texts > 20, faint };
})()";

#[tokio::test]
async fn every_text_stands_out_in_the_light_and_in_the_dark() {
    let reader = Reader::new(
        scenes::broken(),
        Screen {
            height: 8000,
            ..Screen::DESK
        },
    )
    .await;
    for scene in ["shop", "broken"] {
        let view = scenes::by_name(scene).unwrap();
        let there = format!(
            "document.querySelectorAll('.card').length === {}",
            view.services.len()
        );
        reader.served.stage.play(view);
        reader.page.wait_for(&there).await.unwrap();
        reader.open_all().await;
        for screen in [Screen::DESK, Screen::DESK.dark()] {
            reader
                .page
                .set_screen(Screen {
                    height: 8000,
                    ..screen
                })
                .await
                .unwrap();
            let found: Value = reader.page.eval(FAINT).await.unwrap();
            assert_eq!(
                found,
                json!({"texts": true, "faint": []}),
                "{scene}, dark: {}",
                screen.dark
            );
        }
    }
}

#[tokio::test]
async fn banners_stand_out_too() {
    let mut reader = Reader::new(scenes::starting(), Screen::DESK).await;
    reader.served.stop().await;
    reader
        .page
        .wait_for("!document.querySelector('#lost').hidden")
        .await
        .unwrap();
    for screen in [Screen::DESK, Screen::DESK.dark()] {
        reader.page.set_screen(screen).await.unwrap();
        let found: Value = reader.page.eval(FAINT).await.unwrap();
        assert_eq!(found["faint"], json!([]), "dark: {}", screen.dark);
    }
}

#[tokio::test]
async fn a_screen_reader_gets_the_same() {
    let reader = Reader::new(scenes::broken(), Screen::DESK).await;
    reader.open_all().await;
    let facts = r"({
        language: document.documentElement.lang,
        landmarks: ['header', 'main', '[role=search]']
            .map((one) => document.querySelectorAll(one).length),
        headings: [...document.querySelectorAll('h1, h2, h3, h4')]
            .filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))
            .filter((level, at, all) => at && level > all[at - 1] + 1),
        drawings: document.querySelectorAll('svg:not([aria-hidden=true]), img:not([alt])').length,
        nameless: [...document.querySelectorAll('button, input, a')].filter((one) =>
            !(one.textContent.trim() || one.labels?.length
                || one.getAttribute('aria-label'))).length,
        meters: [...document.querySelectorAll('[role=meter]')]
            .map((one) => ['aria-label', 'aria-valuenow'].map((name) => one.getAttribute(name))),
        doubles: [...document.querySelectorAll('[id]')].map((one) => one.id)
            .filter((id, at, all) => all.indexOf(id) !== at),
        polite: document.querySelector('#said').getAttribute('aria-live'),
        alarm: document.querySelector('#lost').getAttribute('role'),
    })";
    let facts: Value = reader.page.eval(facts).await.unwrap();
    assert_eq!(
        facts,
        json!({
            "language": "en", "landmarks": [1, 1, 1], "headings": [], "drawings": 0, "nameless": 0,
            "meters": [
                ["IPv4 addresses in use", "100"], ["IPv4 addresses in use", "100"],
                    ["IPv6 addresses in use", "0"],
            ],
            "doubles": [], "polite": "polite", "alarm": "alert",
        })
    );
}
