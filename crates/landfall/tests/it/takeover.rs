//! A new process takes the place of a running one: under load, with nothing refused, and not at all
//! if it can't serve. Beside it HAProxy does the same.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::client::{self, Talk};
use crate::lab::{DEADLINE, LOOK, Lab};
use crate::manifest::svc;
use crate::view::at;

/// New connections before, while and after a process takes over, at least.
const EACH: usize = 400;
/// New connections under way at one time.
const AT_ONCE: usize = 16;

/// Requests on a new connection each, until `stop`.
struct Load {
    done: Arc<AtomicUsize>,
    failed: Arc<std::sync::Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

// === impl Load ===

impl Load {
    fn start(target: SocketAddr) -> Self {
        let mut load = Self {
            done: Arc::default(),
            failed: Arc::default(),
            stop: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..AT_ONCE {
            let (done, failed) = (load.done.clone(), load.failed.clone());
            let stop = load.stop.clone();
            load.tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match client::member(target).await {
                        Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => failed.lock().unwrap().push(error.to_string()),
                    }
                }
            });
        }
        load
    }

    /// Waits until so many more requests are done.
    async fn more(&self) {
        let goal = self.done.load(Ordering::Relaxed) + EACH;
        let began = Instant::now();
        while self.done.load(Ordering::Relaxed) < goal {
            assert!(began.elapsed() < DEADLINE, "the load does not go on");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How many requests there were, and what went wrong.
    async fn end(mut self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let failed = self.failed.lock().unwrap().clone();
        (self.done.load(Ordering::Relaxed) + failed.len(), failed)
    }
}

/// A lab that serves a Service on two ports, TCP and UDP.
async fn serving(options: &[&str]) -> (Lab, [Backend; 2], SocketAddr) {
    let lab = Lab::new().also(options);
    let lines = Backend::lines("pod", lab.ranges.backend(1, 80)).await;
    let datagrams = Backend::datagrams("pod", lab.ranges.backend(1, 81)).await;
    let web = svc("web").tcp(8080).members(&[lines.address]);
    lab.write("web.yaml", &web.yaml());
    let dns = svc("dns")
        .port("dns", "UDP", 53)
        .members(&[datagrams.address]);
    lab.write("dns.yaml", &dns.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    lab.ready("default/dns").await;
    (lab, [lines, datagrams], target)
}

async fn ask(socket: &UdpSocket, text: &str) {
    let mut room = [0; 1500];
    // A datagram may be lost on the way; then it is sent again.
    for _ in 0..50 {
        socket.send(text.as_bytes()).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_millis(200), socket.recv(&mut room)).await;
        if let Ok(Ok(count)) = answer
            && String::from_utf8_lossy(&room[..count]).contains(text)
        {
            return;
        }
    }
    panic!("no answer to {text:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_takes_over_under_load_fails_no_request() {
    // A different number of workers each time: sockets are more, and fewer, than workers.
    let (mut lab, [backend, _dns], target) = serving(&["--workers", "2", "--grace", "2"]).await;
    let dns = at(&lab.ready("default/dns").await, 53);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(dns).await.unwrap();
    ask(&socket, "before").await;
    let (admin, load) = (lab.admin(), Load::start(target));
    load.more().await;
    for workers in ["4", "1", "2"] {
        let mut open = Talk::to(target).await.unwrap();
        open.say("before").await.unwrap();
        let mut old = lab.succeeded(&["--workers", workers]).await;
        load.more().await;
        // What was open goes on at the old process, and new edits are the new one's.
        open.say("after").await.unwrap();
        drop(open);
        ask(&socket, "after").await;
        let status = Lab::end_of(&mut old).await;
        assert_eq!(status.code(), Some(0), "{}", old.stderr.text());
        assert_eq!(lab.admin(), admin);
        assert_eq!(at(&lab.ready("default/web").await, 8080), target);
        let name = format!("after-{workers}");
        let more = svc(&name).tcp(80).members(&[backend.address]);
        lab.write("more.yaml", &more.yaml());
        let more = lab.ready(&format!("default/{name}")).await;
        assert_eq!(client::member(at(&more, 80)).await.unwrap(), "pod");
    }
    let (requests, failed) = load.end().await;
    eprintln!("landfall: {} of {requests} requests failed", failed.len());
    assert_eq!(failed, Vec::<String>::new());
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_can_t_serve_takes_nothing_over() {
    let (mut lab, [backend, _dns], target) = serving(&[]).await;
    let load = Load::start(target);
    load.more().await;
    let (folder, state) = (lab.folder(), lab.state());
    let [folder, state] = [&folder, &state].map(|path| path.to_str().unwrap());
    let taken = lab.admin().to_string();
    // The first is refused before anything is handed over; the second fails afterwards.
    for (more, why, code) in [
        (["--pool", "banana"], "banana", 2),
        (["--admin", "192.0.2.1:1"], "opening the admin endpoint", 1),
    ] {
        let common = ["up", "-f", folder, "--state", state, "--take-over"];
        let ended = lab.landfall(&[&common[..], &more].concat(), &[]).await;
        assert_eq!(ended.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    lab.logged("serving as before").await;
    load.more().await;
    assert_eq!(lab.admin().to_string(), taken);
    let second = svc("second").tcp(80).members(&[backend.address]);
    lab.write("second.yaml", &second.yaml());
    let second = lab.ready("default/second").await;
    assert_eq!(client::member(at(&second, 80)).await.unwrap(), "pod");
    // And another one can.
    let mut old = lab.succeeded(&[]).await;
    assert_eq!(Lab::end_of(&mut old).await.code(), Some(0));
    load.more().await;
    let (_, failed) = load.end().await;
    assert_eq!(failed, Vec::<String>::new());
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_could_not_read_the_journal_takes_nothing_over() {
    let (mut lab, [backend, _dns], target) = serving(&[]).await;
    let (folder, state) = (lab.folder(), lab.state());
    let journal = state.join("state.journal");
    let whole = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, whole.replacen("default/web", "default/wed", 1)).unwrap();
    let [folder, state] = [&folder, &state].map(|path| path.to_str().unwrap());
    let take_over = ["up", "-f", folder, "--state", state, "--take-over"];
    let ended = lab.landfall(&take_over, &[]).await;
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    let stderr = &ended.stderr;
    assert!(
        stderr.contains("state.journal") && stderr.contains("can't be parsed"),
        "{stderr}"
    );
    // The running process has handed nothing over, and takes edits.
    let second = svc("second").tcp(80).members(&[backend.address]);
    lab.write("second.yaml", &second.yaml());
    let second = lab.ready("default/second").await;
    assert_eq!(client::member(at(&second, 80)).await.unwrap(), "pod");
    assert_eq!(client::member(target).await.unwrap(), "pod");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_being_asked_to_a_second_process_takes_nothing_over_and_says_how_it_could() {
    let (mut lab, _backends, target) = serving(&[]).await;
    let (folder, state) = (lab.folder(), lab.state());
    let [folder, state] = [&folder, &state].map(|path| path.to_str().unwrap());
    let ended = lab
        .landfall(&["up", "-f", folder, "--state", state], &[])
        .await;
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("--take-over"), "{}", ended.stderr);
    assert_eq!(client::member(target).await.unwrap(), "pod");
    lab.stop().await;
    // Where no process runs, there is nothing to take over, and it starts.
    let mut lab = lab.also(&["--take-over"]).started().await;
    assert_eq!(at(&lab.ready("default/web").await, 8080), target);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_that_is_removed_is_made_again_and_can_be_taken_over() {
    let (mut lab, _backends, target) = serving(&[]).await;
    let (folder, state) = (lab.folder(), lab.state());
    let handover_listener = state.join("takeover.sock");
    let began = Instant::now();
    while !handover_listener.exists() {
        assert!(began.elapsed() < DEADLINE, "nothing can be taken over");
        tokio::time::sleep(LOOK).await;
    }
    std::fs::remove_dir_all(&state).unwrap();
    lab.logged("the state directory was removed or replaced; its content was written again")
        .await;
    let journal = std::fs::read_to_string(state.join("state.journal")).unwrap();
    assert!(journal.contains("default/web"), "{journal}");
    let paths = [&folder, &state].map(|path| path.to_str().unwrap());
    let ended = lab
        .landfall(&["up", "-f", paths[0], "--state", paths[1]], &[])
        .await;
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("is in use by"), "{}", ended.stderr);
    while !handover_listener.exists() {
        assert!(began.elapsed() < DEADLINE * 2, "nothing can be taken over");
        tokio::time::sleep(LOOK).await;
    }
    let mut old = lab.succeeded(&[]).await;
    assert_eq!(Lab::end_of(&mut old).await.code(), Some(0));
    assert_eq!(client::member(target).await.unwrap(), "pod");
    lab.stop().await;
}

/// A process that is no child of the test; it ends with it.
struct Detached(rustix::process::Pid);

impl Drop for Detached {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::KILL);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_sigusr2_the_program_is_started_again_and_systemd_is_notified() {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};

    let mut lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 80)).await;
    let web = svc("web").tcp(8080).members(&[backend.address]);
    lab.write("web.yaml", &web.yaml());
    let path = lab.path("notify.sock");
    let systemd = tokio::net::UnixDatagram::bind(&path).unwrap();
    lab.start_with(|command| {
        command.env("NOTIFY_SOCKET", &path);
    })
    .await;
    let received = async || {
        let mut room = [0; 256];
        let count = tokio::time::timeout(DEADLINE, systemd.recv(&mut room)).await;
        String::from_utf8_lossy(&room[..count.unwrap().unwrap()]).into_owned()
    };
    let first = received().await;
    assert!(
        first.starts_with("MAINPID=") && first.ends_with("\nREADY=1"),
        "{first}"
    );
    let target = at(&lab.ready("default/web").await, 8080);
    let load = Load::start(target);
    load.more().await;
    lab.signal(Signal::USR2);
    let started = lab.logged("started a process to take over").await;
    let process = started["process"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    let _detached = Detached(pid);
    assert_eq!(received().await, format!("MAINPID={process}\nREADY=1"));
    lab.logged("took over").await;
    let began = Instant::now();
    while !lab.has_ended() {
        assert!(began.elapsed() < DEADLINE, "the old process does not end");
        tokio::time::sleep(LOOK).await;
    }
    load.more().await;
    let (_, failed) = load.end().await;
    assert_eq!(failed, Vec::<String>::new());
    kill_process(pid, Signal::TERM).unwrap();
    while test_kill_process(pid).is_ok() {
        assert!(began.elapsed() < DEADLINE, "the new process does not end");
        tokio::time::sleep(LOOK).await;
    }
    assert_eq!(lab.end().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_manifest_asks_for_any_more_is_closed_by_the_process_that_takes_over() {
    let (mut lab, _backends, target) = serving(&["--grace", "2"]).await;
    lab.signal(rustix::process::Signal::STOP);
    lab.remove("web.yaml");
    lab.signal(rustix::process::Signal::CONT);
    let mut old = lab.succeeded(&[]).await;
    assert_eq!(Lab::end_of(&mut old).await.code(), Some(0));
    lab.gone("default/web").await;
    let began = Instant::now();
    while Talk::to(target).await.is_ok() {
        assert!(began.elapsed() < DEADLINE, "it is still open");
        tokio::time::sleep(LOOK).await;
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn haproxy_beside_it_is_reloaded_under_the_same_load() {
    let lab = Lab::new();
    let backend = Backend::lines("pod", lab.ranges.backend(1, 80)).await;
    let target = SocketAddr::new(lab.ranges.spare(3), 8080);
    let path = |name: &str| lab.path(name).to_str().unwrap().to_owned();
    let config = format!(
        "global\n  stats socket {} mode 600 level admin expose-fd listeners\n  nbthread 2\n  \
         hard-stop-after 2s\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n  \
         timeout server 30s\nlisten web\n  bind {target}\n  server pod {}\n",
        path("haproxy.sock"),
        backend.address
    );
    std::fs::write(path("haproxy.cfg"), config).unwrap();
    let start = |more: &[&str]| {
        tokio::process::Command::new("haproxy")
            .args(["-db", "-f", &path("haproxy.cfg")])
            .args(more)
            .kill_on_drop(true)
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("cargo xtask install")
    };
    let mut haproxy = start(&[]);
    let began = Instant::now();
    while client::member(target).await.is_err() {
        assert!(began.elapsed() < DEADLINE, "HAProxy does not answer");
        tokio::time::sleep(LOOK).await;
    }
    let load = Load::start(target);
    load.more().await;
    for _ in 0..3 {
        let old = haproxy.id().unwrap().to_string();
        let new = start(&["-x", &path("haproxy.sock"), "-sf", &old]);
        let mut old = std::mem::replace(&mut haproxy, new);
        old.wait().await.unwrap();
        load.more().await;
    }
    let (requests, failed) = load.end().await;
    eprintln!(
        "haproxy -x -sf: {} of {requests} requests failed",
        failed.len()
    );
    assert!(requests > 4 * EACH);
}
