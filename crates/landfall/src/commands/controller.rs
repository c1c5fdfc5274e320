//! `landfall controller`: serves the Services of a cluster.

use landfall_web::token::TokenFile;

use crate::assembly::Options;
use crate::cli::ControllerArgs;
use crate::instances::Instances;
use crate::signals::Stop;

use super::serve_cluster::ServeCluster;

/// Runs the command.
pub async fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let grace = args.run.grace();
    // First, so that no signal of these ends the process while it waits for credentials.
    let stop = Stop::watch(grace)?;
    let options = Options {
        instances: Instances::read(&args.instances).await?,
        pools: Vec::new(),
        fallback_pool: false,
        admin: args.admin,
        workers: args.run.threads(),
        access_log: args.run.access_log.clone(),
        chosen: args.chosen,
        audit_every: args.run.audit_interval,
        admin_token: args.run.admin_token_file.map(TokenFile::new),
        admin_names: args.run.admin_name,
        webhook: args.webhook.options(),
    };
    let beside = ServeCluster {
        options,
        cluster: args.cluster,
        election: args.election,
        state: args.state,
        host: std::env::var("HOSTNAME").unwrap_or_else(|_| "landfall".to_owned()),
        grace,
        by_hand: false,
    };
    Box::pin(beside.run(stop)).await
}
