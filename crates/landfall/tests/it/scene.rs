//! A lab, a simulated cloud, and the files that lead from one to the other.

use std::fs;
use std::path::PathBuf;

use landfall_testkit::openstack::Sim;
use serde_json::Value;

use crate::lab::Lab;
use crate::manifest::Svc;
use crate::process::Ended;
use crate::simulated::{self, Simulated};

/// A cloud with two nodes, and a lab whose manifests are a cluster's.
pub struct Scene {
    pub lab: Lab,
    pub sim: Sim,
    pub cloud: Simulated,
}

/// An instance on OpenStack that serves everything.
pub const CONFIG: [&str; 2] = ["--config", "landfall.yaml"];

/// The same options as cloud-provider-openstack's: cloud and cluster.
pub const OPTIONS: [&str; 4] = ["--cloud-config", "cloud.conf", "--cluster-name", "c1"];

/// A Service as a cluster has it: with NodePorts. Port 80 has 30080.
pub fn manifest(service: &Svc) -> String {
    let service = service.clone().spec("allocateLoadBalancerNodePorts: true");
    service
        .yaml()
        .replace("{port: 80}", "{port: 80, nodePort: 30080}")
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

// === impl Scene ===

impl Scene {
    /// With a `landfall.yaml` for `up`.
    pub async fn set() -> Self {
        Self::with(&CONFIG).await
    }

    /// The same for other options of `up`.
    pub async fn with(options: &[&str]) -> Self {
        let cloud = Simulated::start().await;
        let lab = Lab::new().options(options);
        lab.write("nodes.yaml", &simulated::nodes());
        let scene = Self {
            lab,
            sim: cloud.sim.clone(),
            cloud,
        };
        scene.cloud_conf("", "");
        scene.put(
            "landfall.yaml",
            "instances:\n- name: cloud\n  default: true\n  provider:\n    kind: openstack\n    \
             cloudConf: cloud.conf\n    clusterName: shop\n",
        );
        scene
    }

    /// A `cloud.conf` that works, with further lines in its two sections.
    pub fn cloud_conf(&self, global: &str, load_balancer: &str) {
        self.put("cloud.conf", &self.cloud.conf(global, load_balancer));
    }

    /// A file beside the folder of manifests.
    pub fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.lab.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A Service of a cluster.
    pub fn write(&self, name: &str, service: &Svc) {
        self.lab.write(&format!("{name}.yaml"), &manifest(service));
    }

    /// Runs a command on the manifests, with the cloud given as to cloud-provider-openstack.
    pub async fn run(&self, command: &str, more: &[&str]) -> Ended {
        let arguments = [&[command], &OPTIONS[..], more, &["-f"]].concat();
        self.lab.landfall(&arguments, &[&self.lab.folder()]).await
    }

    /// What cloud-provider-openstack makes for default/NAME: load balancer and floating IP.
    pub fn reference_makes(&self, cluster: &str, service: &str) -> (Value, Value) {
        let service = ("default", service);
        self.cloud.reference_makes(cluster, service, 30080)
    }
}
