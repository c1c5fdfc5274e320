//! Admin endpoints of what is measured.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The body of a good answer within a second.
pub async fn get(admin: SocketAddr, path: &str) -> Option<String> {
    let asked = async {
        let mut stream = TcpStream::connect(admin).await.ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        (head.split(' ').nth(1) == Some("200")).then(|| body.to_owned())
    };
    timeout(Duration::from_secs(1), asked).await.ok()?
}
