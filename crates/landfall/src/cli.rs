//! What can be typed: every command, option and default, and the help that teaches them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Where a running instance answers unless told otherwise.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:9640";

/// Gives Kubernetes Services of type LoadBalancer an address that works.
#[derive(Debug, Parser)]
#[command(
    name = "landfall",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Start with `landfall demo`: it serves a few Services on this machine and shows \
                  what to try.\nThen `landfall up -f FOLDER` serves your own manifests."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a few bundled Services with backends inside this process, to look around
    Demo(DemoArgs),
    /// Serve the LoadBalancer Services of manifests on this machine
    Up(UpArgs),
    /// Serve the LoadBalancer Services of a Kubernetes cluster, as one of several replicas
    Controller(ControllerArgs),
    /// List what a running instance holds
    Get(GetArgs),
    /// Walk through one Service: wish, address, listeners, members, and why each is as it is
    Explain(ExplainArgs),
    /// Print the steps that manifests would cause, without doing them
    Plan(PlanArgs),
    /// Judge manifests and annotations, with file and line
    Check(CheckArgs),
    /// Show what would be taken over from cloud-provider-openstack, and take it over
    Adopt(AdoptArgs),
    /// List what is in the cloud and belongs to no Service any more, and delete it
    Orphans(OrphansArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Examples:\n  landfall completion bash > /etc/bash_completion.d/landfall\n  \
                      landfall completion fish > ~/.config/fish/completions/landfall.fish"
    )]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages, one per command
    Man {
        /// Folder to write them to
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
}

/// `landfall demo`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  landfall demo            serve until Ctrl-C\n  landfall demo --once     \
                  send requests through every address, print how they spread, and stop"
)]
pub struct DemoArgs {
    /// Send requests through every address, print how they spread over the members, and stop;
    /// succeeds only if all were answered and the failing member got none
    #[arg(long)]
    pub once: bool,
    /// Where the status page answers; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "LANDFALL_ADMIN")]
    pub admin: SocketAddr,
    /// How log lines look
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// `landfall up`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  landfall up -f examples/\n  landfall up -f web.yaml -f dns.yaml --pool \
                  192.0.2.16-192.0.2.31\n  kubectl get svc,endpointslices -o yaml | landfall up -f -"
)]
pub struct UpArgs {
    /// A manifest file, a folder of them, or - for standard input; may be repeated
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        required_unless_present_any = ["kubeconfig", "context"],
        conflicts_with_all = ["kubeconfig", "context"]
    )]
    pub filename: Vec<PathBuf>,
    /// Read folders within folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub cluster: ServeClusterArgs,
    /// Addresses to hand out: CIDR or FIRST-LAST; may be repeated. Without it, and without an
    /// pool for everybody among the manifests: 127.77.0.0/24, which needs no privileges
    #[arg(long = "pool", value_name = "CIDR|FIRST-LAST")]
    pub pools: Vec<String>,
    #[command(flatten)]
    pub instances: InstancesArgs,
    /// Where addresses are remembered over restarts
    #[arg(long, value_name = "DIR", env = "LANDFALL_STATE")]
    pub state: Option<PathBuf>,
    /// Where health, metrics, JSON and the status page answer; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "LANDFALL_ADMIN")]
    pub admin: SocketAddr,
    /// A name under which the admin endpoint may be asked, beside its address; may be repeated
    #[arg(long, value_name = "NAME")]
    pub admin_name: Vec<String>,
    /// Threads that carry traffic; one per core unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// How long connections may go on after a stop was asked for
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub grace: u64,
    /// How log lines look
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// The provider instances, and what they are configured with.
#[derive(Clone, Debug, Default, Args)]
pub struct InstancesArgs {
    /// Provider instances and their pools: landfall.yaml
    #[arg(long, value_name = "FILE", env = "LANDFALL_CONFIG")]
    pub config: Option<PathBuf>,
    /// In place of landfall.yaml: one instance on OpenStack for everything, as
    /// cloud-provider-openstack makes it of its cloud.conf
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub cloud_config: Option<PathBuf>,
    /// Part of the names of everything on OpenStack, before what landfall.yaml says; kubernetes
    /// unless given
    #[arg(
        long,
        value_name = "NAME",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub cluster_name: Option<String>,
}

