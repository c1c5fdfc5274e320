//! The addresses of this machine that are listened on.

use std::collections::HashSet;

/// How many addresses of a network (its first two octets) are listened on at a port.
pub fn listening(network: [u8; 2], port: u16) -> std::io::Result<usize> {
    let text = std::fs::read_to_string("/proc/net/tcp")?;
    Ok(listeners(&text, network, port))
}

/// The same by what `/proc/net/tcp` says, where the octets of addresses stand in reverse order.
fn listeners(text: &str, [first, second]: [u8; 2], port: u16) -> usize {
    let (network, port) = (format!("{second:02X}{first:02X}"), format!("{port:04X}"));
    let sockets = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next()?, fields.nth(1)?);
        let (address, at) = local.split_once(':')?;
        let is_ours = state == "0A" && at == port && address.ends_with(&network);
        is_ours.then_some(address)
    });
    // Each worker has a socket.
    sockets.collect::<HashSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_counted_by_address_and_only_those_of_the_pool() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                   0: 0100C07F:1F90 00000000:0000 0A 00000000:00000000\n   \
                   1: 0100C07F:1F90 00000000:0000 0A 0:0\n   \
                   2: 0200C07F:1F90 00000000:0000 0A 0:0\n   \
                   3: 0300C07F:1F90 0100007F:9999 01 0:0\n   \
                   4: 0100007F:1F90 00000000:0000 0A 0:0\n   \
                   5: 0400C07F:0050 00000000:0000 0A 0:0\n";
        assert_eq!(listeners(text, [127, 192], 8080), 2);
        assert_eq!(listeners(text, [127, 192], 80), 1);
    }
}
