//! How a new process takes the place of a running one: it asks at a Unix socket in the state
//! directory, gets copies of the listening sockets, and says when it serves. Until then the running
//! process can go on as if nothing had happened.
//!
//! ```text
//!  new                                 running
//!   │ ── ask ──────────────────────────> │ stops its control plane; traffic goes on
//!   │ <────────── sockets, sockets ... ─ │ gives up the state directory
//!   │ reads the state, opens listeners   │
//!   │ ── serving ──────────────────────> │ accepts nothing more
//!   │ <───────────────────────── done ── │ lets connections end, exits
//! ```

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use landfall_model::Protocol;
use landfall_proxy::{ListenerId, Sockets};
use landfall_sys::{limits, rights};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// The socket's name in the state directory.
const NAME: &str = "takeover.sock";

/// Which version of this conversation both sides must have.
const VERSION: u32 = 1;

/// How long the other side may take for an answer that needs no work.
const ANSWER: Duration = Duration::from_secs(5);

/// How long the running process may take to end its control plane and send its sockets.
const SOCKETS: Duration = Duration::from_secs(60);

/// How long a new process may take until it serves.
const SERVING: Duration = Duration::from_secs(120);

/// How often it is looked whether the socket is still there.
const LOOK: Duration = Duration::from_secs(1);

/// The longest message.
const LONGEST: usize = 1 << 20;

/// What is handed over.
#[derive(Debug, Default)]
pub struct Handover {
    /// The sockets of listeners.
    pub sockets: Sockets,
    /// The admin endpoint's.
    pub admin: Option<TcpListener>,
}

/// Where a running process is asked.
#[derive(Debug)]
pub struct HandoverListener(UnixListener);

/// A conversation in which this process is to be succeeded.
#[derive(Debug)]
pub struct OutgoingHandover(Line);

/// A conversation in which this process takes over.
#[derive(Debug)]
pub struct IncomingHandover(Line);

/// How a conversation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The new process serves.
    Served,
    /// It does not, for this reason.
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum Message {
    /// The new process asks.
    Ask { version: u32 },
    /// Descriptors come along, one for each entry.
    Sockets { entries: Vec<Entry>, last: bool },
    /// The new process serves.
    Serving,
    /// The running process accepts nothing more.
    Done,
    /// The running process goes on.
    Stay { why: String },
}

/// What a descriptor is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Entry {
    /// `None`: the admin endpoint's.
    protocol: Option<Protocol>,
    address: SocketAddr,
}

/// Messages and descriptors through a Unix socket.
#[derive(Debug)]
struct Line {
    stream: UnixStream,
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

// === impl HandoverListener ===

impl HandoverListener {
    /// Opens it. Only the holder of the state directory may do that: what is left of an earlier
    /// process is replaced.
    pub fn open(state: &Path) -> io::Result<Self> {
        let (path, _folder) = path(state)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self(listener))
    }

