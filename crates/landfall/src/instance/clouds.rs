//! Whether the clouds of a fleet answer, asked when an instance starts and until they do.

use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::account::{OpenStackInstance, Unusable};
use crate::fleet::Instances;

/// A cloud that does not answer is asked again after this long at first, and after this
/// long at most.
const AGAIN: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Asks every cloud once. An account that is refused stops the start, unless this process `carries`
/// traffic already: that must not end for it. A cloud that does not answer must not keep other
/// instances from their work. Both are handed back to be asked again.
pub(super) async fn check_clouds(
    fleet: &Instances,
    carries: bool,
) -> anyhow::Result<Vec<OpenStackInstance>> {
    let mut asked = JoinSet::new();
    for account in fleet.accounts() {
        account.log_warnings();
        if !account.settings.conf.enabled {
            let instance = &account.instance;
            tracing::info!(
                instance,
                "[LoadBalancer] enabled = false: none of its Services is changed"
            );
        }
    }
    for account in fleet.active().cloned() {
        asked.spawn(async move { (account.check().await, account) });
    }
    let mut silent = Vec::new();
    while let Some(answer) = asked.join_next().await {
        let (answer, account) = answer?;
        let instance = &account.instance;
        match answer {
            Ok(version) => {
                let auth_url = &account.auth_url;
                tracing::info!(instance, auth_url, octavia = %version, "the cloud answers");
            }
            Err(error @ Unusable::Refused { .. }) if carries => {
                tracing::error!(instance, "{error}; traffic continues, and it is retried");
                silent.push(account);
            }
            Err(Unusable::Refused { .. }) => {
                answer.with_context(|| format!("instance {instance}"))?;
            }
            Err(error @ Unusable::NoAnswer { .. }) => {
                tracing::error!(instance, "{error}; it is retried until it does");
                silent.push(account);
            }
        }
    }
    Ok(silent)
}

/// Asks a cloud that could not be used until it can, and says so. Its Services are tried meanwhile,
/// too, and tell why they wait.
pub(super) async fn retry_cloud_check(account: OpenStackInstance, cancel: CancellationToken) {
    let instance = &account.instance;
    let mut pause = AGAIN;
    while cancel
        .run_until_cancelled(tokio::time::sleep(pause))
        .await
        .is_some()
    {
        match account.check().await {
            Ok(version) => {
                tracing::info!(instance, octavia = %version, "the cloud answers now");
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

    /// A Keystone that lets nobody in.
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
        let fleet = Instances::read(&args).await.unwrap();
        let error = check_clouds(&fleet, false).await.unwrap_err();
        assert!(format!("{error:#}").contains("can't be used"), "{error:#}");
        let asked_again = check_clouds(&fleet, true).await.unwrap();
        assert_eq!(asked_again.len(), 1);
    }
}
