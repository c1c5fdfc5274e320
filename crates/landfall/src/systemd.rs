//! Notifications to systemd (the protocol of `sd_notify`), where it started this process and wants
//! to know.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says that this process serves, and is the main one of its unit from now on.
pub fn serving() {
    report(&format!("MAINPID={}\nREADY=1", std::process::id()));
}

/// Says that this process is stopping.
pub fn stopping() {
    report("STOPPING=1");
}

fn report(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&path, state) {
        tracing::warn!(%error, "systemd can't be notified");
    }
}

fn send(path: &OsStr, state: &str) -> io::Result<()> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_state_arrives_at_a_path_and_at_an_abstract_name() {
        let home = TempDir::new().unwrap();
        let path = home.path().join("notify");
        let name = format!("landfall-test-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        for (socket, state) in [(by_path, "READY=1"), (by_name, "STOPPING=1")] {
            let mut room = [0; 64];
            let count = socket.recv(&mut room).unwrap();
            assert_eq!(&room[..count], state.as_bytes());
        }
        let error = send(home.path().join("none").as_os_str(), "READY=1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
