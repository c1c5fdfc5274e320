//! The words of Octavia's API v2 for protocols, algorithms, monitors and statuses.

use std::borrow::Cow;
use std::fmt;

use landfall_model::Protocol;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines an enum of the words that a field can have. Words of newer versions are kept as they
/// are.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`.")] $variant,)*
            /// A word that is not known here.
            Other(Box<str>),
        }

        impl $name {
            /// The word.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(Box::default())
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, word: &&str) -> bool {
                self.as_str() == *word
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = Cow::<'de, str>::deserialize(deserializer)?;
                Ok(Self::from(&*word))
            }
        }
    };
}

words! {
    /// Protocol of a listener.
    ListenerProtocol {
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
        Http = "HTTP",
        Https = "HTTPS",
        TerminatedHttps = "TERMINATED_HTTPS",
        Prometheus = "PROMETHEUS",
    }
}

words! {
    /// Protocol of a pool.
    PoolProtocol {
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
        Http = "HTTP",
        Https = "HTTPS",
        Proxy = "PROXY",
        ProxyV2 = "PROXYV2",
    }
}

words! {
    /// Algorithm by which a pool chooses a member.
    PoolAlgorithm {
        RoundRobin = "ROUND_ROBIN",
        LeastConnections = "LEAST_CONNECTIONS",
        SourceIp = "SOURCE_IP",
        SourceIpPort = "SOURCE_IP_PORT",
    }
}

words! {
    /// Way in which clients keep their member.
    PersistenceType {
        SourceIp = "SOURCE_IP",
        HttpCookie = "HTTP_COOKIE",
        AppCookie = "APP_COOKIE",
    }
}

words! {
    /// Type of a health monitor.
    MonitorType {
        Tcp = "TCP",
        Http = "HTTP",
        Https = "HTTPS",
        UdpConnect = "UDP-CONNECT",
        Sctp = "SCTP",
        Ping = "PING",
        TlsHello = "TLS-HELLO",
    }
}

words! {
    /// How an object fares, by the health of its members.
    OperatingStatus {
        Online = "ONLINE",
        Offline = "OFFLINE",
        Degraded = "DEGRADED",
        Draining = "DRAINING",
        Error = "ERROR",
        NoMonitor = "NO_MONITOR",
    }
}

// === impl ListenerProtocol ===

impl ListenerProtocol {
    /// The transport protocol, which with the port identifies a listener.
    pub fn transport(&self) -> Protocol {
        match self {
            Self::Udp => Protocol::Udp,
            Self::Sctp => Protocol::Sctp,
            _ => Protocol::Tcp,
        }
    }
}

// === impl PoolProtocol ===

impl PoolProtocol {
    /// Whether members get PROXY headers.
    pub fn sends_proxy_header(&self) -> bool {
        matches!(self, Self::Proxy | Self::ProxyV2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_newer_version_is_kept_as_it_is() {
        for word in ["TCP", "UDP-CONNECT", "HTTP/9"] {
            let text = format!("\"{word}\"");
            let read: MonitorType = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            assert_eq!(read, word);
        }
    }
}
