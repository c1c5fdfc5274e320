//! What can be chosen about the simulated cloud.

use std::time::Duration;

use super::wire::Service;

/// How the cloud behaves; change it at any time by `Sim::configure`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Highest minor version of the Octavia API: 27 for 2.27. What came later is unknown to the
    /// server.
    pub api_minor: u16,
    /// Objects on one page of an Octavia list.
    pub page_size: usize,
    /// The same for Neutron, which by default has no pages.
    pub network_page_size: Option<usize>,
    /// Requests with more bytes than this are refused with 413.
    pub body_limit: usize,
    /// How long a load balancer is locked after a write.
    pub settle: Settle,
    /// How long every call takes.
    pub latency: Duration,
    /// How long a token is good for.
    pub token_life: Duration,
    /// What Keystone accepts.
    pub logins: Logins,
    /// Services in the catalog.
    pub services: Vec<Service>,
    /// Region of all endpoints.
    pub region: String,
    /// Providers that Octavia has; the first is the default.
    pub providers: Vec<String>,
    /// Flavors: id and provider.
    pub flavors: Vec<(String, String)>,
    /// Availability zones by name.
    pub availability_zones: Vec<String>,
    /// Whether the `ovn` provider knows the algorithm `SOURCE_IP` and prefers it.
    pub ovn_source_ip: bool,
    /// Whether the policy lets us choose the address of a floating IP.
    pub floating_address_allowed: bool,
    /// Whether the policy lets us fail over load balancers.
    pub failover_allowed: bool,
    /// Smallest delay of a UDP-CONNECT monitor, in seconds.
    pub udp_connect_min_delay: i64,
    /// How many objects of a kind the project may have.
    pub quota: Quota,
}

/// Time from a write until the load balancer is ACTIVE (or gone), by what was written.
#[derive(Debug, Clone, Copy)]
pub struct Settle {
    /// A new load balancer.
    pub create: Duration,
    /// A change of the load balancer itself.
    pub update: Duration,
    /// Deletion of the load balancer.
    pub delete: Duration,
    /// Any write on a listener.
    pub listener: Duration,
    /// Any write on a pool.
    pub pool: Duration,
    /// Any write on members.
    pub members: Duration,
    /// Any write on a monitor.
    pub monitor: Duration,
    /// A failover.
    pub failover: Duration,
}

impl Settle {
    /// The same time for all.
    pub fn all(time: Duration) -> Self {
        Self {
            create: time,
            update: time,
            delete: time,
            listener: time,
            pool: time,
            members: time,
            monitor: time,
            failover: time,
        }
    }
}

/// Highest numbers of objects; `None` is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quota {
    /// Octavia.
    pub load_balancers: Option<usize>,
    /// Octavia.
    pub listeners: Option<usize>,
    /// Octavia.
    pub pools: Option<usize>,
    /// Octavia.
    pub members: Option<usize>,
    /// Octavia.
    pub monitors: Option<usize>,
    /// Neutron.
    pub floating_ips: Option<usize>,
    /// Neutron; VIPs count, too.
    pub ports: Option<usize>,
    /// Neutron.
    pub security_groups: Option<usize>,
    /// Neutron.
    pub security_group_rules: Option<usize>,
}

/// What can be shown to Keystone.
#[derive(Clone)]
pub struct Logins {
    /// User name and user id alike.
    pub user: String,
    /// Password of the user.
    pub password: String,
    /// Name and id of the user's domain and the project's.
    pub domain: String,
    /// Name of the project. Its id is `Sim::project`.
    pub project: String,
    /// Id (and name) of the application credential.
    pub credential: String,
    /// Secret of the application credential.
    pub credential_secret: String,
    /// Id of a trust that may be used.
    pub trust: String,
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Logins")
            .field("user", &self.user)
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}

impl Default for Logins {
    fn default() -> Self {
        Self {
            user: "landfall".to_owned(),
            password: "simulated-password".to_owned(),
            domain: "Default".to_owned(),
            project: "demo".to_owned(),
            credential: "simulated-credential".to_owned(),
            credential_secret: "simulated-secret".to_owned(),
            trust: "simulated-trust".to_owned(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            api_minor: 27,
            page_size: 1000,
            network_page_size: None,
            body_limit: 114_688,
            settle: Settle::all(Duration::from_secs(1)),
            latency: Duration::ZERO,
            token_life: Duration::from_secs(3600),
            logins: Logins::default(),
            services: Service::ALL.to_vec(),
            region: "RegionOne".to_owned(),
            providers: ["amphora", "octavia", "ovn"].map(String::from).to_vec(),
            flavors: Vec::new(),
            availability_zones: Vec::new(),
            ovn_source_ip: false,
            floating_address_allowed: false,
            failover_allowed: false,
            udp_connect_min_delay: 3,
            quota: Quota::default(),
        }
    }
}
