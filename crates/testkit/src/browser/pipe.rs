//! The `DevTools` protocol over a pipe: commands with numbers, answers with the same numbers, and
//! events in between; each a JSON text that ends with a NUL byte. Knows no command.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{BrowserError, DEADLINE};

/// So much of what the browser complains about is kept for messages.
const LAST_WORDS: usize = 2_000;

/// The line to a browser. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pipe(Arc<Line>);

struct Line {
    state: Mutex<State>,
    stdin: tokio::sync::Mutex<ChildStdin>,
    event: Notify,
    readers: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Value>>,
    /// Events by session, oldest first.
    events: BTreeMap<String, Vec<Value>>,
    last_words: String,
    ended: bool,
}

// === impl Pipe ===

impl Pipe {
    pub(super) fn open(process: &mut Child) -> std::io::Result<Self> {
        let gone = || std::io::Error::other("the browser has no pipes");
        let stdin = process.stdin.take().ok_or_else(gone)?;
        let stdout = process.stdout.take().ok_or_else(gone)?;
        let stderr = process.stderr.take().ok_or_else(gone)?;
        let line = Arc::new(Line {
            state: Mutex::default(),
            stdin: tokio::sync::Mutex::new(stdin),
            event: Notify::new(),
            readers: Mutex::default(),
        });
        let mut readers = JoinSet::new();
        readers.spawn(listen(Arc::downgrade(&line), stdout));
        readers.spawn(overhear(Arc::downgrade(&line), stderr));
        *line.readers.lock().unwrap_or_else(PoisonError::into_inner) = readers;
        Ok(Self(line))
    }

    /// Sends a command and waits for its answer.
    pub(super) async fn call(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut state = self.0.state();
            state.next += 1;
            let number = state.next;
            state.waiting.insert(number, sender);
            number
        };
        let mut command = json!({"id": number, "method": method, "params": params});
        if let Some(session) = session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        let written = self.0.stdin.lock().await.write_all(&bytes).await;
        if written.is_err() {
            return Err(self.ended());
        }
        let mut answer = match timeout(DEADLINE, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => return Err(self.ended()),
            Err(_) => return Err(BrowserError::Timeout(format!("the answer to {method}"))),
        };
        match answer.get("error") {
            Some(error) => Err(BrowserError::Refused {
                method: method.to_owned(),
                message: error.to_string(),
            }),
            None => Ok(answer["result"].take()),
        }
    }

    /// Everything that was received about a session so far.
    pub(super) fn events(&self, session: &str) -> Vec<Value> {
        self.0
            .state()
            .events
            .get(session)
            .cloned()
            .unwrap_or_default()
    }

    /// Waits until what was received about a session satisfies the test.
    pub(super) async fn until(
        &self,
        session: &str,
        what: &str,
        test: impl Fn(&[Value]) -> bool,
    ) -> Result<(), BrowserError> {
        let found = async {
            loop {
                let received = self.0.event.notified();
                tokio::pin!(received);
                received.as_mut().enable();
                if test(&self.events(session)) {
                    return Ok(());
                }
                if self.0.state().ended {
                    return Err(self.ended());
                }
                received.await;
            }
        };
        let timed_out = |_| Err(BrowserError::Timeout(what.to_owned()));
        timeout(DEADLINE, found).await.unwrap_or_else(timed_out)
    }

    fn ended(&self) -> BrowserError {
        BrowserError::Ended(self.0.state().last_words.clone())
    }
}

// === impl Line ===

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, mut message: Value) {
        let mut state = self.state();
        if let Some(number) = message["id"].as_u64() {
            if let Some(waiting) = state.waiting.remove(&number) {
                // Nothing waits any more after a timeout.
                let _ = waiting.send(message);
            }
            return;
        }
        if let Value::String(session) = message["sessionId"].take() {
            state.events.entry(session).or_default().push(message);
        }
        drop(state);
        self.event.notify_waiters();
    }
}

/// Reads answers and events until the browser or the line is gone.
async fn listen(line: std::sync::Weak<Line>, stdout: impl AsyncRead + Unpin) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut text = Vec::new();
        let read = stdout.read_until(0, &mut text).await;
        let Some(line) = line.upgrade() else { return };
        if !matches!(read, Ok(1..)) {
            let mut state = line.state();
            state.ended = true;
            state.waiting.clear();
            drop(state);
            line.event.notify_waiters();
            return;
        }
        text.pop();
        if let Ok(message) = serde_json::from_slice(&text) {
            line.take(message);
        }
    }
}

/// Keeps the end of what the browser writes to its log.
async fn overhear(line: std::sync::Weak<Line>, mut stderr: impl AsyncRead + Unpin) {
    let mut part = [0; 1024];
    while let Ok(count @ 1..) = stderr.read(&mut part).await {
        let Some(line) = line.upgrade() else { return };
        let mut state = line.state();
        state
            .last_words
            .push_str(&String::from_utf8_lossy(&part[..count]));
        let surplus = state.last_words.chars().count().saturating_sub(LAST_WORDS);
        state.last_words = state.last_words.chars().skip(surplus).collect();
    }
}
