//! Announcing: `speaker`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::serve::ServeClusterArgs;
use super::{DEFAULT_SPEAKER_ADMIN, LogFormat};

/// `landfall speaker`
#[derive(Debug, Args)]
#[command(
    after_help = "One speaker runs on each node, as a DaemonSet in the network of the node with \
                 the capability NET_RAW; where an instance has dataPlane: landfall also NET_ADMIN, \
                 and NET_BIND_SERVICE for ports below 1024. It writes no Service and takes part in \
                 no leader election.\n\n\
                 Examples:\n  \
                 landfall speaker --node-name n1 --node-address 10.0.0.1 \
                 --membership-key-file /etc/landfall/membership/keys\n  \
                 landfall speaker --kubeconfig ~/.kube/config --node-name n1 \
                 --node-address 10.0.0.1 --membership-key-file keys"
)]
pub struct SpeakerArgs {
    /// The name of the node that it runs on
    #[arg(long, value_name = "NAME", env = "LANDFALL_NODE_NAME")]
    pub node_name: String,
    /// The address of the node, to which other speakers send datagrams
    #[arg(long, value_name = "ADDR", env = "LANDFALL_NODE_ADDRESS")]
    pub node_address: IpAddr,
    #[command(flatten)]
    pub cluster: ServeClusterArgs,
    /// landfall.yaml, as the controller has it: for the namespace of MetalLB's resources, and for
    /// instances with dataPlane: landfall
    #[arg(long, value_name = "FILE", env = "LANDFALL_CONFIG")]
    pub config: Option<PathBuf>,
    /// The namespace of MetalLB's resources; overrides landfall.yaml
    #[arg(long, value_name = "NAMESPACE")]
    pub metallb_namespace: Option<String>,
    /// How speakers know of each other. All speakers must have the same setting
    #[arg(long, value_enum, default_value = "udp", value_name = "WAY")]
    pub membership: MembershipWay,
    /// With --membership=lease: seconds without a renewal of its Lease after which a node is
    /// replaced, from 4 to 120; each Lease is renewed three times within them
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = lease_duration)]
    pub lease_duration: Duration,
    /// The UDP port of all speakers
    #[arg(long, value_name = "PORT", default_value_t = 7947)]
    pub membership_port: u16,
    /// A file with the keys of all speakers, one per line, of 16 bytes at least: the first seals
    /// datagrams, all open them. It is read again when it changes
    #[arg(long, value_name = "FILE", env = "LANDFALL_MEMBERSHIP_KEY_FILE")]
    pub membership_key_file: PathBuf,
    /// A regular expression for interfaces that never announce; may be repeated; default: those
    /// that container networks make
    #[arg(long, value_name = "REGEX")]
    pub exclude_interface: Vec<String>,
    /// Announce also from nodes with the label
    /// node.kubernetes.io/exclude-from-external-load-balancers
    #[arg(long)]
    pub ignore_exclude_lb: bool,
    /// Treat cordoned nodes like others: do not ask routers to prefer other nodes, and with
    /// --require-able-nodes do not put them behind others
    #[arg(long)]
    pub ignore_cordon: bool,
    /// Elect only nodes that are ready and have an interface that announces. Those that are
    /// cordoned, or about to be removed by the cluster autoscaler, or without an interface in the
    /// subnet of the address, are elected only where no other is left. All speakers must have the
    /// same setting, and none of MetalLB's may run beside them
    #[arg(long)]
    pub require_able_nodes: bool,
    /// Accept sessions that configured routers begin, at this TCP port (usually 179, for which the
    /// process needs the capability to use ports below 1024)
    #[arg(long, value_name = "PORT")]
    pub bgp_listen: Option<u16>,
    /// A URL on this node that is requested every 2 s, such as kube-proxy's
    /// `http://127.0.0.1:10256/healthz`. After three failures in a row, and until it succeeds, the
    /// node announces nothing by BGP and other nodes answer for its addresses. Where it fails on
    /// all nodes, no node announces anything by BGP
    #[arg(long, value_name = "URL", value_parser = health_url)]
    pub data_plane_health: Option<http::Uri>,
    /// Seconds, at most 20, that a stop waits after routers were asked to prefer other nodes; only
    /// where a BGP session has routes that its router does not keep while a speaker restarts
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = drain_time)]
    pub drain_time: Duration,
    /// Address of health, metrics and JSON
    #[arg(
        long,
        value_name = "ADDR",
        default_value = DEFAULT_SPEAKER_ADMIN,
        env = "LANDFALL_ADMIN"
    )]
    pub admin: SocketAddr,
    /// A host name that requests to the admin endpoint may use, besides its address; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    pub admin_name: Vec<String>,
    /// A file with a token that the admin endpoint requires, except for probes and metrics
    #[arg(long, value_name = "FILE", env = "LANDFALL_ADMIN_TOKEN_FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Format of the log
    #[arg(long, value_enum, default_value = "json", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// How speakers know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MembershipWay {
    /// By datagrams: a node that fails is replaced within half a second
    Udp,
    /// By Leases in the namespace of the speakers, where UDP between nodes is not allowed: a node
    /// that fails is replaced after the duration of its Lease
    Lease,
    /// Not at all: every node counts as alive, and none that fails is replaced. For the time in
    /// which Landfall's speakers replace MetalLB's, with its memberlist switched off
    Nodes,
}

/// From the time that a renewal may take to a time that is of use.
fn lease_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|it| (4..=120).contains(it));
    let seconds = seconds.ok_or("a number of seconds from 4 to 120")?;
    Ok(Duration::from_secs(seconds))
}

/// Health is asked of something on the same node, without TLS.
fn health_url(text: &str) -> Result<http::Uri, String> {
    let url: http::Uri = text.parse().map_err(|error| format!("no URL: {error}"))?;
    if url.scheme_str() != Some("http") || url.host().is_none() {
        return Err("no URL that begins with http:// and names a host".to_owned());
    }
    Ok(url)
}

/// A stop as a whole may take half a minute.
fn drain_time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= 20);
    let seconds = seconds.ok_or("a number of seconds, 20 at most")?;
    Ok(Duration::from_secs(seconds))
}
