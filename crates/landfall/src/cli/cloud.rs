//! What is in a cloud and no Service owns: `orphans`.

use std::path::PathBuf;

use clap::Args;

use super::{ClusterArgs, InstancesArgs, TextOutput};

/// `landfall orphans`
#[derive(Debug, Args)]
#[command(
    after_help = "Reads load balancers, floating IPs and security groups with this cluster's id \
                 or, if they have none, its name. Owners are Services of type LoadBalancer, and \
                 Services whose load balancer is still being deleted. Name the cluster as its \
                 controller does: objects of cloud-provider-openstack do not distinguish two \
                 clusters of one name in one project. What may serve another cluster of this name \
                 is listed with --unmarked only. A floating IP that a Service keeps looks \
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
    /// Also list load balancers that have listeners or a floating IP and no mark of a cluster, and
    /// what belongs to them: only names say that they are this cluster's
    #[arg(long)]
    pub unmarked: bool,
    /// Exclude floating IPs
    #[arg(long)]
    pub keep_floating_ips: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}
