//! What is in a cloud already: `adopt` and `orphans`.

use std::path::PathBuf;

use clap::Args;

use super::{ChosenArgs, ClusterArgs, InstancesArgs, TextOutput};

/// `landfall adopt`
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the cluster of the kubeconfig and the clouds of --cloud-config or \
                 --config, and changes nothing without --apply. Two controllers must never work on \
                 the same Services: stop the other one's first, that of cloud-provider-openstack \
                 with enabled = false in [LoadBalancer] of its own cloud.conf, that of Exoscale \
                 with loadBalancer.disabled in its file. A Lease shows whether a cloud \
                 controller manager is at work, not which of its controllers.\n\n\
                 --apply starts a controller, waits until it has taken over all Services that it \
                 can, and stops it; after that, or instead, start landfall controller with the \
                 same options.\n\n\
                 Exits with 0 if every Service can be served, with 1 otherwise.\n\n\
                 Examples:\n  \
                 landfall adopt --cloud-config cloud.conf --cluster-name c1\n  \
                 landfall adopt --cloud-config cloud.conf --only shop/web --apply\n  \
                 landfall adopt --cloud-config cloud.conf --cluster-name c1 -o json | jq \
                 '.services[] | select(.steps != [])'\n  \
                 kubectl get svc,nodes,endpointslices -A -o yaml | landfall adopt --cloud-config \
                 cloud.conf -f -"
)]
pub struct AdoptArgs {
    /// A manifest file, a folder of them, or - for standard input, instead of a cluster; may be
    /// repeated
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        conflicts_with_all = ["kubeconfig", "context", "apply"]
    )]
    pub filename: Vec<PathBuf>,
    /// Read nested folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub instances: InstancesArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub chosen: ChosenArgs,
    /// Take over: apply the steps, and write status and annotations to the Services
    #[arg(long)]
    pub apply: bool,
    /// With --apply: the timeout until everything is taken over
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
    /// With --apply: the namespace of the controller's Lease; default: that of the context
    #[arg(long, value_name = "NAMESPACE", env = "LANDFALL_NAMESPACE")]
    pub namespace: Option<String>,
    /// With --apply: the name of the controller's Lease
    #[arg(long, value_name = "NAME", default_value = "landfall")]
    pub lease_name: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}

/// `landfall orphans`
#[derive(Debug, Args)]
#[command(
    after_help = "Reads load balancers, floating IPs and security groups with this cluster's id \
                 or, if they have none, its name. Owners are Services of type LoadBalancer, and \
                 Services whose load balancer is still being deleted. Name the cluster as its \
                 controller does: objects of cloud-provider-openstack do not distinguish two \
                 clusters of one name in one project. A floating IP that a Service keeps looks \
                 like any other unused one: read the list before you confirm. On Exoscale it \
                 reads Network Load Balancers whose labels name this cluster.\n\n\
                 Exits with 0 if there are none or all were deleted, with 1 otherwise.\n\n\
                 Examples:\n  \
                 landfall orphans --cloud-config cloud.conf --cluster-name c1\n  \
                 landfall orphans --cloud-config cloud.conf --cluster-name c1 --delete\n  \
                 landfall orphans --config landfall.yaml --delete --yes --keep-floating-ips"
)]
pub struct OrphansArgs {
    /// A manifest file, a folder of them, or - for standard input, instead of a cluster; may be
    /// repeated
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        conflicts_with_all = ["kubeconfig", "context"]
    )]
    pub filename: Vec<PathBuf>,
    /// Read nested folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub instances: InstancesArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Delete them, after showing them and asking for confirmation
    #[arg(long)]
    pub delete: bool,
    /// With --delete: don't ask for confirmation, for scripts
    #[arg(short, long, requires = "delete")]
    pub yes: bool,
    /// Exclude floating IPs
    #[arg(long)]
    pub keep_floating_ips: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}
