//! Whether the clouds of a instances answer, asked when an instance starts and until they do.

use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::{Answer, Disabled, Setup, Unusable};
use crate::instances::Instances;
use crate::lifetime::Lifetime;

/// A cloud that does not answer is asked again after this long at first, and after this
/// long at most.
const AGAIN: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Asks every cloud once. An account that is refused stops the start, unless this process `carries`
/// traffic already: that must not end for it. A cloud that does not answer must not keep other
/// instances from their work. Both are handed back to be asked again.
pub(super) async fn check_clouds(
    instances: &Instances,
    carries: bool,
) -> anyhow::Result<Vec<Setup>> {
    let mut asked = JoinSet::new();
    for setup in instances.on_clouds() {
        setup.log_warnings();
        if let Some(Disabled { why, .. }) = setup.disabled() {
            tracing::info!("{why}: none of its Services is changed");
        }
    }
    for setup in instances.active().cloned() {
        asked.spawn(async move { (setup.check().await, setup) });
    }
    let mut silent = Vec::new();
    while let Some(answer) = asked.join_next().await {
        let (answer, setup) = answer?;
        let instance = &setup.instance;
        match answer {
            Ok(Answer { endpoint, version }) => {
                tracing::info!(instance, endpoint, version, "the cloud answers");
            }
            Err(error @ Unusable::Refused { .. }) if carries => {
                tracing::error!(instance, "{error}; traffic continues, and it is retried");
                silent.push(setup);
            }
            Err(Unusable::Refused { .. }) => {
                answer.with_context(|| format!("instance {instance}"))?;
            }
            Err(error @ Unusable::NoAnswer { .. }) => {
                tracing::error!(instance, "{error}; it is retried until it does");
                silent.push(setup);
            }
        }
    }
    Ok(silent)
}

/// Asks each of these clouds until it can be used.
pub(super) fn retry_all(silent: Vec<Setup>, Lifetime { tasks, cancel }: &Lifetime) {
    for setup in silent {
        tasks.spawn(retry_cloud_check(setup, cancel.clone()));
    }
}

/// Asks a cloud that could not be used until it can, and says so. Its Services are tried meanwhile,
/// too, and report why they wait.
async fn retry_cloud_check(setup: Setup, cancel: CancellationToken) {
    let instance = &setup.instance;
    let mut pause = AGAIN;
    while cancel
        .run_until_cancelled(tokio::time::sleep(pause))
        .await
        .is_some()
    {
        match setup.check().await {
            Ok(Answer { version, .. }) => {
                tracing::info!(instance, version, "the cloud answers now");
                return;
            }
            Err(error) => tracing::error!(instance, "{error}; it is retried"),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::cli::InstancesArgs;

    /// A Keystone that refuses every login.
    async fn refusing() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut room = [0; 4096];
                let read = client.read(&mut room).await;
                let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\
                               connection: close\r\n\r\n";
                // A client that has gone away needs no answer.
                let _gone = (read, client.write_all(answer).await);
            }
        });
        format!("http://{address}/v3")
    }

    #[tokio::test]
    async fn an_account_that_is_refused_stops_a_start_but_no_process_that_carries_traffic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.conf");
        let url = refusing().await;
        let text =
            format!("[Global]\nauth-url = {url}\nuser-id = u\npassword = p\ntenant-id = t\n");
        std::fs::write(&path, text).unwrap();
        let args = InstancesArgs {
            cloud_config: Some(path),
            ..InstancesArgs::default()
        };
        let instances = Instances::read(&args).await.unwrap();
        let error = check_clouds(&instances, false).await.unwrap_err();
        assert!(format!("{error:#}").contains("can't be used"), "{error:#}");
        let asked_again = check_clouds(&instances, true).await.unwrap();
        assert_eq!(asked_again.len(), 1);
    }
}
