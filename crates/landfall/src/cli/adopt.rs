//! What another controller serves already: `adopt`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ChosenArgs, ClusterArgs, InstancesArgs, TextOutput};

/// `landfall adopt`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Reads the cluster of the kubeconfig and the clouds of --cloud-config or \
                 --config, and changes nothing without --apply. Two controllers must never work on \
                 the same Services: stop the other one's first, that of cloud-provider-openstack \
                 with its flag --controllers=*,-service-lb-controller, that of Exoscale with \
                 loadBalancer.disabled in its file. A Lease shows whether a cloud controller \
                 manager is at work, not which of its controllers.\n\n\
                 --apply starts a controller, waits until it has taken over all Services that it \
                 can, and stops it; after that, or instead, start landfall controller with the \
                 same options.\n\n\
                 Exits with 0 if every Service can be served, with 1 otherwise.\n\n\
                 landfall adopt metallb does the same for MetalLB.\n\n\
                 Examples:\n  \
                 landfall adopt --cloud-config cloud.conf --cluster-name c1\n  \
                 landfall adopt --cloud-config cloud.conf --only shop/web --apply\n  \
                 landfall adopt --cloud-config cloud.conf --cluster-name c1 -o json | jq \
                 '.services[] | select(.steps != [])'\n  \
                 kubectl get svc,nodes,endpointslices -A -o yaml | landfall adopt --cloud-config \
                 cloud.conf -f -"
)]
pub struct AdoptArgs {
    /// Another controller than those of clouds.
    #[command(subcommand)]
    pub from: Option<AdoptFrom>,
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
    #[command(flatten)]
    pub lease: ApplyArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}

/// How `--apply` gets and holds its turn.
#[derive(Clone, Debug, Args)]
pub struct ApplyArgs {
    /// With --apply: the timeout until everything is taken over
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
    /// With --apply: the namespace of the controller's Lease; default: that of the context
    #[arg(long, value_name = "NAMESPACE", env = "LANDFALL_NAMESPACE")]
    pub namespace: Option<String>,
    /// With --apply: the name of the controller's Lease
    #[arg(long, value_name = "NAME", default_value = "landfall")]
    pub lease_name: String,
}

/// Controllers that have a command of their own.
#[derive(Debug, Subcommand)]
pub enum AdoptFrom {
    /// Show what would be taken over from MetalLB and which node announces each address before and
    /// after, take it over, or give it back
    #[command(name = "metallb")]
    MetalLb(AdoptMetalLbArgs),
}

/// `landfall adopt metallb`
#[derive(Debug, Args)]
#[command(
    after_help = "Reads MetalLB's custom resources, its workloads, the Services with their \
                 addresses, nodes and endpoints of the cluster of the kubeconfig, and changes \
                 nothing without --apply. For each address it shows which node MetalLB elects \
                 and which one Landfall's speakers would elect: both should be the same, and no \
                 address should move. What has to change first is listed with its command.\n\n\
                 Two controllers must never work on the same Services: --apply refuses while \
                 MetalLB's controller runs. It allows pools to share addresses across namespaces \
                 where Services do that already, then starts a controller, waits until it has \
                 taken over all Services that it can, and stops it. MetalLB's speakers go on \
                 announcing meanwhile. It may be repeated at any time: what is done is not done \
                 again.\n\n\
                 The way back: stop Landfall's controllers, then landfall adopt metallb --back \
                 --apply, which takes Landfall's finalizer and conditions from the Services and \
                 leaves their addresses, then start MetalLB.\n\n\
                 Without --config it assumes an instance on bare metal for MetalLB's class.\n\n\
                 Exits with 0 if no address would move and nothing but MetalLB itself is in the \
                 way, with 1 otherwise.\n\n\
                 Examples:\n  \
                 landfall adopt metallb\n  \
                 landfall adopt metallb --config landfall.yaml -o json | jq \
                 '.services[] | select(.moves)'\n  \
                 landfall adopt metallb --config landfall.yaml --apply\n  \
                 landfall adopt metallb --config landfall.yaml --back --apply"
)]
pub struct AdoptMetalLbArgs {
    /// landfall.yaml: the provider instances, one of them on bare metal
    #[arg(long, value_name = "FILE", env = "LANDFALL_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Without --config: the namespace of MetalLB and its resources; default: metallb-system
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "config")]
    pub metallb_namespace: Option<String>,
    /// Print values of Landfall's chart in the place of these of MetalLB's, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "back", "apply"])]
    pub values: Option<PathBuf>,
    /// Give back to MetalLB what was taken over
    #[arg(long)]
    pub back: bool,
    /// Take over as shown or, with --back, give back; needs --config
    #[arg(long, requires = "config")]
    pub apply: bool,
    #[command(flatten)]
    pub lease: ApplyArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: TextOutput,
}
