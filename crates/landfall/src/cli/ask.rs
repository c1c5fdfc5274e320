//! Asking: `get`, `explain`, `plan` and `check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::serve::pool_ranges;
use super::{AdminArgs, ClusterArgs, InstancesArgs, TextOutput};

/// `landfall get`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                 landfall get services\n  \
                 landfall get svc -o wide\n  \
                 landfall get services -o json | jq '.items[].status'\n  \
                 landfall get peers --admin 127.0.0.1:9641\n  \
                 landfall get routes --admin 127.0.0.1:9641")]
pub struct GetArgs {
    /// The kind of the objects
    #[arg(value_enum)]
    pub kind: Kind,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<GetOutput>,
    /// Only this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// With a cluster: the controller's configuration, which names its classes
    #[arg(long, value_name = "FILE", env = "LANDFALL_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub instance: AdminArgs,
}

/// `landfall explain`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  landfall explain default/web\n  landfall explain shop/api -o json"
)]
pub struct ExplainArgs {
    /// NAMESPACE/NAME of the Service
    #[arg(value_name = "NAMESPACE/NAME")]
    pub service: landfall_model::ServiceKey,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
    #[command(flatten)]
    pub instances: InstancesArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub instance: AdminArgs,
}

/// `landfall plan`
#[derive(Debug, Args)]
#[command(
    after_help = "Plans on the running instance or, with a kubeconfig, on the cluster. If no \
                 instance answers, or with --config, --cloud-config or --pool, it plans for an \
                 instance that holds nothing; an instance on OpenStack reads the cloud.\n\n\
                 Examples:\n  \
                 landfall plan -f web.yaml\n  \
                 landfall plan -f examples/ --prune -o json"
)]
pub struct PlanArgs {
    /// A manifest file, a folder of them, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "PATH", required = true)]
    pub filename: Vec<PathBuf>,
    /// Read nested folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Plan as if Services that are not in these manifests were deleted
    #[arg(long)]
    pub prune: bool,
    #[command(flatten)]
    pub instances: InstancesArgs,
    /// Addresses to plan with if no instance answers: CIDR or FIRST-LAST; may be repeated
    #[arg(long = "pool", value_name = "CIDR|FIRST-LAST", value_parser = pool_ranges)]
    pub pools: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub instance: AdminArgs,
}

/// `landfall check`
#[derive(Debug, Args)]
#[command(
    after_help = "Exits with 0 if there are no errors, 1 if there are, 2 if the command line is \
                 invalid.\n\n\
                 Examples:\n  \
                 landfall check -f examples/\n  \
                 landfall check -f - -o json < web.yaml"
)]
pub struct CheckArgs {
    /// A manifest file, a folder of them, or - for standard input; may be repeated. Without it,
    /// with a kubeconfig or as a plugin of kubectl: the objects of the cluster
    #[arg(short, long = "filename", value_name = "PATH")]
    pub filename: Vec<PathBuf>,
    /// Read nested folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub instances: InstancesArgs,
    /// Also validate addresses against these pools: CIDR or FIRST-LAST; may be repeated
    #[arg(long = "pool", value_name = "CIDR|FIRST-LAST", value_parser = pool_ranges)]
    pub pools: Vec<String>,
    /// Also connect to the clouds: authenticate, and validate against their objects
    #[arg(long)]
    pub connect: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}

/// What `get` can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Services of type LoadBalancer
    #[value(aliases = ["service", "svc"])]
    Services,
    /// Sessions of a speaker, or of `up`, with routers: BGP and BFD
    #[value(alias = "peer")]
    Peers,
    /// Prefixes that a speaker, or `up`, announces by BGP
    #[value(alias = "route")]
    Routes,
}

/// How `get` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GetOutput {
    /// More columns
    Wide,
    /// A v1 List as JSON
    Json,
    /// A v1 List as YAML
    Yaml,
}
