//! The provider instances of a process: `landfall.yaml`, or the one that a `cloud.conf` stands for,
//! with the files that they name.

use std::env;
use std::net::SocketAddr;

use landfall_config::access_log::AccessLogConfig;
use landfall_config::clouds_yaml::Surroundings;
use landfall_config::file::Config;
use landfall_config::instance::Instance;
use landfall_config::provider::ProviderConfig;
use landfall_engine::Classes;
use landfall_kube::{Connection, CustomResources, Origin};
use landfall_model::limits::Limits;
use landfall_model::provider::ProviderProfile;
use landfall_model::reach::Setting;
use landfall_model::rows::{PoolRow, ResourceKind};
use landfall_sys::listen::Addresses;

use crate::backend::{self, Backend, Bounds, Disabled, Mode, Setup};
use crate::cli::InstancesArgs;
use crate::config;
use crate::data_plane::DataPlane;

pub mod announced;
mod cluster_id;

/// The instances of a process, ready to be made.
#[derive(Clone, Debug)]
pub struct Instances {
    config: Config,
    /// By position.
    setups: Vec<Setup>,
    /// What providers outside of this process do when this process serves.
    clouds: Mode,
    /// The authors of the Services.
    setting: Setting,
    /// Where our own admin endpoint answers, once that is known.
    admin: Option<SocketAddr>,
    /// How many listeners a namespace may have by default.
    listeners: Option<usize>,
}

// === impl InstancesArgs ===

impl InstancesArgs {
    /// Whether nothing is configured: one instance that serves this machine.
    pub fn is_default(&self) -> bool {
        self.config.is_none() && self.cloud_config.is_none()
    }
}

// === impl Instances ===

impl Instances {
    /// One instance that serves everything on this machine.
    pub fn local() -> Self {
        Self::with(
            Config::only(config::INSTANCE),
            vec![Setup::local(config::INSTANCE)],
        )
    }

    /// Reads what the command line names, and the files that are named in there.
    pub async fn read(args: &InstancesArgs) -> anyhow::Result<Self> {
        let config = described(args).await?;
        let args = args.clone();
        tokio::task::spawn_blocking(move || Self::of(config, &args)).await?
    }

    /// The instances of a configuration that names no files.
    pub async fn of_config(config: Config) -> anyhow::Result<Self> {
        let args = InstancesArgs::default();
        tokio::task::spawn_blocking(move || Self::of(config, &args)).await?
    }

    /// Reads the files that a configuration names. Blocks on the disk.
    fn of(config: Config, args: &InstancesArgs) -> anyhow::Result<Self> {
        let surroundings = Surroundings::new(env::current_dir().ok(), |name| env::var(name).ok());
        let setups = config.instances.iter().map(|instance| {
            let Instance { name, provider, .. } = instance;
            Setup::read(name, provider, &surroundings, args)
        });
        let setups = setups.collect::<anyhow::Result<_>>()?;
        Ok(Self::with(config, setups))
    }

    fn with(config: Config, setups: Vec<Setup>) -> Self {
        Self {
            config,
            setups,
            clouds: Mode::Live,
            setting: Setting::Machine,
            admin: None,
            listeners: None,
        }
    }

    /// The same, for Services of a cluster.
    #[must_use]
    pub fn in_cluster(self) -> Self {
        Self {
            setting: Setting::Cluster,
            ..self
        }
    }

    /// The same, for Services of a cluster whose controller may have another configuration: what
    /// that one allows is only known where a configuration is named.
    #[must_use]
    pub fn in_cluster_as(self, args: &InstancesArgs) -> Self {
        if args.is_default() {
            self
        } else {
            self.in_cluster()
        }
    }

    /// The custom resources that are read in a cluster.
    pub fn resources(&self) -> CustomResources {
        resources(&self.config)
    }

    /// The same in a process that may have so many listeners. In a cluster, a namespace gets half.
    #[must_use]
    pub fn sharing(self, listeners: usize) -> Self {
        let listeners = match self.setting {
            Setting::Machine => None,
            Setting::Cluster => Some((listeners / 2).max(1)),
        };
        Self { listeners, ..self }
    }

    /// The same in a process whose admin endpoint answers there.
    #[must_use]
    pub fn beside(self, admin: SocketAddr) -> Self {
        Self {
            admin: Some(admin),
            ..self
        }
    }

    /// The same, without any cloud: only the instances in this process do anything.
    #[must_use]
    pub fn without_clouds(&self) -> Self {
        Self {
            clouds: Mode::Offline,
            ..self.clone()
        }
    }

