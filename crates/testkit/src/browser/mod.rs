//! A real browser for tests and screenshots: headless Chromium, driven over its `DevTools`
//! protocol.
//!
//! The protocol goes through a pipe, so there is no port to find, no WebSocket and no extra crate.
//! Chromium comes from Debian's package `chromium`. Where it is missing, [`Browser::start`] fails
//! and says how to install it; it never skips.

mod page;
mod pipe;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
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
        "no Chromium found: run cargo xtask install (Debian: apt-get install chromium), or name \
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

/// A running headless Chromium with a profile of its own. Ends when dropped, or when the test does.
pub struct Browser {
    pipe: Pipe,
    _process: Child,
}

/// Chromium reads commands from descriptor 3 and writes answers to 4: the shell puts our pipes
/// there. It ends when they close, however the test has ended, and then its profile is removed.
const LAUNCH: &str = "profile=$1; shift; \
    \"$0\" --user-data-dir=\"$profile\" \"$@\" 3<&0 4>&1 </dev/null >&2; rm -rf \"$profile\"";

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

/// The browser's program: what the environment variable CHROMIUM names, or the first that is in
/// PATH.
///
/// # Errors
/// When it does not exist.
pub fn find_chromium() -> Result<PathBuf, BrowserError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find(std::env::var_os("CHROMIUM"), &path)
}

fn find(named: Option<OsString>, path: &OsStr) -> Result<PathBuf, BrowserError> {
    if let Some(named) = named {
        return Ok(named.into());
    }
    let folders: Vec<_> = std::env::split_paths(path).collect();
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
    /// When it does not exist, or does not answer.
    pub async fn start() -> Result<Self, BrowserError> {
        let program = find_chromium()?;
        let profile = new_profile()?;
        let mut process = Command::new("sh")
            .args(["-c", LAUNCH])
            .arg(program)
            .arg(&profile)
            .args(FLAGS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("HOME", &profile)
            .spawn()?;
        let pipe = Pipe::open(&mut process)?;
        let browser = Self {
            pipe,
            _process: process,
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

/// An empty directory of this process's own.
fn new_profile() -> std::io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("landfall-browser-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_browser_gets_an_error_that_says_what_to_install() {
        let error = find(None, OsStr::new("/nowhere:/nowhere/else")).unwrap_err();
        assert!(
            error.to_string().contains("apt-get install chromium"),
            "{error}"
        );
    }

    #[test]
    fn a_named_browser_is_taken_as_it_is() {
        let named = Some(OsString::from("/opt/chromium"));
        assert_eq!(
            find(named, OsStr::new("")).unwrap(),
            PathBuf::from("/opt/chromium")
        );
    }
}