/// Which running instance is asked.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// The admin address of the running instance
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "LANDFALL_ADMIN")]
    pub admin: String,
}

/// Serving the Services of a cluster instead of those of files.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeClusterArgs {
    /// Serve the Services of the cluster that this kubeconfig names, instead of manifests
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, instead of its current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// `landfall controller`
#[derive(Debug, Args)]
#[command(
    after_help = "In a pod the service account is used; elsewhere name a kubeconfig. Of several \
                  replicas one leads and writes, by a Lease; the others stand by.\n\nExamples:\n  \
                  landfall controller --config /etc/landfall/landfall.yaml\n  landfall controller \
                  --kubeconfig ~/.kube/config --leader-elect=false"
)]
pub struct ControllerArgs {
    #[command(flatten)]
    pub instances: InstancesArgs,
    #[command(flatten)]
    pub cluster: ServeClusterArgs,
    /// Whether replicas elect one that writes
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub leader_elect: bool,
    /// The namespace of the Lease; that of the pod or context unless given
    #[arg(long, value_name = "NAMESPACE", env = "LANDFALL_NAMESPACE")]
    pub namespace: Option<String>,
    /// The name of the Lease
    #[arg(long, value_name = "NAME", default_value = "landfall")]
    pub lease_name: String,
    /// Where health, metrics, JSON and the status page answer
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "0.0.0.0:9640",
        env = "LANDFALL_ADMIN"
    )]
    pub admin: SocketAddr,
    /// A name under which the admin endpoint may be asked, beside its address; may be repeated
    #[arg(long, value_name = "NAME")]
    pub admin_name: Vec<String>,
    /// Threads that carry traffic; one per core unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// How long connections may go on after a stop was asked for
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub grace: u64,
    /// How log lines look
    #[arg(long, value_enum, default_value = "json", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// Asking the API server of a cluster instead of a running instance.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterArgs {
    /// Ask the API server that this kubeconfig names, instead of a running instance
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, instead of its current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// `landfall get`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  landfall get services\n  landfall get svc -o wide\n  landfall \
                        get services -o json | jq '.items[].status'"
)]
pub struct GetArgs {
    /// What to list
    #[arg(value_enum)]
    pub kind: Kind,
    /// How to print it
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
    /// How to print it
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
    after_help = "Asks the running instance; where none answers, or with --config, --cloud-config or --pool, it \
                  plans from nothing.\n\nExamples:\n  \
                  landfall plan -f web.yaml\n  landfall plan -f examples/ --prune -o json"
)]
pub struct PlanArgs {
    /// A manifest file, a folder of them, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "PATH", required = true)]
    pub filename: Vec<PathBuf>,
    /// Read folders within folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Plan as if Services that are not in these manifests were deleted
    #[arg(long)]
    pub prune: bool,
    #[command(flatten)]
    pub instances: InstancesArgs,
    /// Addresses to plan with when no instance answers: CIDR or FIRST-LAST; may be repeated
    #[arg(long = "pool", value_name = "CIDR|FIRST-LAST")]
    pub pools: Vec<String>,
    /// How to print it
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
    after_help = "Exits 0 when there are no errors, 1 when there are, 2 when the call itself was \
                  wrong.\n\nExamples:\n  landfall check -f examples/\n  landfall check -f - -o json < web.yaml"
)]
pub struct CheckArgs {
    /// A manifest file, a folder of them, or - for standard input; may be repeated. Without it, with
    /// a kubeconfig: what is in the cluster
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        required_unless_present_any = ["kubeconfig", "context", "config", "cloud_config"]
    )]
    pub filename: Vec<PathBuf>,
    /// Read folders within folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub instances: InstancesArgs,
    /// Judge addresses against these pools, too: CIDR or FIRST-LAST; may be repeated
    #[arg(long = "pool", value_name = "CIDR|FIRST-LAST")]
    pub pools: Vec<String>,
    /// Ask the clouds, too: authenticate, and judge what is there
    #[arg(long)]
    pub connect: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}

