//! What is in a cloud already: `adopt` and `orphans`.

use std::path::PathBuf;

use clap::Args;

use super::{ClusterArgs, InstancesArgs, TextOutput};

/// `landfall adopt`
#[derive(Debug, Args)]
#[command(
    after_help = "Asks the cluster of the kubeconfig and the cloud of --cloud-config, and changes \
                 nothing without --apply. Two controllers must never work on the same Services: \
                 stop cloud-provider-openstack's first, with enabled = false in [LoadBalancer] of \
                 its own cloud.conf. Whether it still runs can't be seen from here.\n\n\
                 --apply starts a controller, waits until it has taken over what can be, and stops \
                 it; after that, or in place of it, start landfall controller with the same \
                 options.\n\n\
                 Exits 0 when every Service can be served, 1 when not.\n\n\
                 Examples:\n  \
                 landfall adopt --cloud-config cloud.conf --cluster-name c1\n  \
                 landfall adopt --cloud-config cloud.conf --cluster-name c1 -o json | jq \
                 '.services[] | select(.steps != [])'\n  \
                 kubectl get svc,nodes,endpointslices -A -o yaml | landfall adopt --cloud-config \
                 cloud.conf -f -"
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
    after_help = "Looks at load balancers, floating IPs and security groups that carry this \
                 cluster's id or, where they carry none, its name. Services of type LoadBalancer \
                 own theirs, and so do those that are still being cleared away. Name the cluster \
                 as its controller does: two clusters of one name in one project can't be told \
                 apart by what cloud-provider-openstack made. A floating IP that a Service was \
                 told to keep looks like any other that nobody uses: read the list before you say \
                 yes.\n\n\
                 Exits 0 when there are none or all were deleted, 1 otherwise.\n\n\
                 Examples:\n  \
                 landfall orphans --cloud-config cloud.conf --cluster-name c1\n  \
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
