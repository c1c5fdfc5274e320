//! Control planes that follow each other over one data plane.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cli::AccessLogArgs;
use tokio::net::TcpStream;

use super::*;

async fn get(admin: SocketAddr, path: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(admin).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(60), asked).await;
    answer.expect("there is an answer").unwrap()
}

fn options() -> Options {
    Options {
        admin_token: None,
        instances: Instances::local(),
        pools: Vec::new(),
        fallback_pool: true,
        admin: "127.0.0.1:0".parse().unwrap(),
        workers: None,
        access_log: AccessLogArgs::default(),
        chosen: ChosenArgs::default(),
        audit_every: landfall_engine::AUDIT_EVERY,
        webhook: None,
        admin_names: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_went_while_a_take_over_failed_is_closed_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = |name: &str| {
        let path = folder.path().join(format!("{name}.yaml"));
        let text = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, annotations: \
             {{landfall.dev/endpoints: \"127.0.0.1:9\"}}}}, \
             spec: {{type: LoadBalancer, ports: [{{port: 8080}}]}}}}\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    };
    let (_stays, goes) = (manifest("stays"), manifest("goes"));
    let serving = Serving {
        options: Options {
            pools: vec!["127.77.93.0/24".to_owned()],
            ..options()
        },
        files: landfall_files::Options {
            paths: vec![folder.path().to_owned()],
            recursive: false,
            state: Some(folder.path().join("state")),
        },
        state: folder.path().join("state"),
        grace: Duration::ZERO,
        stop: Stop::default(),
    };
    let open = |proxy: &landfall_proxy::Proxy| {
        let owners = proxy.owners().into_iter();
        let names: std::collections::BTreeSet<String> = owners
            .map(|(_, owner)| owner.service.name().to_owned())
            .collect();
        Vec::from_iter(names)
    };
    let instance = serving.resumed(&StartState::default()).await;
    let limit = Duration::from_secs(60);
    instance.wait_ready(limit).await.unwrap();
    let start_state = instance.let_go().await;
    let proxy = start_state.proxy.clone().unwrap();
    assert_eq!(open(&proxy), ["goes", "stays"]);
    // The other process clears it away, and fails then.
    std::fs::remove_file(goes).unwrap();
    let (options, files) = (serving.options.clone(), serving.files.clone());
    let other = on_files(StartState::default(), options, files, Arc::default());
    let other = other.await.unwrap();
    other.wait_ready(limit).await.unwrap();
    other.stop(Duration::ZERO).await;
    assert_eq!(open(&proxy), ["goes", "stays"]);
    let instance = serving.resumed(&start_state).await;
    instance.wait_ready(limit).await.unwrap();
    let closed = async {
        while open(&proxy) != ["stays"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, closed)
        .await
        .expect("it is closed");
    instance.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_no_control_plane_runs_the_admin_endpoint_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let options = options();
    let files = landfall_files::Options {
        paths: vec![folder.path().to_owned()],
        recursive: false,
        state: Some(folder.path().join("state")),
    };
    let start = |start_state| on_files(start_state, options.clone(), files.clone(), Arc::default());
    let instance = start(StartState::default()).await.unwrap();
    let admin = instance.admin().unwrap();
    instance.wait_ready(Duration::from_secs(60)).await.unwrap();
    let start_state = instance.let_go().await;
    let asking = async {
        let ready = get(admin, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.0 503"), "{ready}");
        assert!(ready.contains("another process takes over"), "{ready}");
        let metrics = get(admin, "/metrics").await;
        assert!(metrics.contains("landfall_ready 0"), "{metrics}");
    };
    tokio::select! {
        () = asking => {}
        never = start_state.answer(Duration::ZERO) => match never {},
    }
    // What comes next answers at the same place.
    let instance = start(start_state.again().unwrap()).await.unwrap();
    instance.wait_ready(Duration::from_secs(60)).await.unwrap();
    assert!(get(admin, "/readyz").await.starts_with("HTTP/1.0 200"));
    instance.stop(Duration::ZERO).await;
}

/// A manifest of a Service on port 8080, in a folder with a state directory.
fn one_service(folder: &std::path::Path, address: &str) -> (Options, landfall_files::Options) {
    let text = "{apiVersion: v1, kind: Service, metadata: {name: web, annotations: \
                {landfall.dev/endpoints: \"127.0.0.1:9\"}}, \
                spec: {type: LoadBalancer, ports: [{port: 8080}]}}\n";
    std::fs::write(folder.join("web.yaml"), text).unwrap();
    let options = Options {
        pools: vec![format!("{address}/32")],
        workers: std::num::NonZeroUsize::new(1),
        ..options()
    };
    let files = landfall_files::Options {
        paths: vec![folder.join("web.yaml")],
        recursive: false,
        state: Some(folder.join("state")),
    };
    (options, files)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_handed_over_and_that_no_service_wants_any_more_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let address = "127.77.94.1";
    let (options, files) = one_service(folder.path(), address);
    // The process before had the Service on another port, too, at the same address.
    let sockets = [8080, 9090].map(|port| {
        let at = SocketAddr::new(address.parse().unwrap(), port);
        let socket = landfall_sys::listen::tcp(at, 1).unwrap().remove(0);
        let id = landfall_proxy::ListenerId::of(at, landfall_model::Protocol::Tcp).unwrap();
        (id, vec![socket.into()])
    });
    let start_state = StartState {
        handover: Handover {
            sockets: sockets.into(),
            ..Handover::default()
        },
        ..StartState::default()
    };
    let connect = |port: u16| TcpStream::connect((address, port));
    let instance = on_files(start_state, options, files, Arc::default())
        .await
        .unwrap();
    instance.serving().await;
    drop(connect(8080).await.unwrap());
    let refused = connect(9090).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    instance.stop(Duration::ZERO).await;
}