/// `landfall adopt`
#[derive(Debug, Args)]
#[command(
    after_help = "Asks the cluster of the kubeconfig and the cloud of --cloud-config, and changes nothing without \
                  --apply. Two controllers must never work on the same Services: stop \
                  cloud-provider-openstack's first, with enabled = false in [LoadBalancer] of its own \
                  cloud.conf. Whether it still runs can't be seen from here.\n\n--apply starts a \
                  controller, waits until it has taken over what can be, and stops it; after that, or \
                  in place of it, start landfall controller with the same options.\n\nExits 0 when every Service can be \
                  served, 1 when not.\n\nExamples:\n  landfall adopt --cloud-config cloud.conf \
                  --cluster-name c1\n  landfall adopt --cloud-config cloud.conf --cluster-name c1 -o json \
                  | jq '.services[] | select(.steps != [])'\n  kubectl get svc,nodes,endpointslices -A -o yaml \
                  | landfall adopt --cloud-config cloud.conf -f -"
)]
pub struct AdoptArgs {
    /// A manifest file, a folder of them, or - for standard input, in place of a cluster; may be
    /// repeated
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        conflicts_with_all = ["kubeconfig", "context", "apply"]
    )]
    pub filename: Vec<PathBuf>,
    /// Read folders within folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub instances: InstancesArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Take over: carry out the steps, and write status and marks to the Services
    #[arg(long)]
    pub apply: bool,
    /// With --apply: how long to wait until everything is taken over
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
    /// With --apply: the namespace of the controller's Lease; that of the context unless given
    #[arg(long, value_name = "NAMESPACE", env = "LANDFALL_NAMESPACE")]
    pub namespace: Option<String>,
    /// With --apply: the name of the controller's Lease
    #[arg(long, value_name = "NAME", default_value = "landfall")]
    pub lease_name: String,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}

/// `landfall orphans`
#[derive(Debug, Args)]
#[command(
    after_help = "Looks at load balancers, floating IPs and security groups that carry this cluster's id or, \
                  where they carry none, its name. Services of type LoadBalancer own theirs, and so do those that are \
                  still being cleared away. Name the cluster as its controller does: two clusters of one name in one \
                  project can't be told apart by what cloud-provider-openstack made. A floating IP that a \
                  Service was told to keep looks like any other that nobody uses: read the list before \
                  you say yes.\n\nExits 0 when there are none or all were deleted, 1 otherwise.\n\n\
                  Examples:\n  landfall orphans --cloud-config cloud.conf --cluster-name c1\n  \
                  landfall orphans --cloud-config cloud.conf --cluster-name c1 --delete\n  \
                  landfall orphans --config landfall.yaml --delete --yes --keep-floating-ips"
)]
pub struct OrphansArgs {
    /// A manifest file, a folder of them, or - for standard input, in place of a cluster; may be
    /// repeated
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        conflicts_with_all = ["kubeconfig", "context"]
    )]
    pub filename: Vec<PathBuf>,
    /// Read folders within folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub instances: InstancesArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Delete them, once they were shown and the question was answered with y
    #[arg(long)]
    pub delete: bool,
    /// With --delete: don't ask, for scripts
    #[arg(short, long, requires = "delete")]
    pub yes: bool,
    /// Leave floating IPs alone
    #[arg(long)]
    pub keep_floating_ips: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}

/// What `get` can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Services of type LoadBalancer
    #[value(aliases = ["service", "svc"])]
    Services,
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

/// How other commands print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextOutput {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_explains_itself() {
        fn walk(command: &clap::Command) {
            assert!(
                command.get_about().is_some(),
                "{} has no help",
                command.get_name()
            );
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {} has no help",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }

    #[test]
    fn up_without_a_path_is_refused() {
        assert!(Cli::try_parse_from(["landfall", "up"]).is_err());
    }
}
