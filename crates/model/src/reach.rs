//! Which addresses may be members. A load balancer stands where its users don't: what it reaches,
//! any author of a Service reaches through it.
//!
//! Pure. What is our own (addresses of pools and of the machine) is known to the World, not here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;

use ipnet::IpNet;

/// What an instance lets be members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRules {
    /// Whose words the Services are.
    pub setting: Setting,
    /// Prefixes that annotations may name. `None`: any on one machine, none in a cluster.
    pub annotations: Option<Vec<IpNet>>,
    /// Prefixes that EndpointSlices may name. `None`: any.
    pub slices: Option<Vec<IpNet>>,
    /// Where our own admin endpoint answers.
    pub admin: Option<SocketAddr>,
}

/// What is known of an address that a member may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// It is in one of our pools.
    pub pool: bool,
    /// What is sent to it arrives on this machine.
    pub machine: bool,
    /// It is a cluster IP of a Service, whose endpoints may be a listener of ours.
    pub cluster_ip: bool,
}

/// The authors of the Services that an instance serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setting {
    /// The operator of the machine, into files.
    #[default]
    Machine,
    /// Users of a cluster, that may not reach what its nodes reach.
    Cluster,
}

/// What names a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// An annotation of the Service.
    Annotation,
    /// An EndpointSlice.
    Slice,
}

/// Why an address can't be a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForbiddenAddress {
    /// It is no address of a host, or one that only this machine's own programs should reach.
    Kind(&'static str),
    /// Our own admin endpoint answers there.
    Admin,
    /// Its monitor would ask our own admin endpoint.
    AdminChecked,
    /// It is in an address pool, so that a listener of ours may be there.
    Pool,
    /// It is a cluster IP.
    ClusterIp,
    /// Annotations of a cluster name members only where the operator lets them.
    AnnotationsOff,
    /// The prefixes that the operator gave do not cover it.
    NotListed,
}

const LOOPBACK: &str = "a loopback address";
const METADATA: &str = "a metadata service of a cloud";

/// Metadata services and agents of clouds outside of link-local addresses.
const METADATA_V4: [Ipv4Addr; 2] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

// === impl MemberRules ===

impl MemberRules {
    /// The same rules beside an admin endpoint.
    #[must_use]
    pub fn beside(self, admin: Option<SocketAddr>) -> Self {
        Self { admin, ..self }
    }

    /// Validates a member, which is checked at another port if one is given. `ours` says what is
    /// known of an address.
    ///
    /// # Errors
    /// Why it can't be one.
    pub fn validate(
        &self,
        member: SocketAddr,
        check: Option<NonZeroU16>,
        by: NamedBy,
        ours: impl Fn(IpAddr, bool) -> Ours,
    ) -> Result<(), ForbiddenAddress> {
        let address = member.ip().to_canonical();
        let listed = match by {
            NamedBy::Annotation => &self.annotations,
            NamedBy::Slice => &self.slices,
        };
        // What is reached by way of a translated address is validated as if it stood there itself.
        let hidden = embedded(address).map(IpAddr::V4);
        let named = address;
        for address in std::iter::once(address).chain(hidden) {
            match kind(address) {
                Some(LOOPBACK) if self.lets_loopback(address, listed.as_deref()) => {}
                Some(kind) => return Err(ForbiddenAddress::Kind(kind)),
                None => {}
            }
            let asks_admin = self.admin.is_some_and(|admin| {
                let ports = [Some(member.port()), check.map(NonZeroU16::get)];
                ports.contains(&Some(admin.port()))
            });
            let Ours {
                pool,
                machine,
                cluster_ip,
            } = ours(address, asks_admin);
            if pool {
                return Err(ForbiddenAddress::Pool);
            }
            // Nodes forward what is sent there, and not what may be translated to it elsewhere.
            if cluster_ip && address == named {
                return Err(ForbiddenAddress::ClusterIp);
            }
            let is_admin = |port| self.is_admin(SocketAddr::new(address, port), machine);
            if is_admin(member.port()) {
                return Err(ForbiddenAddress::Admin);
            }
            if check.is_some_and(|port| is_admin(port.get())) {
                return Err(ForbiddenAddress::AdminChecked);
            }
        }
        match listed {
            Some(listed) if covers(listed, address) => Ok(()),
            Some(_) => Err(ForbiddenAddress::NotListed),
            None if by == NamedBy::Annotation && self.setting == Setting::Cluster => {
                Err(ForbiddenAddress::AnnotationsOff)
            }
            None => Ok(()),
        }
    }

