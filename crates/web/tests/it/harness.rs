//! A served stage, and a client that sends exactly the bytes that it is given.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::view::InstanceView;
use landfall_web::Options;
use landfall_web::token::TokenFile;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::stage::Stage;

/// More than any answer takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// An admin endpoint with a stage behind it. Ends when dropped.
pub struct Served {
    pub stage: Arc<Stage>,
    pub address: SocketAddr,
    token: Option<TokenFile>,
    cancel: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

// === impl Served ===

impl Served {
    pub async fn new(scene: InstanceView) -> Self {
        Self::with(scene, None).await
    }

    /// One that asks for a token.
    pub async fn with(scene: InstanceView, token: Option<TokenFile>) -> Self {
        let stage = Stage::new(scene);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (address, cancel, task) = serve(&stage, any, token.clone()).await;
        Self {
            stage,
            address,
            token,
            cancel,
            task: Some(task),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Ends the endpoint and waits until it has.
    pub async fn stop(&mut self) {
        self.cancel.cancel();
        if let Some(task) = self.task.take() {
            tokio::time::timeout(DEADLINE, task)
                .await
                .expect("it ends")
                .expect("it does not panic");
        }
    }

    /// Serves again at the same address.
    pub async fn start(&mut self) {
        let (_, cancel, task) = serve(&self.stage, self.address, self.token.clone()).await;
        self.cancel = cancel;
        self.task = Some(task);
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    /// A well-formed request on a connection of its own.
    pub async fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers
            .iter()
            .any(|header| header.to_lowercase().starts_with("host:"))
        {
            write!(request, "Host: {}\r\n", self.address).unwrap();
        }
        for header in headers {
            write!(request, "{header}\r\n").unwrap();
        }
        if !body.is_empty() {
            write!(request, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        self.say(&(request + "\r\n" + body)).await
    }

    /// Sends the bytes as they are and reads an answer until the end.
    pub async fn say(&self, request: &str) -> Answer {
        Answer::parse(&String::from_utf8_lossy(&self.bytes(request).await))
    }

    /// Sends the bytes as they are and returns what comes until the end.
    pub async fn bytes(&self, request: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        tokio::time::timeout(DEADLINE, read)
            .await
            .expect("an answer in time")
            .unwrap();
        bytes
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

async fn serve(
    stage: &Arc<Stage>,
    address: SocketAddr,
    token: Option<TokenFile>,
) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let cancel = CancellationToken::new();
    let options = Options {
        names: landfall_web::guard::Names::new(["admin.example".to_owned()]),
        token,
    };
    let serving = landfall_web::serve(listener, Arc::clone(stage), options, cancel.clone());
    (address, cancel, tokio::spawn(serving))
}

// === impl Answer ===

impl Answer {
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or_default(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Status and error code of a refusal.
    #[track_caller]
    pub fn refusal(&self) -> (u16, String) {
        let json = self.json();
        let code = json["error"]["code"].as_str().expect("a code").to_owned();
        let message = json["error"]["message"].as_str().expect("a message");
        assert!(!message.is_empty(), "{self:?}");
        (self.status, code)
    }
}
