//! Members of a pool as they are hashed: a map by address alone, in which an address may come twice.
//! It is stored on Services, and from before members had other ports than one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::de::{MapAccess, Visitor};
use serde::{Deserializer, Serializer};

use super::WantedMember;
use crate::graph::MemberKey;

pub(super) fn serialize<S: Serializer>(
    members: &BTreeMap<MemberKey, WantedMember>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(members.iter().map(|((address, _), it)| (address, it)))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<MemberKey, WantedMember>, D::Error> {
    from.deserialize_map(Members)
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = BTreeMap<MemberKey, WantedMember>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("members by address")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((address, member)) = map.next_entry::<IpAddr, WantedMember>()? {
            members.insert((address, member.port), member);
        }
        Ok(members)
    }
}
