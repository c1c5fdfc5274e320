//! `--controllers`: which loops of the reference run.

use crate::cli::ControllerArgs;
use crate::cli::remarks::Remark;

/// The one that Landfall has, by its name and its old name.
const SERVICE: [&str; 2] = ["service-lb-controller", "service"];
/// Those that it has not.
const OTHERS: [[&str; 2]; 3] = [
    ["cloud-node-controller", "cloud-node"],
    ["cloud-node-lifecycle-controller", "cloud-node-lifecycle"],
    ["node-route-controller", "route"],
];

/// What is missing where the reference ran all of its controllers.
const ALONE: &str = "Landfall is service-lb-controller alone: go on to run \
                     cloud-provider-openstack with --controllers=*,-service-lb-controller, \
                     because without its other controllers new nodes keep the taint \
                     node.cloudprovider.kubernetes.io/uninitialized";

/// Says what is missing where all controllers ran, which is the default.
pub(super) fn all() -> Remark {
    Remark {
        flag: "controllers",
        why: ALONE,
        matters: true,
    }
}

/// Accepts a list that has the controller of Services and names no other one.
pub(super) fn take(args: &mut ControllerArgs, text: &str) -> Result<(), String> {
    let listed: Vec<&str> = text.split(',').map(str::trim).collect();
    if !is_on(&listed, SERVICE) {
        return Err(
            "it leaves out service-lb-controller, the only one that Landfall has".to_owned(),
        );
    }
    let named = OTHERS
        .iter()
        .find(|names| listed.iter().any(|it| names.contains(it)));
    if let Some([name, _]) = named {
        return Err(format!(
            "Landfall has no {name}: let cloud-provider-openstack go on to run it, without its own \
            service-lb-controller, and write --controllers=service-lb-controller here"
        ));
    }
    if OTHERS.into_iter().any(|names| is_on(&listed, names)) {
        args.reference.remarks.push(all());
    }
    Ok(())
}

/// Whether a list switches a controller on: the first entry that names it decides, otherwise `*`.
fn is_on(listed: &[&str], names: [&str; 2]) -> bool {
    let first = listed.iter().find_map(|entry| {
        let name = entry.strip_prefix('-').unwrap_or(entry);
        names.contains(&name).then(|| !entry.starts_with('-'))
    });
    first.unwrap_or_else(|| listed.contains(&"*"))
}
