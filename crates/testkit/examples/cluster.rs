//! A Kubernetes control plane to play with: `cargo run -p landfall-testkit --features cluster
//! --example cluster`. It ends with the program.
//!
//! With `--programs` it only finds or builds the programs, so that no test has to.

#![expect(clippy::print_stdout, reason = "a program for people")]

use landfall_testkit::cluster::{Cluster, ClusterError, Options, Programs};

#[tokio::main]
async fn main() -> Result<(), ClusterError> {
    if std::env::args().any(|argument| argument == "--programs") {
        return Programs::find().await.map(drop);
    }
    let options = Options {
        controllers: true,
        ..Options::default()
    };
    let cluster = Cluster::start(options).await?;
    println!("export KUBECONFIG={}", cluster.admin().display());
    println!("# press Ctrl-C to end it");
    if let Err(source) = tokio::signal::ctrl_c().await {
        return Err(ClusterError::Io {
            what: "no signals".to_owned(),
            source,
        });
    }
    Ok(())
}
