//! Serving: `demo`, `up` and `controller`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use landfall_config::access_log::{AccessLogConfig, Share};
use landfall_config::pools;
use landfall_local::Local;
use landfall_model::provider::Provider as _;

use super::{AccessLogFormat, ChosenArgs, DEFAULT_ADMIN, InstancesArgs, LogFormat, ReferenceArgs};

/// `landfall demo`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                 landfall demo            serve until Ctrl-C\n  \
                 landfall demo --once     send requests through every address, print their \
                 distribution, and stop")]
pub struct DemoArgs {
    /// Send requests through every address, print their distribution over the members, and stop;
    /// succeeds only if all were answered and the failing member got none
    #[arg(long)]
    pub once: bool,
    /// Address of the status page; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "LANDFALL_ADMIN")]
    pub admin: SocketAddr,
    /// Format of the log
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// `landfall up`
#[derive(Debug, Args)]
#[command(
    after_help = "With a kubeconfig it takes part in leader election with the controller of that \
                  cluster: one of the two writes and serves, the other is a standby.\n\n\
                  Examples:\n  \
                  landfall up -f examples/\n  \
                  landfall up -f web.yaml -f dns.yaml --pool 192.0.2.16-192.0.2.31\n  \
                  kubectl get svc,endpointslices -o yaml | landfall up -f -"
)]
pub struct UpArgs {
    /// A manifest file, a folder of them, or - for standard input; may be repeated
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        required_unless_present_any = ["kubeconfig", "context"],
        conflicts_with_all = [
            "kubeconfig", "context", "leader_elect", "lease_name", "lease_duration",
            "renew_deadline", "retry_period",
        ]
    )]
    pub filename: Vec<PathBuf>,
    /// Read nested folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub cluster: ServeClusterArgs,
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Addresses to assign: CIDR or FIRST-LAST; may be repeated. Default, if no pool among the
    /// manifests serves all Services: 127.77.0.0/24, which needs no privileges
    #[arg(long = "pool", value_name = "CIDR|FIRST-LAST", value_parser = pool_ranges)]
    pub pools: Vec<String>,
    #[command(flatten)]
    pub instances: InstancesArgs,
    /// Directory that keeps addresses over restarts
    #[arg(long, value_name = "DIR", env = "LANDFALL_STATE")]
    pub state: Option<PathBuf>,
    /// Replace the instance that uses the state directory: with its sockets, so that no connection
    /// is refused. Until this process serves, the other one continues
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    pub take_over: bool,
    /// Address of health, metrics, JSON and the status page; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "LANDFALL_ADMIN")]
    pub admin: SocketAddr,
    #[command(flatten)]
    pub run: RunArgs,
    /// Format of the log
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// `landfall controller`
#[derive(Debug, Args)]
#[command(
    after_help = "In a pod the service account is used; elsewhere name a kubeconfig. Several \
                 replicas elect a leader with a Lease; only the leader writes, the others stand \
                 by.\n\n\
                 It also accepts the flags of openstack-cloud-controller-manager: \
                 docs/migrating-openstack.md lists what they do here.\n\n\
                 Examples:\n  \
                 landfall controller --config /etc/landfall/landfall.yaml\n  \
                 landfall controller --kubeconfig ~/.kube/config --leader-elect=false"
)]
pub struct ControllerArgs {
    #[command(flatten)]
    pub instances: InstancesArgs,
    #[command(flatten)]
    pub cluster: ServeClusterArgs,
    #[command(flatten)]
    pub chosen: ChosenArgs,
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Directory for the last known state, so that a start while the API server is unavailable
    /// serves it again; default: none
    #[arg(long, value_name = "DIR", env = "LANDFALL_STATE")]
    pub state: Option<PathBuf>,
    /// Address of health, metrics, JSON and the status page
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "LANDFALL_ADMIN")]
    pub admin: SocketAddr,
    #[command(flatten)]
    pub webhook: WebhookArgs,
    #[command(flatten)]
    pub run: RunArgs,
    /// Format of the log
    #[arg(long, value_enum, default_value = "json", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// What was given of the reference's flags.
    #[arg(skip)]
    pub reference: ReferenceArgs,
}

/// The admission webhook for MetalLB's resources.
#[derive(Clone, Debug, Args)]
pub struct WebhookArgs {
    /// Address of the admission webhook, which refuses resources of MetalLB that contradict others;
    /// default: no webhook
    #[arg(long, value_name = "ADDR", requires = "webhook_tls_dir")]
    pub webhook: Option<SocketAddr>,
    /// A directory with tls.crt and tls.key of the webhook; both are read again when they change
    #[arg(long, value_name = "DIR", requires = "webhook")]
    pub webhook_tls_dir: Option<PathBuf>,
}

/// What a webhook is started with.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where it answers.
    pub address: SocketAddr,
    /// A folder with `tls.crt` and `tls.key`, as a Secret of type `kubernetes.io/tls` is mounted.
    pub certificate: PathBuf,
}

impl WebhookArgs {
    /// What it is started with, if it is asked for.
    pub fn options(self) -> Option<WebhookOptions> {
        Some(WebhookOptions {
            address: self.webhook?,
            certificate: self.webhook_tls_dir?,
        })
    }
}

