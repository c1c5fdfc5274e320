//! The kernel's neighbours: all network namespaces share one limit, and a node that finds no room
//! reaches neither the API server nor other nodes.

use anyhow::bail;

/// Returns an error if so many nodes on one bridge may have more neighbours than the kernel keeps,
/// with how to raise the limit. The namespace that the machine started with has the setting; in
/// others there is nothing to read.
pub fn check(nodes: u8) -> anyhow::Result<()> {
    let Ok(text) = std::fs::read_to_string("/proc/sys/net/ipv4/neigh/default/gc_thresh3") else {
        return Ok(());
    };
    let limit = text.trim();
    match refusal(nodes, limit) {
        Some(reason) => bail!(reason),
        None => Ok(()),
    }
}

/// Returns why so many nodes have no room. `limit`: what the kernel says.
fn refusal(nodes: u8, limit: &str) -> Option<String> {
    // Each has the others, the API server's end and the client, and both ends have each.
    let needed = u32::from(nodes) * (u32::from(nodes) + 2) + 64;
    if limit.parse().is_ok_and(|limit: u32| limit >= needed) {
        return None;
    }
    let set = |number: u8| format!("net.ipv4.neigh.default.gc_thresh{number}={needed}");
    Some(format!(
        "{nodes} nodes may have {needed} neighbours, and the kernel keeps {limit:?} for all \
         network namespaces together: measure fewer with --members, or raise the limit with\n  \
         sysctl -w {} {} {}\nand set it back to what `sysctl net.ipv4.neigh.default` said before",
        set(1),
        set(2),
        set(3)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_nodes_as_the_kernel_keeps_neighbours_for_are_measured() {
        assert_eq!(refusal(30, "1024"), None);
        let reason = refusal(31, "1024").unwrap();
        assert!(reason.contains("gc_thresh3=1087"), "{reason}");
        assert!(refusal(3, "many").is_some());
    }
}