    /// In a cluster, a prefix that covers more than loopback says nothing of it.
    fn lets_loopback(&self, address: IpAddr, listed: Option<&[IpNet]>) -> bool {
        let named = |net: &IpNet| kind(net.network()) == Some(LOOPBACK) && net.contains(&address);
        match self.setting {
            Setting::Machine => true,
            Setting::Cluster => listed.is_some_and(|listed| listed.iter().any(named)),
        }
    }

    fn is_admin(&self, member: SocketAddr, is_here: bool) -> bool {
        let Some(admin) = self.admin else {
            return false;
        };
        let everywhere = admin.ip().is_unspecified() && (member.ip().is_loopback() || is_here);
        admin.port() == member.port() && (everywhere || admin.ip().to_canonical() == member.ip())
    }
}

fn covers(listed: &[IpNet], address: IpAddr) -> bool {
    listed.iter().any(|net| net.contains(&address))
}

/// What an address is that is no member's, or loopback.
fn kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            [0, ..] => Some("an unspecified address"),
            [127, ..] => Some(LOOPBACK),
            [169, 254, ..] => Some("a link-local address"),
            [224..=239, ..] => Some("a multicast address"),
            [255, 255, 255, 255] => Some("the broadcast address"),
            [240..=255, ..] => Some("a reserved address"),
            _ => METADATA_V4.contains(&v4).then_some(METADATA),
        },
        IpAddr::V6(v6) => match v6.segments() {
            _ if v6.is_unspecified() => Some("an unspecified address"),
            _ if v6.is_loopback() => Some(LOOPBACK),
            [0xfe80..=0xfebf, ..] => Some("a link-local address"),
            [0xff00..=0xffff, ..] => Some("a multicast address"),
            _ => METADATA_V6.contains(&v6).then_some(METADATA),
        },
    }
}

/// The IPv4 addresses that routers, tunnels or the kernel may make of an IPv6 address. Which of
/// several it is, only they know.
fn embedded(address: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let segments = match address {
        IpAddr::V6(v6) => v6.segments(),
        IpAddr::V4(_) => [0; 8],
    };
    let of = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let tail = match segments {
        // `::1` and `::` are validated as what they are.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // IPv4-compatible, mapped, translated (SIIT), and NAT64 by the well-known prefix.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // ISATAP, whatever its prefix, with and without the bits for "universal" and "group".
        | [_, _, _, _, 0 | 0x100 | 0x200 | 0x300, 0x5efe, high, low]
        // Teredo's own servers are where it begins; it hides clients by turning their bits.
        | [0x2001, 0, high, low, ..] => Some(of(high, low)),
        _ => None,
    };
    let other = match segments {
        // 6to4.
        [0x2002, high, low, ..] => Some(of(high, low)),
        [0x2001, 0, _, _, _, _, high, low] => Some(of(!high, !low)),
        _ => None,
    };
    [tail, other]
        .into_iter()
        .flatten()
        .chain(locally_translated(segments))
}