/// Leader election among the processes that serve one cluster.
#[derive(Clone, Debug, Args)]
pub struct ElectionArgs {
    /// Whether replicas elect a leader, which alone writes
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub leader_elect: bool,
    /// The namespace of the Lease; default: for `controller` that of the pod or context, for `up`
    /// landfall-system if the cluster has it, otherwise that of the context
    #[arg(long, value_name = "NAMESPACE", env = "LANDFALL_NAMESPACE")]
    pub namespace: Option<String>,
    /// The name of the Lease
    #[arg(long, value_name = "NAME", default_value = "landfall")]
    pub lease_name: String,
    #[command(flatten)]
    pub lease: LeaseArgs,
}

/// The times of the election.
#[derive(Clone, Debug, Args)]
pub struct LeaseArgs {
    /// Time without a renewal after which another replica leads; whole seconds, from 2 to 300
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    pub lease_duration: Duration,
    /// Time without a renewal after which a leader stops writing, and keeps serving; at most four
    /// fifths of the duration, default: five eighths
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub renew_deadline: Option<Duration>,
    /// Time between renewals; at most half of the deadline, default: a quarter of the duration
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub retry_period: Option<Duration>,
}

/// Serving the Services of a cluster instead of those of files.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeClusterArgs {
    /// The kubeconfig of the cluster to serve; `up` without it serves manifests, `controller`
    /// without it the cluster of its pod
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, instead of its current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// How an instance runs.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// A host name that requests to the admin endpoint may use, besides its address; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    pub admin_name: Vec<String>,
    /// A file with a token that the admin endpoint requires, except for probes and metrics
    #[arg(long, value_name = "FILE", env = "LANDFALL_ADMIN_TOKEN_FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Worker threads of the data plane; default: one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    #[command(flatten)]
    pub access_log: AccessLogArgs,
    /// Time between two checks for changes that other programs have made in the clouds, at most;
    /// whole seconds, from 10 to 86400. Each pause is up to a fifth shorter
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "180",
        value_parser = audit_interval,
        env = "LANDFALL_AUDIT_INTERVAL"
    )]
    pub audit_interval: Duration,
    /// How long open connections may continue after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub grace: u64,
}

/// Options of the access log.
#[derive(Clone, Debug, Default, Args)]
pub struct AccessLogArgs {
    /// A file that gets a line for each request, connection and UDP flow when it ends; `-` is
    /// standard output. A file that was moved away is created again. These options override
    /// landfall.yaml
    #[arg(id = "access_log", long = "access-log", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Format of the access log
    #[arg(
        id = "access_log_format",
        long = "access-log-format",
        value_enum,
        value_name = "FORMAT"
    )]
    pub format: Option<AccessLogFormat>,
    /// The fraction of lines that is written, from 0 to 1. Failures are written in addition, at
    /// most 10 per second and Service in the long run
    #[arg(
        id = "access_log_sample",
        long = "access-log-sample",
        value_name = "SHARE",
        value_parser = share
    )]
    pub sample: Option<Share>,
    /// Log the part of targets after `?`, which may hold secrets
    #[arg(id = "access_log_query", long = "access-log-query")]
    pub query: bool,
}

/// Returns a number from 0 to 1.
fn share(text: &str) -> Result<Share, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Share::try_from(number).map_err(|why| why.to_string())
}

/// Returns the ranges of a pool as they were written, if the provider takes them.
pub(super) fn pool_ranges(text: &str) -> Result<String, String> {
    let ranges = text.to_owned();
    let pool = Arc::new(pools::from_flags(std::slice::from_ref(&ranges)));
    match Local::offline().set_pools(&[pool]).first() {
        None => Ok(ranges),
        Some(problem) if problem.remedy.is_empty() => Err(problem.message.clone()),
        Some(problem) => Err(format!("{}; {}", problem.message, problem.remedy)),
    }
}

/// Returns a time in seconds, perhaps with a fraction, of an hour at most.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=3600.0).contains(&number) {
        return Err("write seconds from 0 to 3600".to_owned());
    }
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

fn audit_interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 10..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("write whole seconds from 10 to 86400".to_owned()),
    }
}

// === impl AccessLogArgs ===

impl AccessLogArgs {
    /// What is wanted: what the command line says, and for the rest what is configured. `None`: no
    /// log.
    pub fn over(&self, configured: Option<&AccessLogConfig>) -> Option<AccessLogConfig> {
        let file = self.file.as_ref();
        let file = file.or(configured.map(|log| &log.file))?.clone();
        let format = self.format.map(Into::into);
        Some(AccessLogConfig {
            file,
            format: format
                .or(configured.map(|log| log.format))
                .unwrap_or_default(),
            sample: self
                .sample
                .or(configured.map(|log| log.sample))
                .unwrap_or_default(),
            query: self.query || configured.is_some_and(|log| log.query),
        })
    }
}

// === impl RunArgs ===

impl RunArgs {
    /// Threads that carry traffic, where that was said.
    pub fn threads(&self) -> Option<NonZeroUsize> {
        self.workers
            .and_then(|workers| NonZeroUsize::new(workers.into()))
    }

    /// How long connections may go on after a stop was asked for.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }
}
