//! Panics of tasks and threads that nothing waits for.

use std::panic;

use tokio_util::sync::CancellationToken;

/// How the names of the data plane's threads begin.
const WORKERS: &str = "worker-";

/// Cancels a token when a task or a thread panics, after what is done with panics so far: a process
/// in which a part is missing looks well and is silent, and a new one has all of them. Connections
/// of clients are left out, for they end alone: those of the data plane and those of the admin
/// endpoint.
pub fn end_of_process(ended: CancellationToken) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        before(panic);
        if is_essential(std::thread::current().name()) && !landfall_web::is_answering() {
            ended.cancel();
        }
    }));
}

/// Returns whether the process can't do its work without all that runs on a thread of this name.
fn is_essential(thread: Option<&str>) -> bool {
    thread.is_none_or(|name| !name.starts_with(WORKERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics on a thread of this name, and returns whether that was to end the process.
    fn is_end(name: &str) -> bool {
        let before = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        let ended = CancellationToken::new();
        end_of_process(ended.clone());
        let panics = std::thread::Builder::new().name(name.to_owned());
        let thread = panics.spawn(|| panic::panic_any("of a test")).unwrap();
        assert!(thread.join().is_err());
        panic::set_hook(before);
        ended.is_cancelled()
    }

    #[test]
    fn connections_of_clients_end_alone() {
        assert!(!is_essential(Some("worker-0")));
        assert!(is_essential(Some("control")) && is_essential(None));
    }

    #[test]
    fn a_panic_of_a_task_or_of_the_thread_of_bfd_ends_the_process() {
        assert!(is_end("control") && is_end("bfd"));
    }
}