    /// Whether an instance serves in this process.
    pub fn serves_here(&self) -> bool {
        self.setups.iter().any(Setup::is_in_process)
    }

    /// Which addresses the listeners of this process may have: any, where an instance announces
    /// addresses that the machine does not have.
    pub fn addresses(&self) -> Addresses {
        let announces = |instance: &Instance| match &instance.provider {
            ProviderConfig::Local(local) => local.announce.is_some(),
            _ => false,
        };
        if self.config.instances.iter().any(announces) {
            Addresses::Any
        } else {
            Addresses::Local
        }
    }

    /// Whether an instance carries traffic in this process.
    pub fn carries_traffic(&self) -> bool {
        self.setups.iter().any(Setup::carries_traffic)
    }

    /// Whether an instance is on bare metal.
    pub fn has_metal(&self) -> bool {
        self.setups.iter().any(Setup::is_metal)
    }

    /// Returns what is configured of the instances in this process, as a text that differs between
    /// two configurations apart.
    pub fn described_here(&self) -> String {
        let instances = self.config.instances.iter().zip(&self.setups);
        let here: Vec<&Instance> = instances
            .filter(|(_, setup)| setup.is_in_process())
            .map(|(instance, _)| instance)
            .collect();
        // A configuration has a JSON form: it is read from one.
        serde_json::to_string(&here).unwrap_or_default()
    }

    /// The instances as classes. Those that are switched off touch no Service.
    pub fn classes(&self) -> Classes {
        let setups = self.setups.iter();
        let off = setups.map(|setup| self.mode(setup) == Mode::Offline);
        classes(&self.config).switched_off(&off.collect::<Vec<_>>())
    }

    /// What is configured of the access log.
    pub fn access_log(&self) -> Option<&AccessLogConfig> {
        self.config.access_log.as_ref()
    }

    /// The pools of all instances.
    pub fn pools(&self) -> Vec<PoolRow> {
        self.config.pools()
    }

    /// The instances on clouds, switched off or not.
    pub fn on_clouds(&self) -> impl Iterator<Item = &Setup> {
        let setups = self.setups.iter();
        setups.filter(|setup| !setup.is_in_process() && self.clouds != Mode::Offline)
    }

    /// Those of them that are not switched off.
    pub fn active(&self) -> impl Iterator<Item = &Setup> {
        self.on_clouds().filter(|setup| setup.disabled().is_none())
    }

    /// Refuses to go on without an instance on a cloud, and explains why.
    pub fn ensure_active(&self) -> anyhow::Result<()> {
        if self.active().next().is_some() {
            return Ok(());
        }
        let off = self.on_clouds().filter_map(Setup::disabled);
        let off: Vec<String> = off
            .map(|Disabled { why, remedy }| format!("{why}; {remedy}"))
            .collect();
        anyhow::ensure!(
            !off.is_empty(),
            "no instance on a cloud is configured; name its files with --cloud-config or --config"
        );
        anyhow::bail!(off.join("\n"))
    }

    /// Learns which cluster it is, where an instance needs that.
    pub async fn learn_cluster(
        &mut self,
        connection: &Connection,
        origin: &Origin,
    ) -> anyhow::Result<()> {
        if self.active().next().is_none() {
            return Ok(());
        }
        let id = cluster_id::read(connection, origin).await?;
        for setup in &mut self.setups {
            setup.set_cluster_id(id.as_deref());
        }
        Ok(())
    }

    /// Creates the providers that serve, in the order of the classes.
    pub fn live(&self, data_plane: &mut DataPlane) -> anyhow::Result<Vec<Backend>> {
        let backends = self.each().map(|(setup, bounds)| match self.mode(setup) {
            Mode::Live => setup.live(bounds, data_plane),
            mode => Ok(setup.detached(mode, bounds)),
        });
        backends.collect()
    }

    /// Creates providers that hold nothing in this process and change nothing outside of it, in the
    /// order of the classes.
    pub fn detached(&self, mode: Mode) -> Vec<Backend> {
        let backends = self.each().map(|(setup, bounds)| match setup.disabled() {
            None => setup.detached(mode, bounds),
            Some(_) => setup.detached(Mode::Offline, bounds),
        });
        backends.collect()
    }

    /// What an instance does when this process serves.
    fn mode(&self, setup: &Setup) -> Mode {
        if setup.is_in_process() {
            Mode::Live
        } else if setup.disabled().is_some() {
            Mode::Offline
        } else {
            self.clouds
        }
    }

