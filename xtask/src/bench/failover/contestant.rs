//! The speakers that are measured, and how each is started on a node.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::layout::{ADMIN, NAMESPACE, node_address};

/// Speakers of one kind.
pub enum Contestant {
    /// `landfall speaker`.
    Landfall {
        /// The program.
        program: PathBuf,
    },
    /// MetalLB's.
    MetalLb {
        /// Where `speaker` and `manifest.yaml` are.
        folder: PathBuf,
        /// What has its sessions with routers.
        mode: Mode,
    },
}

/// What has the sessions of MetalLB with routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The speaker itself, without BFD and graceful restart
    Native,
    /// FRR beside the speaker
    Frr,
}

// === impl Contestant ===

impl Contestant {
    /// The line that starts it on a node; `files`: where `keys` and `nodes.kubeconfig` are.
    pub fn line(&self, node: u8, files: &Path) -> Vec<String> {
        let address = node_address(node).to_string();
        let file = |name: &str| files.join(name).display().to_string();
        let (program, flags) = match self {
            Self::Landfall { program } => (
                program.clone(),
                vec![
                    "speaker".to_owned(),
                    format!("--kubeconfig={}", file("nodes.kubeconfig")),
                    format!("--node-name=node-{node}"),
                    format!("--node-address={address}"),
                    format!("--metallb-namespace={NAMESPACE}"),
                    format!("--membership-key-file={}", file("keys")),
                    format!("--admin={address}:{ADMIN}"),
                ],
            ),
            Self::MetalLb { folder, .. } => (
                folder.join("speaker"),
                vec![
                    format!("--namespace={NAMESPACE}"),
                    "--ml-labels=app=metallb,component=speaker".to_owned(),
                    format!("--node-name=node-{node}"),
                    format!("--pod-name=speaker-{node}"),
                    format!("--ml-bindaddr={address}"),
                    "--ml-bindport=7946".to_owned(),
                ],
            ),
        };
        let mut line = vec![program.display().to_string()];
        line.extend(flags);
        line
    }

    /// MetalLB's own manifest, where it takes part.
    pub fn manifest(&self) -> Option<PathBuf> {
        match self {
            Self::Landfall { .. } => None,
            Self::MetalLb { folder, .. } => Some(folder.join("manifest.yaml")),
        }
    }

    /// Whether it has Landfall's admin endpoint.
    pub fn has_admin(&self) -> bool {
        matches!(self, Self::Landfall { .. })
    }

    /// Whether FRR runs beside its speaker.
    pub fn has_frr(&self) -> bool {
        matches!(
            self,
            Self::MetalLb {
                mode: Mode::Frr,
                ..
            }
        )
    }

    /// Whether it has BFD and graceful restart; else its speaker refuses its whole configuration
    /// where one of them is asked for.
    pub fn is_complete(&self) -> bool {
        !matches!(
            self,
            Self::MetalLb {
                mode: Mode::Native,
                ..
            }
        )
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Landfall { .. } => "Landfall",
            Self::MetalLb { mode, .. } => match mode {
                Mode::Native => "MetalLB",
                Mode::Frr => "MetalLB with FRR",
            },
        })
    }
}
