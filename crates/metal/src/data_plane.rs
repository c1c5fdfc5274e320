//! The two data planes of bare metal.

/// What serves the addresses on the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPlane {
    /// kube-proxy, or what stands in for it.
    #[default]
    KubeProxy,
    /// The speakers, with the data plane of Landfall.
    Landfall,
}