    fn each(&self) -> impl Iterator<Item = (&Setup, Bounds)> {
        let limits = self.limits();
        let instances = self.config.instances.iter().zip(&self.setups);
        instances.map(move |(instance, setup)| {
            let members = instance.member_rules(self.setting).beside(self.admin);
            (setup, Bounds { members, limits })
        })
    }

    /// Of so many files that the process may open, those that are not set aside for watches of
    /// Secrets, of which a process with manifests has none.
    pub fn files_for_traffic(&self, files: u64) -> u64 {
        match self.setting {
            Setting::Machine => files,
            Setting::Cluster => {
                let watches = self.limits().within_files(files).secrets;
                files.saturating_sub(watches as u64)
            }
        }
    }

    /// How much one Service or one namespace may have.
    pub fn limits(&self) -> Limits {
        self.config.limits.limits(self.listeners)
    }
}

/// The instances of a configuration as classes.
pub fn classes(config: &Config) -> Classes {
    let (names, default) = config.names();
    Classes::new(names, default).serving(config.class_names())
}

/// Returns the custom resources that the instances of a configuration read in a cluster. Address
/// pools are always among them: no member may be an address that is given to Services.
pub fn resources(config: &Config) -> CustomResources {
    let profiles = outline(config);
    let kinds = profiles.iter().flat_map(|it| it.resources);
    CustomResources {
        namespace: config.metallb_namespace().to_owned(),
        kinds: kinds
            .copied()
            .chain([ResourceKind::IpAddressPool])
            .collect(),
    }
}

/// Returns what the instances of a configuration can do in a cluster, without reading the files
/// that it names.
pub fn outline(config: &Config) -> Vec<ProviderProfile> {
    let of = |instance: &Instance| {
        let setting = match &instance.members {
            Some(_) => Setting::Cluster,
            None => Setting::Machine,
        };
        let bounds = Bounds {
            members: instance.member_rules(setting),
            limits: config.limits.limits(None),
        };
        backend::outline(&instance.provider, bounds)
    };
    config.instances.iter().map(of).collect()
}

/// The instances that the command line describes.
async fn described(args: &InstancesArgs) -> anyhow::Result<Config> {
    let mut config = match &args.cloud_config {
        Some(path) => backend::of_cloud_conf(path.clone()),
        None => config::read(args.config.as_deref()).await?,
    };
    for instance in &mut config.instances {
        backend::override_with(&mut instance.provider, args);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use landfall_proxy::admission::Division;

    use super::*;

    #[test]
    fn in_a_cluster_descriptors_are_set_aside_for_watches_of_secrets() {
        assert_eq!(Instances::local().files_for_traffic(1024), 1024);
        let instances = Instances::local().in_cluster();
        for files in [64, 1024, 20_000, 1 << 20] {
            let watches = instances.limits().within_files(files).secrets as u64;
            let division = Division::of(instances.files_for_traffic(files));
            let others = division.reserve + division.pipes + division.traffic;
            assert!(u64::from(others) + watches <= files, "{division:?}");
        }
        assert_eq!(instances.files_for_traffic(1024), 1024 - 128);
        // All of the reserve is still there for the process itself.
        let division = Division::of(instances.files_for_traffic(1024));
        assert!(division.reserve > 200, "{division:?}");
    }

    #[tokio::test]
    async fn an_instance_that_is_switched_off_is_reported_with_the_file_that_does_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.conf");
        let text =
            "[Global]\nauth-url = http://k\nuser-id = u\npassword = p\n[LoadBalancer]\nenabled = ";
        let write = |enabled: bool| std::fs::write(&path, format!("{text}{enabled}\n")).unwrap();
        let args = InstancesArgs {
            cloud_config: Some(path.clone()),
            ..InstancesArgs::default()
        };
        write(false);
        let instances = Instances::read(&args).await.unwrap();
        assert_eq!(
            instances.ensure_active().unwrap_err().to_string(),
            format!(
                "[LoadBalancer] enabled = false in {} switches the instance openstack off; give \
                Landfall a copy of the file without that line, which is meant for \
                cloud-provider-openstack only",
                path.display()
            )
        );
        write(true);
        Instances::read(&args)
            .await
            .unwrap()
            .ensure_active()
            .unwrap();
        let error = Instances::local().ensure_active().unwrap_err().to_string();
        assert!(
            error.starts_with("no instance on a cloud is configured; "),
            "{error}"
        );
    }
}
