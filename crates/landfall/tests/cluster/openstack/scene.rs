//! A cluster on the real OpenStack of the test bed: nodes with ports in a project, and a controller
//! that is configured for it.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use landfall_testkit::stack::{Node, Project, Stack};
use serde_json::json;

use crate::bed::{Bed, text};
use crate::replica::{Replica, landfall, run};

/// A load balancer takes seconds, and minutes where other tests have theirs made on two cores, too.
pub const SOON: Duration = Duration::from_secs(900);

/// From one check of the cloud to the next.
pub const LOOK: Duration = Duration::from_millis(300);

/// A cluster and the project in which it is.
pub struct Scene {
    pub bed: Bed,
    pub nodes: Vec<Node>,
    project: Option<Arc<Project>>,
    admin: SocketAddr,
}

const NODES: [(&str, [u8; 4]); 3] = [
    ("node-a", [10, 0, 0, 11]),
    ("node-b", [10, 0, 0, 12]),
    ("node-c", [10, 0, 0, 13]),
];

// === impl Scene ===

impl Scene {
    pub async fn open(name: &str) -> Self {
        let bed = Bed::open(name).await;
        let stack = Stack::shared().await;
        let pools = json!([{"start": "10.0.0.100", "end": "10.0.0.250"}]);
        let subnet = json!({"cidr": "10.0.0.0/24", "allocation_pools": pools});
        let project = stack.project_in(name, subnet).await.unwrap();
        // Let go at once, for the controller to take.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut scene = Self {
            bed,
            nodes: Vec::new(),
            project: Some(Arc::new(project)),
            admin: free.local_addr().unwrap(),
        };
        scene.nodes = scene.add_nodes(&scene.bed, &NODES).await;
        scene
    }

    /// Nodes of a cluster, with ports in the project.
    pub async fn add_nodes(&self, bed: &Bed, nodes: &[(&str, [u8; 4])]) -> Vec<Node> {
        let nodes = nodes.iter();
        let nodes = nodes.map(|(name, address)| ((*name).to_owned(), IpAddr::from(*address)));
        let made = self.project().nodes(&nodes.collect::<Vec<_>>()).await;
        let made = made.unwrap();
        let manifests = made.iter().map(|node| {
            format!(
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {}}}\n\
                 spec: {{providerID: \"{}\"}}\nstatus:\n  \
                 addresses: [{{type: InternalIP, address: {}}}]\n  \
                 conditions: [{{type: Ready, status: \"True\"}}]\n",
                node.name, node.provider_id, node.address
            )
        });
        let manifests: String = manifests.collect();
        bed.kubectl().apply(&manifests).await.unwrap();
        made
    }

    pub fn project(&self) -> &Arc<Project> {
        self.project.as_ref().unwrap()
    }

    /// What the controller is to find: a `cloud.conf`, and one instance that serves everything.
    pub fn configure(&self, security_groups: &str) {
        self.configure_for(&self.bed, security_groups);
    }

    /// The same for the controller of another cluster in the project, which has the same name.
    pub fn configure_for(&self, bed: &Bed, security_groups: &str) {
        self.configure_as(bed, security_groups, "c1");
    }

    /// The same for a cluster of this name.
    pub fn configure_as(&self, bed: &Bed, security_groups: &str, cluster: &str) {
        let conf = self.project().cloud_conf() + "manage-security-groups=true\n";
        let conf = bed.write("cloud.conf", &conf);
        let config = format!(
            "instances:\n- name: cloud\n  default: true\n  provider:\n    kind: openstack\n    \
             cloudConf: {}\n    clusterName: {cluster}\n    securityGroups: {security_groups}\n",
            text(&conf)
        );
        bed.write("landfall.yaml", &config);
    }

    /// Starts the controller as it is configured, and does not wait.
    pub fn controller(&self) -> Replica {
        let config = self.bed.cluster.directory().join("landfall.yaml");
        let arguments = ["--leader-elect=false", "--config", text(&config)];
        Replica::spawn(&self.bed, "cloud", self.admin, &arguments)
    }

    /// `kubectl wait` for traffic to flow.
    pub async fn programmed(&self, services: &[&str]) {
        let programmed = "--for=condition=landfall.dev/Programmed";
        let wait = ["wait", "--timeout=900s", programmed, "service"];
        self.bed.run(&[&wait, services].concat()).await;
    }

    /// `kubectl delete`, which waits for the finalizer.
    pub async fn delete(&self, services: &[&str]) {
        let delete = ["delete", "service", "--timeout=900s"];
        self.bed.run(&[&delete, services].concat()).await;
    }

    /// The project goes; whatever is left in it, too.
    pub async fn close(mut self) {
        let project = self.project.take().and_then(Arc::into_inner);
        let project = project.expect("nothing else uses the project any more");
        project.delete().await.unwrap();
    }
}

/// `landfall orphans --delete --yes`, as the administrator of a cluster.
pub async fn orphans(bed: &Bed) -> String {
    let home = bed.cluster.directory();
    let mut command = landfall(home);
    command
        .args(["orphans", "--delete", "--yes"])
        .args(["--kubeconfig", text(bed.cluster.admin())])
        .args(["--config", text(&home.join("landfall.yaml"))]);
    let output = run(command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{errors}");
    text
}

impl Drop for Scene {
    fn drop(&mut self) {
        let Some(project) = self.project.take().and_then(Arc::into_inner) else {
            return;
        };
        // The test has failed. Its own runtime stands still here.
        let deletion = std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            runtime.block_on(project.delete())
        });
        if let Ok(Err(error)) = deletion.join() {
            eprintln!("a project is left behind: {error}");
        }
    }
}
