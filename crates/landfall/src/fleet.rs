//! The provider instances of a process: `landfall.yaml`, or the one that a `cloud.conf` stands for,
//! with the files that they name.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use landfall_config::access_log::AccessLogConfig;
use landfall_config::cloud_conf::{CloudConf, Global};
use landfall_config::clouds_yaml::Surroundings;
use landfall_config::file::{Config, Instance, LimitsConfig, ProviderKind};
use landfall_config::openstack::{OpenStack as OpenStackConfig, SecurityGroups};
use landfall_engine::Classes;
use landfall_kube::{Connection, Origin};
use landfall_local::Local;
use landfall_model::limits::Limits;
use landfall_model::provider::{Provider as _, ProviderProfile};
use landfall_model::reach::Setting;
use landfall_model::rows::PoolRow;
use landfall_openstack::{OpenStack, Settings};

use crate::account::OpenStackInstance;
use crate::cli::InstancesArgs;
use crate::platform::Platform;
use crate::{cluster_id, config};

/// The name of the instance that `--cloud-config` stands for.
const OPENSTACK: &str = "openstack";
/// What a cluster is called unless somebody names it, as with cloud-provider-openstack.
const CLUSTER_NAME: &str = "kubernetes";

/// The instances of a process, ready to be made.
#[derive(Clone, Debug)]
pub struct Instances {
    config: Config,
    /// By position: the account of an instance on OpenStack.
    accounts: Vec<Option<OpenStackInstance>>,
    /// Whether the instances on OpenStack touch nothing for now.
    only_here: bool,
    /// Who writes the Services.
    setting: Setting,
    /// Where our own admin endpoint answers, once that is known.
    admin: Option<SocketAddr>,
    /// How many listeners a namespace may have where nothing is said.
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
        Self {
            config: Config::only(config::INSTANCE),
            accounts: vec![None],
            only_here: false,
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

    /// Where a cluster has MetalLB's `IPAddressPool` objects.
    pub fn metallb_namespace(&self) -> &str {
        self.config.metallb_namespace()
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

    /// Reads what the command line names, and the files that are named in there.
    pub async fn read(args: &InstancesArgs) -> anyhow::Result<Self> {
        let config = described(args).await?;
        let user_agents = args.user_agent.clone();
        let read = move || -> anyhow::Result<Self> {
            let surroundings =
                Surroundings::new(env::current_dir().ok(), |name| env::var(name).ok());
            let accounts = config.instances.iter().map(|instance| {
                let ProviderKind::OpenStack(openstack) = &instance.provider else {
                    return Ok(None);
                };
                let account =
                    OpenStackInstance::read(&instance.name, openstack, &surroundings, &user_agents);
                account.map(Some)
            });
            let accounts = accounts.collect::<anyhow::Result<_>>()?;
            Ok(Self {
                config,
                accounts,
                only_here: false,
                setting: Setting::Machine,
                admin: None,
                listeners: None,
            })
        };
        tokio::task::spawn_blocking(read).await?
    }

    /// The same, of which only the instances on this machine do anything.
    #[must_use]
    pub fn only_here(&self) -> Self {
        Self {
            only_here: true,
            ..self.clone()
        }
    }

    /// Whether an instance serves on this machine.
    pub fn serves_here(&self) -> bool {
        self.accounts.iter().any(Option::is_none)
    }

    /// Returns what is configured of the instances on this machine, as a text that tells two
    /// configurations apart.
    pub fn described_here(&self) -> String {
        let instances = self.config.instances.iter().zip(&self.accounts);
        let here: Vec<&Instance> = instances
            .filter(|(_, account)| account.is_none())
            .map(|(instance, _)| instance)
            .collect();
        // A configuration has a JSON form: it is read from one.
        serde_json::to_string(&here).unwrap_or_default()
    }

    /// The instances as classes. Those that are switched off touch no Service.
    pub fn classes(&self) -> Classes {
        let accounts = self.accounts.iter();
        let is_off = |account: &OpenStackInstance| self.only_here || !is_on(account);
        let off = accounts.map(|account| account.as_ref().is_some_and(is_off));
        classes(&self.config).switched_off(off.collect())
    }

    /// What is configured of the access log.
    pub fn access_log(&self) -> Option<&AccessLogConfig> {
        self.config.access_log.as_ref()
    }

    /// The pools of all instances.
    pub fn pools(&self) -> Vec<PoolRow> {
        self.config.pools()
    }

    /// The accounts of the instances that are on OpenStack and may be used.
    pub fn accounts(&self) -> impl Iterator<Item = &OpenStackInstance> {
        let accounts = self.accounts.iter().flatten();
        accounts.filter(|_| !self.only_here)
    }

    /// Those of them that are not switched off.
    pub fn active(&self) -> impl Iterator<Item = &OpenStackInstance> {
        self.accounts().filter(|account| is_on(account))
    }

    /// Refuses to go on where no cloud is to be looked at, and says why there is none.
    pub fn ensure_active(&self) -> anyhow::Result<()> {
        if self.active().next().is_some() {
            return Ok(());
        }
        let off: Vec<String> = self.accounts().map(switched_off).collect();
        anyhow::ensure!(
            !off.is_empty(),
            "no instance on OpenStack is configured; name its files with --cloud-config or --config"
        );
        anyhow::bail!(
            "{}; give Landfall a copy of the file without that line, which is meant for \
            cloud-provider-openstack only",
            off.join(", ")
        )
    }

    /// Learns which cluster it is, where an instance wants to know.
    pub async fn learn_cluster(
        &mut self,
        connection: &Connection,
        origin: &Origin,
    ) -> anyhow::Result<()> {
        if self.active().next().is_none() {
            return Ok(());
        }
        let id = cluster_id::read(connection, origin).await?;
        for account in self.accounts.iter_mut().flatten() {
            account.settings.cluster_id.clone_from(&id);
        }
        Ok(())
    }

    /// The providers, in the order of the classes. `local` makes one for this machine.
    pub fn platforms(
        &self,
        mut local: impl FnMut() -> anyhow::Result<Local>,
    ) -> anyhow::Result<Vec<Platform>> {
        let platforms = self.each().map(|(guarded, account)| match account {
            None => Ok(Platform::Local(Arc::new(guarded(local()?)))),
            Some(account) if is_on(account) && !self.only_here => {
                Ok(Platform::OpenStack(made(account)))
            }
            Some(account) => Ok(paper(account)),
        });
        platforms.collect()
    }

    /// Providers that hold nothing on this machine, look at their clouds, and change nothing.
    pub fn sandboxes(&self) -> Vec<Platform> {
        let sandboxes = self.each().map(|(guarded, account)| match account {
            None => Platform::Local(Arc::new(guarded(Local::offline()))),
            Some(account) if is_on(account) => Platform::ReadOnly(made(account)),
            Some(account) => paper(account),
        });
        sandboxes.collect()
    }

    /// Providers that hold nothing and ask nobody.
    pub fn paper(&self) -> Vec<Platform> {
        let paper = self.each().map(|(guarded, account)| match account {
            None => Platform::Local(Arc::new(guarded(Local::offline()))),
            Some(account) => paper(account),
        });
        paper.collect()
    }

    /// Of each instance what makes a provider keep to the rules and limits, and its account.
    fn each(
        &self,
    ) -> impl Iterator<Item = (impl FnOnce(Local) -> Local, Option<&OpenStackInstance>)> {
        let limits = self.limits();
        let instances = self.config.instances.iter().zip(&self.accounts);
        instances.map(move |(instance, account)| {
            let rules = instance.member_rules(self.setting);
            let rules = rules.beside(self.admin);
            let guarded = move |local: Local| local.allowing(rules).within(limits);
            (guarded, account.as_ref())
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
    Classes::new(names, default)
}

/// What the instances of a configuration can do in a cluster, without a look into the files that it
/// names.
pub fn abilities(config: &Config) -> Vec<ProviderProfile> {
    let of = |instance: &Instance| match &instance.provider {
        ProviderKind::Local => {
            let rules = instance.member_rules(match &instance.members {
                Some(_) => Setting::Cluster,
                None => Setting::Machine,
            });
            let local = Local::offline().allowing(rules);
            let limits = config.limits.limits(None);
            local.within(limits).profile().clone()
        }
        ProviderKind::OpenStack(openstack) => {
            let conf = CloudConf::of(Global::default());
            Settings::new(&conf, &openstack.cluster_name).profile()
        }
    };
    config.instances.iter().map(of).collect()
}

/// `[LoadBalancer] enabled`
fn is_on(account: &OpenStackInstance) -> bool {
    account.settings.conf.enabled
}

fn switched_off(account: &OpenStackInstance) -> String {
    let OpenStackInstance {
        instance,
        cloud_conf,
        ..
    } = account;
    let file = cloud_conf.as_ref().map(|path| path.display().to_string());
    let file = file.unwrap_or_else(|| "cloud.conf".to_owned());
    format!("[LoadBalancer] enabled = false in {file} switches the instance {instance} off")
}

fn paper(account: &OpenStackInstance) -> Platform {
    Platform::ProfileOnly(Box::new(account.settings.profile()))
}

fn made(account: &OpenStackInstance) -> Box<OpenStack> {
    let (cloud, settings) = (account.cloud.clone(), account.settings.clone());
    Box::new(OpenStack::new(cloud, settings))
}

/// The instances that the command line describes.
async fn described(args: &InstancesArgs) -> anyhow::Result<Config> {
    let mut config = match &args.cloud_config {
        Some(path) => of_cloud_conf(path.clone()),
        None => config::read(args.config.as_deref()).await?,
    };
    if let Some(name) = &args.cluster_name {
        for instance in &mut config.instances {
            if let ProviderKind::OpenStack(openstack) = &mut instance.provider {
                openstack.cluster_name.clone_from(name);
            }
        }
    }
    Ok(config)
}

/// What cloud-provider-openstack does with its `cloud.conf`: one instance for everything.
fn of_cloud_conf(path: PathBuf) -> Config {
    let openstack = OpenStackConfig {
        cloud_conf: Some(path),
        clouds: None,
        cluster_name: CLUSTER_NAME.to_owned(),
        strict_source_ranges: true,
        security_groups: SecurityGroups::default(),
    };
    Config {
        instances: vec![Instance {
            name: OPENSTACK.to_owned(),
            provider: ProviderKind::OpenStack(openstack),
            default: true,
            pools: Vec::new(),
            members: None,
        }],
        limits: LimitsConfig::default(),
        access_log: None,
        metallb_namespace: None,
    }
}

#[cfg(test)]
mod tests {
    use landfall_proxy::admission::Division;

    use super::*;

    #[test]
    fn in_a_cluster_descriptors_are_set_aside_for_watches_of_secrets() {
        assert_eq!(Instances::local().files_for_traffic(1024), 1024);
        let fleet = Instances::local().in_cluster();
        for files in [64, 1024, 20_000, 1 << 20] {
            let watches = fleet.limits().within_files(files).secrets as u64;
            let division = Division::of(fleet.files_for_traffic(files));
            let others = division.reserve + division.pipes + division.traffic;
            assert!(u64::from(others) + watches <= files, "{division:?}");
        }
        assert_eq!(fleet.files_for_traffic(1024), 1024 - 128);
        // All of the reserve is still there for the process itself.
        let division = Division::of(fleet.files_for_traffic(1024));
        assert!(division.reserve > 200, "{division:?}");
    }

    #[tokio::test]
    async fn an_instance_that_is_switched_off_is_told_with_the_file_that_does_it() {
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
        let fleet = Instances::read(&args).await.unwrap();
        assert_eq!(
            fleet.ensure_active().unwrap_err().to_string(),
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
            error.starts_with("no instance on OpenStack is configured; "),
            "{error}"
        );
    }
}
