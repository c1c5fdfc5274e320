//! A real browser for tests and screenshots: headless Chromium, driven over its `DevTools` protocol.
//!
//! The protocol goes through a pipe, so there is no port to find, no WebSocket and no extra crate.
//! Chromium comes from Debian's package `chromium`. Where it is missing, [`Browser::start`] fails
//! and says how to install it; it never skips.

mod page;
mod pipe;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

pub use page::{Page, Screen};
use pipe::Pipe;

/// How long any single thing may take before it counts as failed. Generous: test machines are busy.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// What went wrong with the browser.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// There is no browser on this machine.
    #[error(
        "no Chromium found: run xtask/browser/install.sh (Debian: apt-get install chromium), or name \
         the program in the environment variable CHROMIUM"
    )]
    Missing,
    /// The program or its files can't be started or written.
    #[error("the browser can't be run: {0}")]
    Io(#[from] std::io::Error),
    /// The browser is gone.
    #[error("the browser ended; its last words: {0}")]
    Ended(String),
    /// The browser refused a command.
    #[error("{method} failed: {message}")]
    Refused {
        /// The `DevTools` command.
        method: String,
        /// What the browser said.
        message: String,
    },
    /// A script in the page threw.
    #[error("the script threw: {0}")]
    Threw(String),
    /// Something did not happen in time.
    #[error("timed out waiting for {0}")]
    Timeout(String),
}

/// A running headless Chromium with a profile of its own. Killed when dropped.
pub struct Browser {
    pipe: Pipe,
    _process: Child,
    _profile: Profile,
}

/// A directory that is removed when dropped.
struct Profile(PathBuf);

/// What keeps the browser quiet and reproducible: no first-run pages, no calls home, no GPU.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-domain-reliability",
    "--disable-breakpad",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--mute-audio",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--remote-debugging-pipe",
];

/// Where the program may be, in the order in which it is looked for.
const PROGRAMS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// The browser's program.
///
/// # Errors
/// When there is none.
pub fn find_chromium() -> Result<PathBuf, BrowserError> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let mut candidates = PROGRAMS.iter().flat_map(|name| {
        let folders = folders.iter();
        folders.map(move |folder| folder.join(name))
    });
    candidates
        .find(|program| program.is_file())
        .ok_or(BrowserError::Missing)
}

// === impl Browser ===

impl Browser {
    /// Starts a browser with an empty profile.
    ///
    /// # Errors
    /// When there is none, or it does not answer.
    pub async fn start() -> Result<Self, BrowserError> {
        let program = find_chromium()?;
        let profile = Profile::new()?;
        // Chromium reads commands from descriptor 3 and writes answers to 4. The shell puts our
        // pipes there, and is itself replaced by the browser.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >&2"])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.0.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("HOME", &profile.0)
            .kill_on_drop(true)
            .spawn()?;
        let pipe = Pipe::open(&mut process)?;
        let browser = Self {
            pipe,
            _process: process,
            _profile: profile,
        };
        browser
            .pipe
            .call(None, "Browser.getVersion", json!({}))
            .await?;
        Ok(browser)
    }

    /// Opens an empty page with cookies and storage of its own.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn page(&self, screen: Screen) -> Result<Page, BrowserError> {
        let context = self
            .pipe
            .call(None, "Target.createBrowserContext", json!({}))
            .await?;
        let target = json!({
            "url": "about:blank",
            "browserContextId": context["browserContextId"],
            "width": screen.width,
            "height": screen.height,
        });
        let target = self.pipe.call(None, "Target.createTarget", target).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self
            .pipe
            .call(None, "Target.attachToTarget", attach)
            .await?;
        let Value::String(session) = &attached["sessionId"] else {
            return Err(BrowserError::Refused {
                method: "Target.attachToTarget".into(),
                message: attached.to_string(),
            });
        };
        Page::open(self.pipe.clone(), session.clone(), screen).await
    }
}

// === impl Profile ===

impl Profile {
    fn new() -> std::io::Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("landfall-browser-{}-{number}", std::process::id());
        let path: &Path = &std::env::temp_dir().join(name);
        std::fs::create_dir_all(path)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // The dying browser may still write; what it leaves is in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
