//! One page: what a reader does with it, and what can be known of it.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::pipe::Pipe;
use super::{BrowserError, DEADLINE};

/// The device that the page is seen on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Screen {
    /// In CSS pixels.
    pub width: u32,
    /// In CSS pixels.
    pub height: u32,
    /// Device pixels per CSS pixel.
    pub scale: f64,
    /// Whether the reader prefers dark colours.
    pub dark: bool,
    /// Whether it is a telephone: touch, and the viewport that pages ask for.
    pub phone: bool,
}

/// An open page.
pub struct Page {
    pipe: Pipe,
    session: String,
}

/// From one check of the page to the next while waiting for something in it.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

// === impl Screen ===

impl Screen {
    /// A desk: 1280 by 900, light.
    pub const DESK: Self = Self {
        width: 1280,
        height: 900,
        scale: 1.0,
        dark: false,
        phone: false,
    };

    /// A small telephone: 360 by 780, light.
    pub const PHONE: Self = Self {
        width: 360,
        height: 780,
        scale: 2.0,
        dark: false,
        phone: true,
    };

    /// The same screen in the dark.
    #[must_use]
    pub fn dark(self) -> Self {
        Self { dark: true, ..self }
    }
}

// === impl Page ===

impl Page {
    pub(super) async fn open(
        pipe: Pipe,
        session: String,
        screen: Screen,
    ) -> Result<Self, BrowserError> {
        let page = Self { pipe, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({})).await?;
        }
        page.set_screen(screen).await?;
        Ok(page)
    }

    /// Changes the device under the page.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn set_screen(&self, screen: Screen) -> Result<(), BrowserError> {
        let metrics = json!({
            "width": screen.width, "height": screen.height,
            "deviceScaleFactor": screen.scale, "mobile": screen.phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .await?;
        let scheme = if screen.dark { "dark" } else { "light" };
        let media = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.call("Emulation.setEmulatedMedia", media).await?;
        Ok(())
    }

    /// Goes to an address and waits until it has loaded.
    ///
    /// # Errors
    /// When the browser can't go there.
    pub async fn go(&self, url: &str) -> Result<(), BrowserError> {
        let loads = |events: &[Value]| {
            let loaded = events
                .iter()
                .filter(|event| event["method"] == "Page.loadEventFired");
            loaded.count()
        };
        let before = loads(&self.events());
        let went = self.call("Page.navigate", json!({"url": url})).await?;
        if let Some(error) = went["errorText"].as_str() {
            return Err(BrowserError::Refused {
                method: format!("going to {url}"),
                message: error.to_owned(),
            });
        }
        self.pipe
            .until(&self.session, &format!("{url} to load"), |events| {
                loads(events) > before
            })
            .await
    }

    /// The value of a JavaScript expression (awaited, if it is a promise).
    ///
    /// # Errors
    /// When it throws, or has another type than expected.
    pub async fn eval<T: DeserializeOwned>(&self, script: &str) -> Result<T, BrowserError> {
        let params = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", params).await?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            return Err(BrowserError::Threw(format!("{thrown} in {script}")));
        }
        let value = answer["result"]["value"].take();
        serde_json::from_value(value)
            .map_err(|error| BrowserError::Threw(format!("{error} as the value of {script}")))
    }

    /// Waits until a JavaScript condition holds.
    ///
    /// # Errors
    /// When it throws, or does not hold in time.
    pub async fn wait_for(&self, condition: &str) -> Result<(), BrowserError> {
        let began = Instant::now();
        while began.elapsed() < DEADLINE {
            if self.eval::<bool>(&format!("Boolean({condition})")).await? {
                return Ok(());
            }
            sleep(LOOK_AGAIN).await;
        }
        let shown: String = self.eval("document.body.innerText").await?;
        Err(BrowserError::Timeout(format!(
            "{condition}; the page shows:\n{shown}"
        )))
    }

    /// Types text where the focus is.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn type_text(&self, text: &str) -> Result<(), BrowserError> {
        self.call("Input.insertText", json!({"text": text})).await?;
        Ok(())
    }

    /// Presses and releases a key, by its DOM name: `Tab`, `Enter`, `Escape`, `/`.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn press(&self, key: &str) -> Result<(), BrowserError> {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            "Escape" => (27, None),
            " " => (32, Some(" ")),
            other => (other.bytes().next().unwrap_or_default().into(), Some(other)),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if let (Some(text), "keyDown") = (text, kind) {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// Clicks the middle of the first element that a CSS selector finds.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn click(&self, selector: &str) -> Result<(), BrowserError> {
        // What is above it may still be drawn, and would move it away from under the mouse.
        let script = format!(
            "(async () => {{ \
               const place = () => document.querySelector({selector:?}).getBoundingClientRect(); \
               const frame = () => new Promise(requestAnimationFrame); \
               document.querySelector({selector:?}).scrollIntoView({{block: 'center'}}); \
               for (let before = place(), same = 0; ;) {{ \
                 await frame(); const now = place(); \
                 same = now.x === before.x && now.y === before.y ? same + 1 : 0; before = now; \
                 if (same === 3) return [now.x + now.width / 2, now.y + now.height / 2]; }} }})()"
        );
        let (x, y): (f64, f64) = self.eval(&script).await?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await?;
        }
        Ok(())
    }

    /// Writes a picture (PNG) of the whole width of the page, from one height to another (in CSS
    /// pixels from its top).
    ///
    /// # Errors
    /// When the browser refuses or the file can't be written.
    pub async fn screenshot(&self, file: &Path, from: f64, to: f64) -> Result<(), BrowserError> {
        let width: f64 = self
            .eval(
                "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => \
                 done(innerWidth))))",
            )
            .await?;
        let params = json!({
            "format": "png",
            "captureBeyondViewport": true,
            "clip": {"x": 0, "y": from, "width": width, "height": to - from, "scale": 1},
        });
        let shot = self.call("Page.captureScreenshot", params).await?;
        let data = shot["data"].as_str().unwrap_or_default();
        let picture = base64::engine::general_purpose::STANDARD
            .decode(data)
            .map_err(std::io::Error::other)?;
        Ok(std::fs::write(file, picture)?)
    }

    /// Errors and warnings that the page caused: exceptions, console errors, refused loads.
    pub fn complaints(&self) -> Vec<String> {
        let complaint = |event: &Value| {
            let params = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" => {
                    matches!(params["type"].as_str()?, "error" | "warning" | "assert")
                        .then(|| params["args"].to_string())
                }
                "Log.entryAdded" => {
                    let entry = &params["entry"];
                    matches!(entry["level"].as_str()?, "error" | "warning")
                        .then(|| format!("{} {}", entry["text"], entry["url"]))
                }
                _ => None,
            }
        };
        self.events().iter().filter_map(complaint).collect()
    }

    /// The address of everything that the page asked for, in order.
    pub fn requests(&self) -> Vec<String> {
        let request = |event: &Value| {
            (event["method"] == "Network.requestWillBeSent")
                .then(|| {
                    event["params"]["request"]["url"]
                        .as_str()
                        .map(str::to_owned)
                })
                .flatten()
        };
        self.events().iter().filter_map(request).collect()
    }

    /// Any `DevTools` command, for what has no method here.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, BrowserError> {
        self.pipe.call(Some(&self.session), method, params).await
    }

    fn events(&self) -> Vec<Value> {
        self.pipe.events(&self.session)
    }
}