/// What NAT64 makes of an address of the prefix for local use (RFC 8215), in which operators choose
/// one of 48, 56, 64 or 96 bits. The address stands behind it, around bits 64 to 71 (RFC 6052).
fn locally_translated(segments: [u16; 8]) -> impl Iterator<Item = Ipv4Addr> {
    let octets = Ipv6Addr::from(segments).octets();
    let local = matches!(segments, [0x64, 0xff9b, 1, ..]);
    let places = [
        [6, 7, 9, 10],
        [7, 9, 10, 11],
        [9, 10, 11, 12],
        [12, 13, 14, 15],
    ];
    let all = places.map(|places| places.map(|place: usize| octets[place]));
    // Zeroes are what fills the place of another length: nothing is sent to 0.0.0.0/8.
    let real = all
        .into_iter()
        .filter(move |[first, ..]| local && *first != 0);
    real.map(Ipv4Addr::from)
}

// === impl ForbiddenAddress ===

impl ForbiddenAddress {
    /// Why, as the end of a sentence about the address.
    pub fn why(self) -> String {
        match self {
            Self::Kind(kind) => format!("is {kind}, which is not allowed for members"),
            Self::Admin => "is the admin endpoint of this process".to_owned(),
            Self::AdminChecked => {
                "would be checked at the admin endpoint of this process".to_owned()
            }
            Self::Pool => {
                "is in an address pool, and a load balancer must not forward traffic to a load \
                balancer"
                    .to_owned()
            }
            // Neither the Service nor its namespace: they may be another tenant's.
            Self::ClusterIp => {
                "is a cluster IP, and a load balancer must not forward traffic to a Service, which \
                may forward it back"
                    .to_owned()
            }
            Self::AnnotationsOff => {
                "comes from an annotation, and in a cluster annotations name no members unless the \
                operator allows it"
                    .to_owned()
            }
            Self::NotListed => {
                "is in none of the prefixes that the operator allows for members".to_owned()
            }
        }
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Kind(_) => "use the address of a pod, or of a host that clients may reach",
            Self::Admin | Self::Pool | Self::ClusterIp => {
                "name the members behind it by their own addresses"
            }
            Self::AdminChecked => "use another port for the monitor",
            Self::AnnotationsOff => {
                "use a selector or EndpointSlices, or ask the operator to set members.annotations \
                of the instance in landfall.yaml"
            }
            Self::NotListed => {
                "use a member within them, or ask the operator to extend members of the instance \
                in landfall.yaml"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(rules: &MemberRules, by: NamedBy, member: &str) -> Result<(), ForbiddenAddress> {
        let pool: IpNet = "192.0.2.0/24".parse().unwrap();
        let member = member
            .parse()
            .unwrap_or_else(|_| SocketAddr::new(member.parse().unwrap(), 80));
        let own = ["10.0.0.7", "2001:db8::7"].map(|own| own.parse::<IpAddr>().unwrap());
        rules.validate(member, None, by, |address, _| Ours {
            pool: pool.contains(&address),
            machine: own.contains(&address),
            cluster_ip: address == IpAddr::from([10, 96, 0, 7]),
        })
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn cluster() -> MemberRules {
        MemberRules {
            setting: Setting::Cluster,
            ..MemberRules::default()
        }
    }

    /// Addresses that can't be members, however they are written.
    const NEVER: [&str; 36] = [
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "169.254.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "fe80::1",
        "febf::1",
        "ff02::1",
        "fd00:ec2::23",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:a9fe:a9:fe00:1:2",
        "64:ff9b:1:12a9:fe:a9fe::",
        "64:ff9b:1:1234:a9:fea9:fe00:0",
        "64:ff9b:1:1234:5678:9abc:a9fe:a9fe",
        "64:ff9b:1:c000:2:700::",
        "2001:db8::5efe:169.254.169.254",
        "2001:db8:1:2:200:5efe:169.254.169.254",
        "fd00::5efe:224.0.0.1",
        "2002:a9fe:a9fe::5efe:10.0.0.1",
        "2001:0:a9fe:a9fe:8000:63bf:f5ff:fffe",
        "2002:a9fe:a9fe::1",
        "2001:0:4136:e378:8000:63bf:5601:5601",
        "192.0.2.7",
        "::ffff:192.0.2.7",
    ];

    #[test]
    fn what_is_no_host_or_our_own_is_never_a_member() {
        let all = Some(nets(&["0.0.0.0/0", "::/0"]));
        let lists = MemberRules {
            annotations: all.clone(),
            slices: all,
            ..cluster()
        };
        for rules in [MemberRules::default(), cluster(), lists] {
            for by in [NamedBy::Annotation, NamedBy::Slice] {
                for address in NEVER {
                    let validated = validate(&rules, by, address);
                    let barred = matches!(
                        validated,
                        Err(ForbiddenAddress::Kind(_) | ForbiddenAddress::Pool)
                    );
                    assert!(barred, "{address}: {validated:?}");
                }
            }
        }
    }

    #[test]
    fn loopback_is_for_one_machine_or_for_a_configuration_that_lists_it_by_itself() {
        let forms = [
            "127.0.0.1",
            "127.9.9.9",
            "::ffff:127.0.0.1",
            "::1",
            "64:ff9b::7f00:1",
        ];
        for address in forms {
            for by in [NamedBy::Annotation, NamedBy::Slice] {
                assert_eq!(
                    validate(&MemberRules::default(), by, address),
                    Ok(()),
                    "{address}"
                );
                let wide = MemberRules {
                    annotations: Some(nets(&["0.0.0.0/0", "::/0"])),
                    ..cluster()
                };
                for rules in [cluster(), wide] {
                    let barred = Err(ForbiddenAddress::Kind(LOOPBACK));
                    assert_eq!(validate(&rules, by, address), barred, "{address}");
                }
            }
        }
        let listed = MemberRules {
            annotations: Some(nets(&["127.0.0.1/32"])),
            ..cluster()
        };
        let by = NamedBy::Annotation;
        assert_eq!(validate(&listed, by, "127.0.0.1"), Ok(()));
        assert_eq!(
            validate(&listed, by, "127.0.0.2"),
            Err(ForbiddenAddress::Kind(LOOPBACK))
        );
        assert_eq!(
            validate(&listed, NamedBy::Slice, "127.0.0.1"),
            Err(ForbiddenAddress::Kind(LOOPBACK))
        );
    }

    #[test]
    fn annotations_of_a_cluster_name_what_is_listed_and_nothing_else() {
        let by = NamedBy::Annotation;
        assert_eq!(
            validate(&cluster(), by, "10.0.0.1"),
            Err(ForbiddenAddress::AnnotationsOff)
        );
        assert_eq!(validate(&cluster(), NamedBy::Slice, "10.0.0.1"), Ok(()));
        let listed = MemberRules {
            annotations: Some(nets(&["10.1.0.0/16"])),
            slices: Some(nets(&["10.2.0.0/16"])),
            ..cluster()
        };
        assert_eq!(validate(&listed, by, "10.1.0.1"), Ok(()));
        assert_eq!(validate(&listed, by, "::ffff:10.1.0.1"), Ok(()));
        assert_eq!(
            validate(&listed, by, "10.2.0.1"),
            Err(ForbiddenAddress::NotListed)
        );
        assert_eq!(validate(&listed, NamedBy::Slice, "10.2.0.1"), Ok(()));
        assert_eq!(
            validate(&listed, NamedBy::Slice, "10.1.0.1"),
            Err(ForbiddenAddress::NotListed)
        );
        let machine = MemberRules {
            setting: Setting::Machine,
            ..listed
        };
        assert_eq!(
            validate(&machine, by, "10.2.0.1"),
            Err(ForbiddenAddress::NotListed)
        );
        assert_eq!(validate(&MemberRules::default(), by, "10.2.0.1"), Ok(()));
    }

    #[test]
    fn a_cluster_ip_is_no_member_and_what_is_translated_to_it_outside_of_the_nodes_is() {
        for by in [NamedBy::Annotation, NamedBy::Slice] {
            let validate = |member| validate(&MemberRules::default(), by, member);
            for cluster_ip in ["10.96.0.7", "::ffff:10.96.0.7"] {
                let barred = Err(ForbiddenAddress::ClusterIp);
                assert_eq!(validate(cluster_ip), barred, "{cluster_ip}");
            }
            for other in ["10.96.0.8", "64:ff9b::10.96.0.7", "2002:a60:7::1"] {
                assert_eq!(validate(other), Ok(()), "{other}");
            }
        }
    }

    #[test]
    fn addresses_that_translators_make_of_others_are_members() {
        for address in [
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "64:ff9b:1:a00:0:100::",
            "64:ff9b:1:12:0:a00:1::",
            "2001:db8::5efe:10.0.0.1",
            "2002:a00:1::1",
            "2001:0:4136:e378:8000:63bf:f5ff:fffe",
            "2001:db8::1",
        ] {
            let rules = MemberRules::default();
            assert_eq!(
                validate(&rules, NamedBy::Slice, address),
                Ok(()),
                "{address}"
            );
        }
    }

    #[test]
    fn the_admin_endpoint_at_all_addresses_of_a_machine_is_no_member_at_any() {
        let by = NamedBy::Slice;
        for admin in ["0.0.0.0:9640", "[::]:9640"] {
            let admin = Some(admin.parse().unwrap());
            let rules = MemberRules::default().beside(admin);
            for own in [
                "10.0.0.7:9640",
                "[2001:db8::7]:9640",
                "[64:ff9b::a00:7]:9640",
            ] {
                assert_eq!(
                    validate(&rules, by, own),
                    Err(ForbiddenAddress::Admin),
                    "{own}"
                );
            }
            for other in ["10.0.0.7:9641", "10.0.0.8:9640", "[2001:db8::8]:9640"] {
                assert_eq!(validate(&rules, by, other), Ok(()), "{other}");
            }
        }
        let admin = Some("10.0.0.8:9640".parse().unwrap());
        let rules = MemberRules::default().beside(admin);
        assert_eq!(validate(&rules, by, "10.0.0.7:9640"), Ok(()));
        assert_eq!(
            validate(&rules, by, "10.0.0.8:9640"),
            Err(ForbiddenAddress::Admin)
        );
    }

    #[test]
    fn a_member_whose_monitor_would_ask_the_admin_endpoint_is_none() {
        let rules = MemberRules {
            admin: Some("127.0.0.1:9640".parse().unwrap()),
            ..MemberRules::default()
        };
        let validated = |member: &str, port| {
            let member = member.parse().unwrap();
            rules.validate(
                member,
                NonZeroU16::new(port),
                NamedBy::Annotation,
                |_, _| Ours::default(),
            )
        };
        assert_eq!(
            validated("127.0.0.1:80", 9640),
            Err(ForbiddenAddress::AdminChecked)
        );
        assert_eq!(
            validated("[64:ff9b::127.0.0.1]:80", 9640),
            Err(ForbiddenAddress::AdminChecked)
        );
        assert_eq!(validated("127.0.0.1:80", 9641), Ok(()));
        assert_eq!(validated("127.0.0.2:80", 9640), Ok(()));
    }

    #[test]
    fn the_admin_endpoint_is_no_member() {
        for admin in ["127.0.0.1:9640", "0.0.0.0:9640", "[::]:9640"] {
            let rules = MemberRules {
                admin: Some(admin.parse().unwrap()),
                ..MemberRules::default()
            };
            let by = NamedBy::Annotation;
            assert_eq!(
                validate(&rules, by, "127.0.0.1:9640"),
                Err(ForbiddenAddress::Admin),
                "{admin}"
            );
            assert_eq!(
                validate(&rules, by, "[::ffff:127.0.0.1]:9640"),
                Err(ForbiddenAddress::Admin)
            );
            assert_eq!(validate(&rules, by, "127.0.0.1:9641"), Ok(()));
            assert_eq!(validate(&rules, by, "10.0.0.1:9640"), Ok(()));
        }
    }
}
