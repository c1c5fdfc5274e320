//! What annotations, class and configuration together choose, before anything of the cloud is
//! known. Pure.

use std::net::IpAddr;

use landfall_config::cloud_conf::{ClassConf, FloatingConf};
use landfall_config::patterns::{NamePattern, TagExpression};
use landfall_model::dialect::Given;
use landfall_model::provider::Target;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason};

use crate::objects::{Id, LoadBalancer};
use crate::settings::{OVN, Settings};

/// What is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// No floating IP.
    pub internal: bool,
    /// The Octavia provider; empty: whichever is Octavia's default.
    pub provider: String,
    /// The port of the VIP.
    pub port: Option<Id>,
    /// The subnet of the VIP of a new load balancer.
    pub vip_subnet: Option<Id>,
    /// The network of the VIP of a new load balancer.
    pub vip_network: Option<Id>,
    /// The subnet of the members, where one is named for them.
    pub member_subnet: Option<Id>,
    /// Where neither subnet nor network is named: the subnet is that of a node.
    pub autodetect: bool,
    /// Where the floating IP comes from.
    pub floating: Floating,
    /// The address that is asked for.
    pub address: Option<IpAddr>,
    /// The certificate in Barbican.
    pub tls: Option<String>,
    /// The annotation that names it; `None`: the configuration does.
    pub tls_annotation: Option<String>,
    /// The flavor.
    pub flavor: Option<String>,
    /// The zone.
    pub zone: Option<String>,
    /// The floating IP outlives the Service.
    pub keep_floating_ip: bool,
    /// With PROXY headers, a made-up name is published.
    pub ingress_hostname: bool,
    /// The load balancer that is to be used.
    pub load_balancer: Option<Id>,
    /// Families, the first first.
    pub families: Vec<Family>,
    /// What is to be done about the second one.
    pub policy: FamilyPolicy,
}

/// Where a floating IP comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floating {
    /// The network; `None`: it is searched for.
    pub network: Option<Id>,
    /// The subnet.
    pub subnet: Option<Id>,
    /// Subnets by name.
    pub pattern: Option<NamePattern>,
    /// Subnets by tags.
    pub tags: Option<TagExpression>,
}

/// Returns what is chosen for a Service, and the annotations that can't be followed: what is made
/// of the rest lets an existing load balancer follow the nodes, and is good for nothing else.
pub fn choose(
    intent: &Intent,
    spec: &LoadBalancerSpec,
    settings: &Settings,
) -> (Choice, Vec<Reason>) {
    let cloud = &intent.extensions.openstack;
    let conf = &settings.conf;
    let mut problems = Vec::new();
    let class = match &cloud.class {
        None => None,
        Some(given) => {
            let class = settings.classes.get(&given.value);
            if class.is_none() {
                problems.push(unknown_class(given, settings));
            }
            class
        }
    };
    let internal = conf.internal_lb || value(cloud.internal.as_ref()).copied().unwrap_or(false);
    let (subnet, network) = (value(cloud.subnet.as_ref()), value(cloud.network.as_ref()));
    let of_class =
        |field: fn(&ClassConf) -> &Option<String>| class.and_then(|it| field(it).as_ref());
    let resolved_subnet = subnet
        .or(of_class(|it| &it.subnet_id))
        .or(conf.subnet_id.as_ref());
    let resolved_network = network
        .or(of_class(|it| &it.network_id))
        .or(conf.network_id.as_ref());
    // For Services with a floating IP the class decides about the place of the VIP, as ever.
    let (vip_subnet, vip_network) = if internal {
        (resolved_subnet, resolved_network)
    } else {
        (
            of_class(|it| &it.subnet_id).or(resolved_subnet),
            of_class(|it| &it.network_id).or(resolved_network),
        )
    };
    let member_subnet = value(cloud.member_subnet.as_ref())
        .or(of_class(|it| &it.member_subnet_id))
        .or(conf.member_subnet_id.as_ref());
    // Pods are reached over the routers of the VIP's subnet, unless another one is named for them.
    let nodes_subnet = conf.subnet_id.as_ref().or(resolved_subnet);
    let nodes_subnet = nodes_subnet.filter(|_| spec.target == Target::Node);
    let member_subnet = member_subnet.or(nodes_subnet);
    let floating = floating(intent, class, &conf.floating, &mut problems);
    let set = |given: Option<&Given<String>>, configured: &Option<String>| {
        let text = value(given).or(configured.as_ref());
        text.filter(|text| !text.is_empty()).cloned()
    };
    let choice = Choice {
        internal,
        provider: value(cloud.provider.as_ref())
            .unwrap_or(&conf.lb_provider)
            .clone(),
        port: id(value(cloud.port.as_ref())),
        vip_subnet: id(vip_subnet),
        vip_network: id(vip_network),
        member_subnet: id(member_subnet),
        autodetect: resolved_subnet.is_none() && resolved_network.is_none(),
        floating,
        address: spec.address.requested.first().copied(),
        tls: set(
            cloud.tls_container.as_ref(),
            &conf.default_tls_container_ref,
        ),
        tls_annotation: cloud.tls_container.as_ref().map(|it| it.annotation.clone()),
        flavor: set(cloud.flavor.as_ref(), &conf.flavor_id),
        zone: set(cloud.availability_zone.as_ref(), &conf.availability_zone),
        keep_floating_ip: value(cloud.keep_floating_ip.as_ref()) == Some(&true),
        ingress_hostname: value(cloud.ingress_hostname.as_ref())
            .copied()
            .unwrap_or(conf.enable_ingress_hostname),
        load_balancer: id(value(cloud.load_balancer.as_ref())),
        families: spec.address.families.clone(),
        policy: spec.address.policy,
    };
    (choice, problems)
}

