//! Identities of Services that come without one: a manifest rarely carries `metadata.uid`.

use std::fmt::Write as _;

use landfall_model::{ServiceKey, Uid};
use sha2::{Digest, Sha256};

/// Separates these identities from other hashes of names.
const DOMAIN: &str = "landfall.dev/manifest/service/";

/// The identity of a Service that has none of its own: always the same for the same namespace and
/// name, in the form of a UUID (RFC 9562, version 8: made by rules of one's own).
///
/// A Service that is deleted and written again gets the same identity. That is safe because it can
/// not come back before everything of its former self is gone or taken over: see the store.
pub(crate) fn uid_of(key: &ServiceKey) -> Uid {
    let hash = Sha256::digest(format!("{DOMAIN}{key}").as_bytes());
    let mut bytes = [0_u8; 16];
    for (byte, source) in bytes.iter_mut().zip(hash) {
        *byte = source;
    }
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing into a text can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    Uid::new(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_depends_on_namespace_and_name_alone() {
        let uid = |namespace, name| uid_of(&ServiceKey::new(namespace, name));
        assert_eq!(uid("shop", "web"), uid("shop", "web"));
        assert_ne!(uid("shop", "web"), uid("shop", "web2"));
        assert_ne!(uid("shop", "web"), uid("sho", "pweb"));
    }

    #[test]
    fn an_identity_looks_like_a_uuid_and_never_changes() {
        // Written into people's state files: a change here would orphan their addresses.
        assert_eq!(
            uid_of(&ServiceKey::new("default", "web")).as_str(),
            "23d73f96-5fc8-8269-bd12-b62230550a0b"
        );
    }
}