    /// Returns once the socket is not in the directory any more. One that another process put in
    /// its place is that one's.
    pub async fn removed(state: &Path) {
        loop {
            tokio::time::sleep(LOOK).await;
            let found = path(state).and_then(|(path, _folder)| fs::symlink_metadata(path));
            if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                return;
            }
        }
    }

    /// Waits for a process that asks properly. Cancel-safe: a process that is cut off may ask
    /// again.
    pub async fn knock(&self) -> OutgoingHandover {
        loop {
            match self.answer().await {
                Ok(handing) => return handing,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "a take-over was refused");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn answer(&self) -> anyhow::Result<OutgoingHandover> {
        let (stream, _) = self.0.accept().await?;
        let peer = stream.peer_cred()?;
        let mine = limits::user();
        if peer.uid() != mine && peer.uid() != 0 {
            bail!("user {} requested it, and only user {mine} may", peer.uid());
        }
        let mut line = Line::of(stream);
        match timeout(ANSWER, line.receive()).await?? {
            Some(Message::Ask { version: VERSION }) => {
                tracing::info!(process = peer.pid(), "another process takes over");
                Ok(OutgoingHandover(line))
            }
            Some(Message::Ask { version }) => {
                let why = format!("it uses version {VERSION} of the protocol, not {version}");
                line.send(&Message::Stay { why: why.clone() }, &[]).await?;
                bail!(why)
            }
            _ => bail!("no request was received"),
        }
    }
}

// === impl OutgoingHandover ===

impl OutgoingHandover {
    /// Hands everything over and waits until the new process serves, or fails to.
    pub async fn hand(&mut self, handover: &Handover) -> Outcome {
        match timeout(SERVING, self.try_hand(handover)).await {
            Ok(Ok(())) => Outcome::Served,
            Ok(Err(error)) => Outcome::Failed(format!("{error:#}")),
            Err(_) => Outcome::Failed(format!(
                "the new process did not serve within {} s",
                SERVING.as_secs()
            )),
        }
    }

    async fn try_hand(&mut self, handover: &Handover) -> anyhow::Result<()> {
        let admin = handover.admin.iter().map(|admin| {
            let address = admin.local_addr()?;
            let entry = Entry {
                protocol: None,
                address,
            };
            Ok((entry, admin.as_fd()))
        });
        let listeners = handover.sockets.iter().flat_map(|(id, sockets)| {
            let entry = Entry {
                protocol: Some(id.key.protocol),
                address: id.socket_address(),
            };
            sockets.iter().map(move |it| Ok((entry, it.as_fd())))
        });
        let all: Vec<_> = admin.chain(listeners).collect::<io::Result<_>>()?;
        let mut parts: Vec<_> = all.chunks(rights::MOST).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        for (place, part) in parts.iter().enumerate() {
            let message = Message::Sockets {
                entries: part.iter().map(|(entry, _)| *entry).collect(),
                last: place + 1 == parts.len(),
            };
            let descriptors: Vec<_> = part.iter().map(|(_, descriptor)| *descriptor).collect();
            let sent = self.0.send(&message, &descriptors).await;
            sent.context("sending sockets")?;
        }
        tracing::info!(sockets = all.len(), "sockets were handed over");
        match self.0.receive().await? {
            Some(Message::Serving) => Ok(()),
            Some(_) => bail!("the new process sent an unexpected message"),
            None => bail!("the new process ended before it served"),
        }
    }

    /// Says that nothing more is accepted here.
    pub async fn done(&mut self) {
        self.say(Message::Done).await;
    }

    /// Says that this process goes on.
    pub async fn stay(&mut self, why: String) {
        self.say(Message::Stay { why }).await;
    }

    async fn say(&mut self, message: Message) {
        // A process that is gone needs no answer.
        let _ = timeout(ANSWER, self.0.send(&message, &[])).await;
    }
}

// === impl IncomingHandover ===

impl IncomingHandover {
    /// Asks the process that holds the state directory; `None`: no process answers there.
    pub async fn ask(state: &Path) -> anyhow::Result<Option<(Self, Handover)>> {
        let Ok((path, _folder)) = path(state) else {
            return Ok(None);
        };
        let stream = match UnixStream::connect(&path).await {
            Ok(stream) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("connecting to {}", path.display()));
            }
        };
        // As many as listeners have.
        limits::raise_open_files()?;
        let mut line = Line::of(stream);
        line.send(&Message::Ask { version: VERSION }, &[]).await?;
        let handover = timeout(SOCKETS, line.receive_estate());
        let handover = handover
            .await
            .context("the running process refused to hand over")?;
        Ok(Some((Self(line), handover.context("taking over")?)))
    }

    /// Returns, once the running process says so, why it goes on instead. Cancel-safe.
    pub async fn revoked(&mut self) -> String {
        match self.0.receive().await {
            Ok(Some(Message::Stay { why })) => why,
            // It has ended, so that nothing is left but to go on.
            _ => std::future::pending().await,
        }
    }

    /// Says that this process serves. Fails if the running one goes on instead.
    pub async fn serving(mut self) -> anyhow::Result<()> {
        if self.0.send(&Message::Serving, &[]).await.is_err() {
            // What it still had to say is read below.
            tracing::debug!("the process to take over from is gone");
        }
        match timeout(ANSWER, self.0.receive()).await {
            Ok(Ok(Some(Message::Stay { why }))) => bail!("the running process continues: {why}"),
            // It may as well have ended by now: this process holds the state directory.
            _ => Ok(()),
        }
    }
}

// === impl Line ===

impl Line {
    fn of(stream: UnixStream) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            descriptors: VecDeque::new(),
        }
    }

    async fn send(
        &self,
        message: &Message,
        descriptors: &[std::os::fd::BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut text = serde_json::to_vec(message)?;
        text.push(b'\n');
        let (mut rest, mut descriptors) = (text.as_slice(), descriptors);
        while !rest.is_empty() {
            let sent = self
                .stream
                .async_io(Interest::WRITABLE, || {
                    rights::send(&self.stream, rest, descriptors)
                })
                .await?;
            rest = rest.get(sent..).unwrap_or_default();
            descriptors = &[];
        }
        Ok(())
    }

    /// The next message; `None`: the other side is gone.
    async fn receive(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let text: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&text)?));
            }
            if self.bytes.len() > LONGEST {
                return Err(io::Error::other("a message is too long"));
            }
            let mut room = [0; 4096];
            let Self {
                stream,
                descriptors,
                ..
            } = self;
            let count = stream
                .async_io(Interest::READABLE, || {
                    rights::receive(&*stream, &mut room, descriptors)
                })
                .await?;
            if count == 0 {
                return Ok(None);
            }
            self.bytes.extend(room.iter().take(count));
        }
    }

    async fn receive_estate(&mut self) -> anyhow::Result<Handover> {
        let mut handover = Handover::default();
        loop {
            let (entries, last) = match self.receive().await? {
                Some(Message::Sockets { entries, last }) => (entries, last),
                Some(Message::Stay { why }) => bail!("the running process continues: {why}"),
                Some(_) => bail!("the running process sent an unexpected message"),
                None => bail!("the running process ended"),
            };
            for entry in entries {
                let socket = self.descriptors.pop_front();
                let socket = socket.context("a socket is missing")?;
                match entry.protocol {
                    None => handover.admin = Some(socket.into()),
                    Some(protocol) => {
                        let id = ListenerId::of(entry.address, protocol);
                        let id = id.context("a socket has no port")?;
                        handover.sockets.entry(id).or_default().push(socket);
                    }
                }
            }
            if last {
                return Ok(handover);
            }
        }
    }
}

/// Where the socket is, by a path that is short enough for any directory; valid as long as the
/// directory is held open.
fn path(state: &Path) -> io::Result<(PathBuf, fs::File)> {
    use std::os::fd::AsRawFd as _;
    let folder = fs::File::open(state)?;
    let path = format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd());
    Ok((path.into(), folder))
}

#[cfg(test)]
mod tests;
