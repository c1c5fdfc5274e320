//! Cargo, as commands of ours run it.

use tokio::process::Command;

use crate::place::Place;

/// A cargo command at the workspace's root.
pub fn cargo(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(&place.root).args(arguments);
    command
}
