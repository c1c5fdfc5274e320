//! Whether what delivers packets on this node works, as it says itself over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::lifetime::Lifetime;

/// Between two questions, and the longest that an answer may take.
const LOOK: Duration = Duration::from_secs(2);

/// So many questions in a row without a good answer mean that it does not work.
const MISSED: u32 = 3;

/// Asks again and again from now on. What is first known is waited for: routers that keep the
/// routes of a speaker that restarts must not lose them for want of it, nor for one bad answer.
pub async fn follow(url: Option<Uri>, lifetime: &Lifetime) -> Option<watch::Receiver<bool>> {
    let url = url?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let first = first(|| look(&client, &url)).await;
    if let Err(why) = &first {
        warn!(%url, why, "the data plane of this node does not work yet");
    }
    let (known, healthy) = watch::channel(first.is_ok());
    let asking = keep_asking(client, url, known);
    let cancel = lifetime.cancel.clone();
    lifetime
        .tasks
        .spawn(cancel.run_until_cancelled_owned(asking));
    Some(healthy)
}

/// Returns the first good answer, or the last of so many bad ones that it is taken not to work.
async fn first(mut ask: impl AsyncFnMut() -> Result<(), String>) -> Result<(), String> {
    let mut missed = 0;
    loop {
        let answer = ask().await;
        if !next(true, &mut missed, answer.is_ok()) || answer.is_ok() {
            return answer;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn keep_asking(
    client: Client<HttpConnector, Empty<Bytes>>,
    url: Uri,
    known: watch::Sender<bool>,
) {
    let mut missed = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let answer = look(&client, &url).await;
        let was_healthy = *known.borrow();
        let is_healthy = next(was_healthy, &mut missed, answer.is_ok());
        if is_healthy == was_healthy {
            continue;
        }
        match answer {
            Ok(()) => info!(%url, "the data plane of this node works"),
            Err(why) => warn!(%url, why, "the data plane of this node does not work"),
        }
        known.send_replace(is_healthy);
    }
}

/// Returns whether it is taken to work after another answer. `missed`: answers in a row that were
/// not good.
const fn next(was_healthy: bool, missed: &mut u32, is_good: bool) -> bool {
    *missed = if is_good { 0 } else { missed.saturating_add(1) };
    is_good || was_healthy && *missed < MISSED
}

/// Returns why there is no good answer in time.
async fn look(client: &Client<HttpConnector, Empty<Bytes>>, url: &Uri) -> Result<(), String> {
    let answer = tokio::time::timeout(LOOK, ask(client, url)).await;
    answer.unwrap_or_else(|_| Err(format!("no answer in {LOOK:?}")))
}

/// Returns why there is no good answer.
async fn ask(client: &Client<HttpConnector, Empty<Bytes>>, url: &Uri) -> Result<(), String> {
    match client.get(url.clone()).await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("it answers {}", answer.status())),
        Err(error) => Err(format!("{:#}", anyhow::Error::from(error))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn three_missed_answers_in_a_row_count_and_one_good_one_ends_it() {
        let (mut healthy, mut missed) = (true, 0);
        let answers = [false, false, true, false, false, false, false, true];
        let taken = answers.map(|is_good| {
            healthy = next(healthy, &mut missed, is_good);
            healthy
        });
        assert_eq!(taken, [true, true, true, true, true, false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_start_it_takes_as_many_missed_answers_as_later() {
        let bad = || Err("no".to_owned());
        let cases = [
            (vec![Ok(())], Ok(())),
            (vec![bad(), bad(), Ok(())], Ok(())),
            (vec![bad(), bad(), bad()], bad()),
        ];
        for (answers, taken) in cases {
            let mut answers = answers.into_iter();
            let known = first(async || answers.next().unwrap()).await;
            assert_eq!((known, answers.next()), (taken, None));
        }
    }

    #[tokio::test]
    async fn only_an_answer_of_success_is_a_good_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}/healthz", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let serving = async {
            for status in ["200 OK", "503 Service Unavailable"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut room = [0; 1024];
                let length = stream.read(&mut room).await.unwrap();
                assert!(room[..length].starts_with(b"GET /healthz HTTP/1.1"));
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
            }
            drop(listener);
        };
        let asking = async {
            let client = Client::builder(TokioExecutor::new()).build_http();
            assert_eq!(ask(&client, &url).await, Ok(()));
            let why = ask(&client, &url).await.unwrap_err();
            assert!(why.contains("503"), "{why}");
            client
        };
        let ((), client) = tokio::join!(serving, asking);
        assert!(ask(&client, &url).await.is_err());
    }
}