fn floating(
    intent: &Intent,
    class: Option<&ClassConf>,
    conf: &FloatingConf,
    problems: &mut Vec<Reason>,
) -> Floating {
    let cloud = &intent.extensions.openstack;
    let of_class = class.map(|class| &class.floating);
    // An annotation that is there and empty asks for the search, whatever is configured.
    let network = of_class
        .and_then(|class| class.network_id.clone())
        .or_else(|| match &cloud.floating_network {
            Some(given) => Some(given.value.clone()),
            None => conf.network_id.clone(),
        })
        .filter(|id| !id.is_empty());
    let network = id(network.as_ref());
    let from = |conf: &FloatingConf| Floating {
        network: network.clone(),
        subnet: id(conf.subnet_id.as_ref()),
        pattern: conf.subnet.clone().filter(|_| conf.subnet_id.is_none()),
        tags: conf
            .subnet_tags
            .clone()
            .filter(|_| conf.subnet_id.is_none()),
    };
    let chooses = |conf: &&FloatingConf| {
        conf.subnet_id.is_some() || conf.subnet.is_some() || conf.subnet_tags.is_some()
    };
    if let Some(class) = of_class.filter(chooses) {
        return from(class);
    }
    let (subnet, name, tags) = (
        &cloud.floating_subnet_id,
        &cloud.floating_subnet,
        &cloud.floating_subnet_tags,
    );
    if subnet.is_none() && name.is_none() && tags.is_none() {
        return from(conf);
    }
    let mut chosen = Floating {
        network,
        subnet: id(value(subnet.as_ref())),
        ..Floating::default()
    };
    if chosen.subnet.is_some() {
        return chosen;
    }
    if let Some(given) = name {
        match NamePattern::parse(&given.value) {
            Ok(pattern) => chosen.pattern = Some(pattern),
            Err(error) => problems.push(invalid(given, &error.to_string())),
        }
    }
    if let Some(given) = tags {
        match TagExpression::parse(&given.value) {
            Ok(tags) => chosen.tags = Some(tags),
            Err(error) => problems.push(invalid(given, &error.to_string())),
        }
    }
    chosen
}

fn invalid(given: &Given<String>, why: &str) -> Reason {
    Reason::error(Code::InvalidAnnotation, why)
        .at_annotation(&given.annotation)
        .value(given.value.as_str())
}

fn unknown_class(given: &Given<String>, settings: &Settings) -> Reason {
    let known: Vec<&str> = settings.classes.keys().map(String::as_str).collect();
    let remedy = if known.is_empty() {
        "the configuration has no [LoadBalancerClass] section".to_owned()
    } else {
        format!("the configuration has: {}", known.join(", "))
    };
    Reason::error(Code::InvalidAnnotation, "there is no class of this name")
        .at_annotation(&given.annotation)
        .value(given.value.as_str())
        .remedy(remedy)
}

fn value<T>(given: Option<&Given<T>>) -> Option<&T> {
    given.map(|given| &given.value)
}

fn id(text: Option<&String>) -> Option<Id> {
    text.filter(|text| !text.is_empty())
        .map(|text| Id::new(text))
}

// === impl Choice ===

impl Choice {
    /// Whether OVN's driver will carry a load balancer that is made now.
    pub fn is_ovn(&self) -> bool {
        self.provider == OVN
    }

    /// The family that members and the first address have.
    pub fn family(&self) -> Family {
        self.families.first().copied().unwrap_or(Family::V4)
    }
}

/// Whether the driver is OVN's.
pub(crate) fn is_ovn(balancer: Option<&LoadBalancer>, choice: &Choice) -> bool {
    balancer.map_or(choice.is_ovn(), |it| it.provider == OVN)
}
